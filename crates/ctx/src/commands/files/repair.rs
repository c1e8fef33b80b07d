//! `ctx repair`: repairs damaged logs. It prints the changes, and applies them only with `--apply`.

pub mod advice;
mod bodies;
mod copies;
mod diff;
mod meta;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ctx_engine::paths::{LOGS, session_logs};
use ctx_journal::repair::{Plan, RepairError, Repaired, Versions};
use ctx_journal::{Entry, FileJournal, Journal, JournalError, LogPath};
use ctx_session::record::{Decoded, SessionBody};
use ctx_session::{Body, Code, SessionId};
use ctx_views::db::mark_unread;
use ctx_views::files::{LATEST, MESSAGES, STATE};
use ctx_views::read::{Place, Reader};

use crate::client::Api;
use crate::commands::files::audit::AUDIT;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{index, sessions, words};

pub use copies::{Says, copies};
pub use meta::{Known, Left};

/// An idle session is let go of after five seconds; a little longer is waited for that.
const PATIENCE: Duration = Duration::from_secs(7);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Repair damaged logs
///
/// Prints the changes as a diff. It changes nothing unless --apply is given.
///
/// Intact records keep their bytes and their number. Records that ran together are separated, whole records
/// inside a bad line are saved, records out of order are moved back, a wrong byte in a key is corrected, and a
/// record of type `lost` takes the place of what cannot be recovered. A log that a newer ctx has written to is
/// not changed.
///
/// The original log is kept as events.jsonl.before-repair-TIME, what was left out as
/// events.jsonl.quarantine-TIME, and the old messages file as messages.jsonl.before-repair-TIME.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx doctor                      list damaged logs
  ctx repair coder/default        print what a repair would change
  ctx repair coder/default --apply
  ctx repair --all --apply

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed,
            70 internal error")]
pub struct Args {
    /// The session: agent/name, an id or the beginning or end of an id [default: all logs]
    #[arg(value_name = "SESSION", conflicts_with = "all")]
    session: Option<String>,
    /// Repair all logs of this root
    #[arg(long)]
    all: bool,
    /// Apply the changes
    #[arg(long)]
    apply: bool,
    /// Also repair what looks written by a newer ctx, because none ever wrote to this session
    #[arg(long, requires = "session")]
    not_newer: bool,
    /// Print one JSON object per damaged log
    #[arg(long)]
    json: bool,
}

impl Args {
    fn versions(&self) -> Versions {
        if self.not_newer { Versions::AreOurs } else { Versions::MayBeNewer }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    if args.apply && args.session.is_none() && !args.all {
        return Err(Failure::new(Code::Einval, "name the session to repair, or pass --all"));
    }
    let reader = root.reader()?;
    let journal = root.journal()?;
    let all = all_logs(&*journal, &reader)?.found;
    let logs = match &args.session {
        Some(word) => vec![find(&reader, word)?],
        None => all.clone(),
    };
    let says = |log: &LogPath| Says::of(root, log, journal.head(log).ok().flatten().as_ref());
    let copies = copies(all.iter().map(|log| (log, says(log))));
    let mut mender =
        Mender { root, journal: &journal, args: &args, damaged: 0, failed: 0, not_reread: false };
    for log in &logs {
        match copies.get(log) {
            Some(original) => mender.leave_copy(log, *original),
            None => mender.log(log)?,
        }
    }
    mender.conclude(logs.len())
}

/// The log of the session that a word means; also of one whose files cannot be read.
fn find(reader: &Reader, word: &str) -> Result<LogPath, Failure> {
    Ok(sessions::find(reader, word)?.log()?)
}

/// Every log beneath the root that the caller may look for.
pub struct Logs {
    pub found: Vec<LogPath>,
    /// What was not theirs to look into.
    pub unreadable: Vec<String>,
}

pub fn all_logs(journal: &dyn Journal, reader: &Reader) -> Result<Logs, Failure> {
    let mut logs = Logs { found: Vec::new(), unreadable: Vec::new() };
    match session_logs(journal) {
        Ok(found) => logs.found = found,
        // Others have sessions here too; the caller's own are looked for by themselves.
        Err(_) => {
            for place in reader.places(sessions::own_uid())? {
                let whose = match place {
                    Place::Private { uid } => format!("home/{uid}"),
                    Place::Shared { space } => format!("shared/{space}"),
                };
                for pattern in LOGS {
                    logs.look(journal, &format!("{whose}/{pattern}"));
                }
            }
        }
    }
    logs.look(journal, ".state/project");
    logs.look(journal, ".state/shell");
    if let Ok(audit) = LogPath::new(AUDIT) {
        match journal.head(&audit) {
            Ok(_) => logs.found.push(audit),
            Err(JournalError::NotThere { .. }) => {}
            Err(error) => logs.unreadable.push(error.to_string()),
        }
    }
    logs.found.sort();
    Ok(logs)
}

impl Logs {
    fn look(&mut self, journal: &dyn Journal, under: &str) {
        match journal.list(under) {
            Ok(found) => self.found.extend(found),
            Err(error) => self.unreadable.push(error.to_string()),
        }
    }
}

struct Mender<'a> {
    root: &'a Root,
    journal: &'a FileJournal,
    args: &'a Args,
    damaged: u64,
    failed: u64,
    /// The daemon has not read a session that was repaired: it does not know it, or by another id.
    not_reread: bool,
}

