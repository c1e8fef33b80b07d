//! `ctx term replay` and `export`: what a terminal has shown, read from its transcript.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_api::http::Terminal;
use ctx_session::{Code, Timestamp};
use ctx_terminal::{Boundary, Chunk, ChunkKind, Chunked, ENTER, Footprint, asciicast, open_transcript, text};

use crate::failure::Failure;
use crate::output;

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
    let (mut footprint, mut whole) = (Footprint::default(), Boundary::default());
    let is_terminal = output::width().is_some();
    if is_terminal {
        std::io::stdout().write_all(ENTER)?;
    }
    let shown = open(terminal)?.try_for_each(|chunk| {
        let chunk = chunk.map_err(|error| Failure::io(&terminal.transcript, error))?;
        gaps.extend(gap(&chunk));
        let wait = chunk.at.saturating_sub(std::mem::replace(&mut last, chunk.at)).as_secs_f64();
        let wait = if args.speed > 0.0 { wait / args.speed } else { 0.0 };
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).min(longest);
        if !wait.is_zero() {
            output::pause(wait)?;
        }
        if let ChunkKind::Output(bytes) = chunk.kind {
            footprint.follow(&whole.push(&bytes));
            let mut stdout = std::io::stdout();
            stdout.write_all(&bytes).and_then(|()| stdout.flush())?;
        }
        Ok(())
    });
    // The program may have left modes behind.
    let mut stdout = std::io::stdout();
    if is_terminal {
        stdout.write_all(&footprint.leave())?;
        writeln!(stdout)?;
    }
    gaps.iter().for_each(output::say);
    shown
}

pub fn export(terminal: &Terminal, args: &ExportArgs) -> Result<(), Failure> {
    let transcript = open(terminal)?.inspect(|chunk| {
        if let Some(gap) = chunk.as_ref().ok().and_then(gap) {
            output::say(gap);
        }
    });
    let mut out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).map_err(|error| Failure::io(path.display(), error))?),
        None => Box::new(std::io::stdout()),
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
    let mut stdout = std::io::stdout();
    ctx_terminal::raw(open(terminal)?, &mut stdout)?;
    match u8::try_from(terminal.exit_code.unwrap_or(1) & 0xff).unwrap_or(1) {
        0 => Ok(()),
        exit => Err(Failure::Told { exit }),
    }
}
