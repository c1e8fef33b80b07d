//! `ctx watch`: what shells and sessions do, on a screen; in a pipe the transcripts of shells, printed or followed.

mod block;
mod draw;
mod model;
mod source;
mod tui;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_host::ShellRecord;
use ctx_journal::{Entry, LogPath};
use ctx_session::Timestamp;

use crate::failure::Failure;
use crate::notices::Notices;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::shell_logs::{LOG_NAME, Shelf, has_writer, id_of};
use crate::shell_transcript::{self, ShellTranscript};

/// A file system that does not tell of changes is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// And this often, where the system does not let us watch all there is.
const LOOK_OFTEN: Duration = Duration::from_millis(200);
/// Commands that are printed where nobody has said how many.
const LAST_COMMANDS: usize = 20;

/// Watch what shells and sessions do
///
/// On a terminal: shells and sessions on the left, the transcript of one of them on the right, live. In a pipe, or with -n, it prints the last
/// commands of all shells with their output; with --follow only what happens from now on: a command when it starts, its output and exit
/// code when it ends.
///
/// Keys: arrows and PgUp, PgDn move, Tab changes sides, Enter opens what the log has of an output, Esc goes back, / searches (n, N: next, previous), e and E go to the
/// next and previous command that failed, f filters, y copies the output and Y the command (OSC 52), q leaves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx watch                       a screen, until q
  ctx watch | less                the last 20 commands
  ctx watch --follow              until Ctrl-C
  ctx watch --follow --json | jq -r 'select(.type == \"shell_exec_started\") | .command'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// Print only what happens from now on, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// How many commands to print without --follow [default: 20]; 0 prints everything there ever was
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "follow")]
    last: Option<usize>,
    /// Print the records of the logs, one per line, each with the id of its `log`
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let Args { json, follow, .. } = args;
    if !follow && !json && args.last.is_none() && has_screen() {
        return tui::run(root);
    }
    let mut watch = Watch { seen: HashMap::new(), last: String::new(), json, follow, since: None };
    if !follow {
        watch.since = since(root, args.last.unwrap_or(LAST_COMMANDS))?;
        return watch.look(root, true);
    }
    // Asked for before the first look: what happens in between is told.
    let mut news = News::of_shells(root)?;
    watch.look(root, false)?;
    loop {
        news.notices.wait(news.patience())?;
        news.ask(root);
        watch.look(root, true)?;
    }
}

/// Whether there is a terminal that can be drawn on.
fn has_screen() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !output::is_dumb()
}

/// When the first of the last so many commands of all shells began; nothing, where there are no more than that.
fn since(root: &Root, last: usize) -> Result<Option<Timestamp>, Failure> {
    let mut begins = BinaryHeap::new();
    for shelf in Shelf::for_reading(root)? {
        for log in shelf.logs()? {
            // What cannot be read is told of when it is printed.
            let _read = shelf.entries(&log, 0, &mut |entry| {
                if is_start(entry) {
                    begins.push(Reverse(entry.time));
                }
                if begins.len() > last {
                    begins.pop();
                }
            });
        }
    }
    Ok(begins.peek().filter(|_| begins.len() == last).map(|Reverse(first)| *first))
}

/// Whether a command begins with this record.
fn is_start(entry: &Entry) -> bool {
    use ShellRecord::{ExecRefused, ExecStarted};
    matches!(shell_transcript::parse(entry), Some(ExecStarted { .. } | ExecRefused { .. }))
}

/// Tells when a log may have something new.
struct News {
    notices: Notices,
    /// Directories of logs that are watched, or that nobody writes to any more.
    dirs: HashSet<PathBuf>,
    is_whole: bool,
}

impl News {
    fn of_shells(root: &Root) -> Result<News, Failure> {
        let mut news = News { notices: Notices::new()?, dirs: HashSet::new(), is_whole: true };
        news.ask(root);
        Ok(news)
    }

    /// How long to wait for a notice before everything is looked at all the same.
    fn patience(&self) -> Duration {
        if self.is_whole { LOOK_AGAIN } else { LOOK_OFTEN }
    }

