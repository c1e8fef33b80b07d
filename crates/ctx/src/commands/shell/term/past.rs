//! `ctx term replay` and `export`: what a terminal has shown, read from its transcript.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_api::http::Terminal;
use ctx_session::{Code, Timestamp};
use ctx_terminal::{
    Boundary, Chunk, ChunkKind, Chunked, asciicast, open_transcript, text, without_questions,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;
use crate::output;
use crate::term::{Caught, GO, Keyboard, Screen};

#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Its name, its id, or a unique beginning or end of the id
    #[arg(value_name = "ID")]
    pub id: String,
    /// How many times as fast; 0 for at once
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    speed: f64,
    /// Longest pause, in seconds of the replay
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pause_max: f64,
}

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Its name, its id, or a unique beginning or end of the id
    #[arg(value_name = "ID")]
    pub id: String,
    /// What to write: asciicast for `asciinema play`, or text without escape sequences
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Asciicast)]
    to: Format,
    /// A file to write instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Asciicast,
    Text,
}

fn open(terminal: &Terminal) -> Result<impl Chunked, Failure> {
    let path = Path::new(&terminal.transcript);
    open_transcript(path).map_err(|error| Failure::io(&terminal.transcript, error))
}

/// What is to be said of output that could not be kept.
fn gap(chunk: &Chunk) -> Option<String> {
    let is_gap = matches!(chunk.kind, ChunkKind::Missing(_) | ChunkKind::Damaged);
    let note = chunk.kind.note().filter(|_| is_gap)?;
    Some(format!("{} s after the start, {note}", chunk.at.as_secs()))
}

pub fn replay(terminal: &Terminal, args: &ReplayArgs) -> Result<(), Failure> {
    if !(args.speed >= 0.0 && args.pause_max >= 0.0) {
        return Err(Failure::new(Code::Einval, "a speed and a pause are not negative"));
    }
    let longest = Duration::try_from_secs_f64(args.pause_max).unwrap_or(Duration::MAX);
    let (mut last, mut gaps) = (Duration::ZERO, Vec::new());
    let mut player = Player::new()?;
    // The mouse and the focus are reported where the program has asked for that, and nobody reads it.
    let keyboard = player.screen.is_terminal().then(Keyboard::quiet).and_then(Result::ok);
    let mut told_to_go = player.screen.is_terminal().then(|| Caught::new(&GO)).transpose()?;
    let shown = open(terminal)?.try_for_each(|chunk| {
        let chunk = chunk.map_err(|error| Failure::io(&terminal.transcript, error))?;
        gaps.extend(gap(&chunk));
        let wait = chunk.at.saturating_sub(std::mem::replace(&mut last, chunk.at)).as_secs_f64();
        let wait = if args.speed > 0.0 { wait / args.speed } else { 0.0 };
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).min(longest);
        pause(wait, told_to_go.as_mut())?;
        Ok(player.show(chunk.kind)?)
    });
    let is_terminal = player.screen.is_terminal();
    let shown = shown.and_then(|()| Ok(player.finish()?));
    drop(keyboard);
    if is_terminal {
        writeln!(io::stdout())?;
    }
    gaps.iter().for_each(output::say);
    shown
}

/// Waits, unless the reader of stdout goes or this process is told to go.
fn pause(time: Duration, mut told_to_go: Option<&mut Caught>) -> Result<(), Failure> {
    if !time.is_zero() {
        let stdout = io::stdout();
        // Only errors and hang-ups are polled for.
        let mut watched = vec![PollFd::new(&stdout, PollFlags::empty())];
        watched.extend(told_to_go.as_deref().map(|caught| PollFd::new(caught, PollFlags::IN)));
        match poll(&mut watched, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::io("cannot wait", error.into())),
        }
        if watched.first().is_some_and(output::is_gone) {
            return Err(Failure::ReaderGone);
        }
    }
    match told_to_go.as_mut().is_some_and(|caught| caught.take()) {
        true => Err(Failure::Told { exit: 1 }),
        false => Ok(()),
    }
}

/// Shows what was shown before. Its program does not wait for answers any more, so the terminal is not asked.
struct Player {
    screen: Screen,
    whole: Boundary,
}

impl Player {
    fn new() -> io::Result<Player> {
        Ok(Player { screen: Screen::take()?, whole: Boundary::default() })
    }

    fn show(&mut self, kind: ChunkKind) -> io::Result<()> {
        match kind {
            ChunkKind::Output(bytes) => self.screen.show(&without_questions(&self.whole.push(&bytes))),
            ChunkKind::Dropped(_) | ChunkKind::Missing(_) | ChunkKind::Damaged | ChunkKind::Resize(_) => {
                Ok(())
            }
        }
    }

    /// The last character may be cut off; a sequence that is would take in what comes next.
    fn finish(mut self) -> io::Result<()> {
        let rest = self.whole.finish();
        if rest.first() == Some(&0x1b) { Ok(()) } else { self.screen.show(&rest) }
    }
}

pub fn export(terminal: &Terminal, args: &ExportArgs) -> Result<(), Failure> {
    let transcript = open(terminal)?.inspect(|chunk| {
        if let Some(gap) = chunk.as_ref().ok().and_then(gap) {
            output::say(gap);
        }
    });
    let mut out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).map_err(|error| Failure::io(path.display(), error))?),
        None => Box::new(io::stdout()),
    };
    let mut out = BufWriter::new(&mut out);
    let written = match args.to {
        Format::Asciicast => {
            let started = Timestamp::from_millis(terminal.created_at);
            asciicast(transcript, started, &terminal.command, &mut out)
        }
        Format::Text => text(transcript, &mut out),
    };
    Ok(written.and_then(|()| out.flush())?)
}

/// A program that ended before anyone could attach: what it showed, and its exit code.
pub fn show_ended(terminal: &Terminal) -> Result<(), Failure> {
    let mut player = Player::new()?;
    for chunk in open(terminal)? {
        player.show(chunk.map_err(|error| Failure::io(&terminal.transcript, error))?.kind)?;
    }
    player.finish()?;
    match u8::try_from(terminal.exit_code.unwrap_or(1) & 0xff).unwrap_or(1) {
        0 => Ok(()),
        exit => Err(Failure::Told { exit }),
    }
}