impl Mender<'_> {
    fn log(&mut self, log: &LogPath) -> Result<(), Failure> {
        let known = Known::new(self.root, log);
        let done = if self.args.apply {
            self.repair(log, &known)
        } else {
            let plan = known.plan(self.journal, self.args.versions());
            plan.map(|plan| Repaired { plan, original: None, set_aside: None })
        };
        for Left { line, why } in known.left() {
            let what = format!("{log}, line {line}: {why}");
            output::say(format_args!("{} {what}", Paint::for_stderr().bold("not changed:")));
            output::say(format_args!("  {}", advice::unknown_word(log)));
        }
        match done {
            Ok(done) if done.plan.is_sound() => Ok(()),
            Ok(done) => {
                self.damaged += 1;
                self.print(&done)?;
                if self.args.apply && self.root.is_up() {
                    self.not_reread |= has_new_first(&done.plan) || !self.reread(log);
                }
                Ok(())
            }
            Err(error) => {
                self.failed += 1;
                let (what, hint) = (error.to_string(), explain(self.root, log, &error));
                output::say(format_args!("{} {what}", Paint::for_stderr().red("not repaired:")));
                if let Some(hint) = hint {
                    output::say(format_args!("  {hint}"));
                }
                Ok(())
            }
        }
    }

    /// A copy whose first record were put right would be as good as the session itself.
    fn leave_copy(&mut self, log: &LogPath, original: Option<&LogPath>) {
        self.failed += u64::from(self.args.session.is_some());
        let of = original.map_or_else(|| "another log".to_owned(), LogPath::to_string);
        let what = format!("{log} is a copy with the same id as {of}; move it out of the root");
        output::say(format_args!("{} {what}", Paint::for_stderr().red("not repaired:")));
    }

    /// Has the daemon read a repaired session, and make its files; whether it has. Other logs it reads when it starts.
    fn reread(&self, log: &LogPath) -> bool {
        let Some(session) = self.journal.head(log).ok().flatten().and_then(|first| session_of(&first)) else {
            return log.as_str().starts_with(".state/");
        };
        // Runs are told from the session itself, which is read from its log for that.
        Api::new(self.root).get::<serde_json::Value>(&format!("/sessions/{session}/runs?limit=1")).is_ok()
    }

    /// Repairs a log if it is damaged, waiting for a daemon to let go of it. What the daemon has in hand and is sound
    /// is left alone.
    fn repair(&self, log: &LogPath, known: &Known<'_>) -> Result<Repaired, RepairError> {
        let mut remove = || {
            remove_views(self.root, log)?;
            if let Err(error) = mark_unread(&index::path(self.root), log) {
                // The index is the truth for nothing; a repair does not wait for it.
                output::say(format_args!("the index could not be notified: {error}"));
            }
            Ok(())
        };
        let begun = Instant::now();
        let mut told = false;
        loop {
            // What is being written this moment may look torn; what is sound a moment later was not.
            let plan = known.plan(self.journal, self.args.versions())?;
            if plan.is_sound() {
                return Ok(Repaired { plan, original: None, set_aside: None });
            }
            let done = known.repair(self.journal, self.args.versions(), &mut remove);
            let is_held = matches!(done, Err(RepairError::Journal(JournalError::Locked { .. })));
            if !is_held || begun.elapsed() > PATIENCE {
                return done;
            }
            if !told && begun.elapsed() > ASK_AGAIN {
                output::say(format_args!("{log} is in use; waiting for the daemon to close it"));
                told = true;
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    fn print(&self, done: &Repaired) -> Result<(), Failure> {
        let mut out = output::stdout();
        if self.args.json {
            writeln!(out, "{}", diff::as_json(done))?;
        } else {
            out.write_all(diff::as_diff(done, output::width(), Paint::for_stdout()).as_bytes())?;
        }
        out.flush()?;
        Ok(())
    }

    fn conclude(&self, logs: usize) -> Result<(), Failure> {
        let (damaged, applied) = (self.damaged, self.args.apply);
        if damaged == 0 && self.failed == 0 {
            let logs = if logs == 1 { "the one log".to_owned() } else { format!("{logs} logs") };
            output::say(format_args!("nothing to repair in {logs}"));
        } else if damaged > 0 && !applied {
            output::say("nothing was changed; pass --apply to repair");
        } else if damaged > 0 && self.not_reread {
            output::say(
                "restart the daemon: it may use another id for this session because the first record was damaged",
            );
        } else if damaged > 0 && self.root.is_up() {
            output::say("the daemon has reloaded the repaired sessions; search follows within seconds");
        }
        if self.failed > 0 { Err(Failure::Told { exit: 1 }) } else { Ok(()) }
    }
}

/// The session that a first record tells of.
fn session_of(first: &Entry) -> Option<SessionId> {
    match Body::decode(&first.kind, &first.text) {
        Decoded::Known(Body::Session(SessionBody::Meta(meta))) => Some(meta.session_id),
        Decoded::Known(_) | Decoded::Unknown | Decoded::Malformed(_) => None,
    }
}

fn has_new_first(plan: &Plan) -> bool {
    let first = plan.changes.first().and_then(|change| change.becomes.first());
    first.is_some_and(|line| line.contains("\"seq\":0,") && line.contains("\"type\":\"session_meta\""))
}

/// What to do about a log that could not be repaired.
fn explain(root: &Root, log: &LogPath, error: &RepairError) -> Option<String> {
    let hint = match error {
        RepairError::Journal(JournalError::Locked { .. }) => {
            "the session is busy: end or cancel its run, or stop the daemon, then repair it".to_owned()
        }
        RepairError::Journal(JournalError::NoSpace { .. }) => {
            "a repair keeps the original log and needs space for a second copy".to_owned()
        }
        RepairError::Journal(JournalError::TooNew { .. }) => advice::newer(log),
        RepairError::Journal(JournalError::Io { error, .. })
            if error.kind() == io::ErrorKind::PermissionDenied =>
        {
            advice::by_owner(root)
        }
        RepairError::Journal(_) | RepairError::Unsound { .. } | RepairError::Views { .. } => return None,
        RepairError::NothingUsable { .. } => advice::nothing_usable(log),
    };
    Some(hint)
}

/// Removes the files that show the old log; they are made anew from the repaired one. Its messages may say what the log
/// lost, and are kept.
fn remove_views(root: &Root, log: &LogPath) -> io::Result<()> {
    let dir = root.path.join(log.dir());
    let kept = dir.join(format!("{MESSAGES}.before-repair-{}", words::now().to_file_name()));
    is_gone(std::fs::rename(dir.join(MESSAGES), kept))?;
    for name in [LATEST, STATE] {
        is_gone(std::fs::remove_file(dir.join(name)))?;
    }
    Ok(())
}

/// One that was not there is gone too.
fn is_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