    /// Asks for news of all that may change: the places where logs come to be, and the logs that are written.
    fn ask(&mut self, root: &Root) {
        for place in Shelf::places(root) {
            if let Some(there) = place.ancestors().find(|path| path.is_dir()) {
                self.watch(there);
            }
            let Ok(entries) = std::fs::read_dir(&place) else { continue };
            for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if !self.dirs.contains(&dir) && dir.is_dir() {
                    if !has_ended(&dir) {
                        self.watch(&dir);
                    }
                    self.dirs.insert(dir);
                }
            }
        }
    }

    fn watch(&mut self, dir: &Path) {
        match self.notices.of_dir(dir) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(_) => self.is_whole = false,
        }
    }
}

/// Whether a directory has a log that nobody writes any more.
fn has_ended(dir: &Path) -> bool {
    let log = dir.join(LOG_NAME);
    log.exists() && !has_writer(&log)
}

/// How far a log was read.
struct Seen {
    /// The file's length then.
    size: u64,
    /// The seq to go on with.
    next: u64,
    transcript: ShellTranscript,
    /// Whether its server was killed.
    is_lost: bool,
    /// Whether the first command that is printed has come.
    has_begun: bool,
}

struct Watch {
    seen: HashMap<String, Seen>,
    /// The log whose lines were printed last.
    last: String,
    json: bool,
    follow: bool,
    /// What was recorded before is not printed.
    since: Option<Timestamp>,
}

impl Watch {
    /// Reads what is new in all logs and prints it.
    fn look(&mut self, root: &Root, print: bool) -> Result<(), Failure> {
        let mut out = output::stdout();
        for shelf in Shelf::for_reading(root)? {
            for log in shelf.logs()? {
                let key = shelf.dir.join(log.as_str()).to_string_lossy().into_owned();
                let seen = self.seen.entry(key).or_insert_with(Seen::nothing);
                let text = seen.news(&shelf, &log, self.json, self.follow, self.since);
                if print && !text.is_empty() {
                    if !self.json && self.last != id_of(&log) {
                        let shell = format!("{} {}", seen.transcript.shell(), id_of(&log));
                        writeln!(
                            out,
                            "{}",
                            Paint::for_stdout().bold(&format!("== {} ==", shell.trim_start()))
                        )?;
                        id_of(&log).clone_into(&mut self.last);
                    }
                    out.write_all(text.as_bytes())?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// A record as it is in its log, a JSON object, that says which log that is: those of several come mixed.
fn with_log(record: &str, log: &str) -> String {
    let body = record.strip_prefix('{').unwrap_or(record);
    format!("{{\"log\":\"{log}\",{body}\n")
}

impl Seen {
    fn nothing() -> Seen {
        Seen {
            size: 0,
            next: 0,
            transcript: ShellTranscript::new(Paint::for_stdout()),
            is_lost: false,
            has_begun: false,
        }
    }

    /// What a log has more than when it was looked at last.
    fn news(
        &mut self,
        shelf: &Shelf,
        log: &LogPath,
        json: bool,
        follow: bool,
        since: Option<Timestamp>,
    ) -> String {
        let mut text = String::new();
        let (size, is_open) = (shelf.size(log), self.transcript.is_open() && !self.is_lost);
        if size == self.size && !is_open {
            return text;
        }
        // Asked for before the log is read: who is gone by now has written all there is.
        let has_writer = shelf.has_writer(log);
        if size != self.size {
            let Seen { transcript, has_begun, .. } = self;
            let next = shelf.read_or_tell(log, self.next, &mut |entry| {
                let shown = match json {
                    true => with_log(&entry.text, id_of(log)),
                    false => transcript.record(entry),
                };
                // From a command on, so that no output stands without it.
                *has_begun |= since.is_none_or(|since| entry.time >= since && is_start(entry));
                if *has_begun {
                    text.push_str(&shown);
                }
            });
            (self.next, self.size) = (next.unwrap_or(self.next), size);
        }
        self.is_lost = self.transcript.is_open() && !has_writer;
        // Of a shell whose last commands are too old nothing is said.
        let is_shown = !text.is_empty() || since.is_none();
        if !json && is_shown && (self.is_lost || !follow) {
            text.push_str(&self.transcript.clone().end(has_writer));
        }
        text
    }
}
