//! Checks the logs for damage, and lists the files that repairs and crashes left next to them.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ctx_journal::repair::{RepairError, Versions};
use ctx_journal::{FORMAT_VERSION, FileJournal, Journal, JournalError, LogPath, lock};

use super::blobs;
use super::finding::{Finding, Report, size};
use crate::commands::files::repair::{Known, Left, Logs, Says, advice, all_logs, copies};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::root::Root;

/// Logs of this size together are read whole without being asked for.
const WHOLE_BYTES: u64 = 256 * 1024 * 1024;
/// A working file that is younger belongs to someone at work.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);
/// How long a command in flight may make the end of a log look unfinished.
const IN_FLIGHT: Duration = Duration::from_millis(150);
/// Most findings that are told of one log.
const TOLD_MAX: usize = 20;

/// What later looks need to know.
pub struct Looked {
    pub logs: BTreeSet<LogPath>,
    /// Every log was read from beginning to end.
    pub whole: bool,
}

pub fn look(root: &Root, deep: bool, is_up: bool, report: &mut Report) -> Result<Looked, Failure> {
    let journal = root.journal()?;
    let Logs { found: logs, unreadable } = all_logs(&*journal, &root.reader()?)?;
    for what in unreadable {
        report.note(Finding::new(format!("not checked: {what}")));
    }
    let bytes: u64 = logs.iter().map(|log| length(root, log)).sum();
    let whole = deep || bytes <= WHOLE_BYTES;
    let how = if whole { "read whole" } else { "only their beginnings and ends were read; --deep reads all" };
    report.fact("logs", format!("{}, {}, {how}", logs.len(), size(bytes)));
    let looker = Looker { root, journal: &journal, whole, deep, is_up };
    let found = looker.all(&logs, bytes);
    let copies = copies(logs.iter().zip(found.iter().map(|one| one.says)));
    for (log, original) in &copies {
        let what = match original {
            Some(original) => format!("it has the same id as {original}: the daemon ignores this copy"),
            None => "another log has the same id, and neither says better which session it is: the daemon ignores both"
                .to_owned(),
        };
        let fix = "move the copy out of the root; use `ctx fork` to copy a session";
        report.problem(Finding::new(what).at(log.dir()).fix(fix));
    }
    let (mut kept, mut kept_bytes) = (0, 0);
    for (log, one) in logs.iter().zip(found) {
        // What is wrong in a copy is no reason to repair it.
        if !copies.contains_key(log) {
            one.problems.into_iter().for_each(|finding| report.problem(finding));
        }
        one.notes.into_iter().for_each(|finding| report.note(finding));
        (kept, kept_bytes) = (kept + one.kept.0, kept_bytes + one.kept.1);
    }
    if kept > 0 {
        let what = format!("{kept} files ({}) hold bytes that were cut off or repaired", size(kept_bytes));
        let fix = "check events.jsonl.torn-*, .before-repair-* and .quarantine-*, then delete them if you do not need them";
        report.note(Finding::new(what).fix(fix));
    }
    Ok(Looked { logs: logs.into_iter().collect(), whole })
}

fn length(root: &Root, log: &LogPath) -> u64 {
    std::fs::metadata(root.path.join(log.as_str())).map_or(0, |data| data.size())
}

/// What was found at one log.
#[derive(Default)]
struct Found {
    /// Which session it is, by its first record.
    says: Option<Says>,
    problems: Vec<Finding>,
    notes: Vec<Finding>,
    /// Files that keep old bytes, and their size.
    kept: (u64, u64),
}

struct Looker<'a> {
    root: &'a Root,
    journal: &'a FileJournal,
    whole: bool,
    deep: bool,
    is_up: bool,
}

impl Looker<'_> {
    /// Looks at all logs, in parallel, in their order.
    fn all(&self, logs: &[LogPath], bytes: u64) -> Vec<Found> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let found = Mutex::new(Vec::new());
        let bar = Progress::new("reading logs");
        std::thread::scope(|scope| {
            for _ in 0..threads.min(logs.len()) {
                scope.spawn(|| {
                    while let Some((at, log)) = {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        logs.get(at).map(|log| (at, log))
                    } {
                        let one = self.one(log);
                        lock(&found).push((at, one));
                        let done = done.fetch_add(length(self.root, log), Ordering::Relaxed);
                        bar.show(done, bytes, &format!("{at} of {} logs", logs.len()));
                    }
                });
            }
        });
        bar.clear();
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, one)| one).collect()
    }

    fn one(&self, log: &LogPath) -> Found {
        let mut found = Found::default();
        self.beside(log, &mut found);
        // One that cannot be read is told of below.
        let head = self.journal.head(log).ok().flatten();
        found.says = Says::of(self.root, log, head.as_ref());
        let mut damage = if self.whole { self.read_whole(log) } else { self.read_ends(log) };
        if self.whole {
            damage.extend(blobs::look(self.root, self.journal, log, self.deep));
        }
        let count = damage.len();
        found.problems.extend(damage.into_iter().take(TOLD_MAX));
        if count > TOLD_MAX {
            let what = format!("and {} more places", count - TOLD_MAX);
            found.problems.push(Finding::new(what).at(log.as_str()));
        }
        found
    }

    fn read_whole(&self, log: &LogPath) -> Vec<Finding> {
        let known = Known::new(self.root, log);
        let plan = || known.plan(self.journal, Versions::MayBeNewer);
        let mut planned = plan();
        if self.is_up && planned.as_ref().is_ok_and(|plan| !plan.is_sound()) {
            std::thread::sleep(IN_FLIGHT);
            planned = plan();
        }
        let fix = advice::repair(self.root, log);
        let left = known.left().into_iter().map(|Left { line, why }| {
            Finding::new(why).at(log.as_str()).line(line).fix(advice::unknown_word(log))
        });
        match planned {
            Ok(plan) => plan
                .changes
                .iter()
                .map(|change| {
                    let what = change.why.join("; ");
                    Finding::new(what).at(log.as_str()).line(change.line).fix(fix.clone())
                })
                .chain(left)
                .collect(),
            // It went away while we looked.
            Err(RepairError::Journal(JournalError::NotThere { .. })) => Vec::new(),
            Err(RepairError::Journal(error @ JournalError::Foreign { .. })) => vec![foreign(&error)],
            Err(RepairError::NothingUsable { .. }) => {
                let what = "it has no usable record";
                vec![Finding::new(what).at(log.as_str()).line(1).fix(advice::nothing_usable(log))]
            }
            Err(RepairError::Journal(JournalError::TooNew { line, version, .. })) => {
                let what =
                    format!("it has format version {version}; this ctx knows version {FORMAT_VERSION}");
                vec![Finding::new(what).at(log.as_str()).line(line).fix(advice::newer(log))]
            }
            Err(error) => vec![Finding::new(error.to_string())],
        }
    }

    /// The first line and the last byte: what a crash damages most.
    fn read_ends(&self, log: &LogPath) -> Vec<Finding> {
        let mut found = Vec::new();
        let fix = advice::repair(self.root, log);
        match self.journal.head(log) {
            Ok(entry) => {
                let wrong = Known::new(self.root, log).first(entry.as_ref()).map(|anew| anew.why);
                found.extend(wrong.map(|what| Finding::new(what).at(log.as_str()).line(1).fix(fix.clone())));
            }
            Err(JournalError::NotThere { .. }) => return found,
            Err(error @ JournalError::Foreign { .. }) => return vec![foreign(&error)],
            Err(error) => found.push(Finding::new(error.to_string())),
        }
        let ends_well = || {
            let file = std::fs::File::open(self.root.path.join(log.as_str())).ok()?;
            let mut last = [0u8; 1];
            file.read_exact_at(&mut last, file.metadata().ok()?.len().checked_sub(1)?).ok()?;
            Some(last == *b"\n")
        };
        let mut good = ends_well();
        if good == Some(false) && self.is_up {
            std::thread::sleep(IN_FLIGHT);
            good = ends_well();
        }
        if good == Some(false) {
            found.push(Finding::new("its last line is incomplete").at(log.as_str()).fix(fix));
        }
        found
    }

    /// What a crash or a repair has left in the log's directory.
    fn beside(&self, log: &LogPath, found: &mut Found) {
        let dir = self.root.path.join(log.dir());
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => {
                let what = format!("cannot be read: {error}");
                found.problems.push(Finding::new(what).at(log.dir()));
                return;
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(data) = entry.metadata().ok().filter(std::fs::Metadata::is_file) else { continue };
            let path = format!("{}/{name}", log.dir());
            if [".torn-", ".before-repair-", ".quarantine-"].iter().any(|mark| name.contains(mark)) {
                found.kept = (found.kept.0 + 1, found.kept.1 + data.size());
            } else if is_working(&name) && age(&data) > LEFTOVER_AGE {
                let fix = "it is not needed; you can delete it";
                found.notes.push(Finding::new("left over from an interrupted operation").at(path).fix(fix));
            }
        }
    }
}

/// A log that the daemon does not open. What it says is not looked at.
fn foreign(error: &JournalError) -> Finding {
    let JournalError::Foreign { path, why, .. } = error else { return Finding::new(error.to_string()) };
    let fix = "if it is yours to trust, give it to the daemon's user: `chown` it, `chmod go-w` it, copy it if it has other \
               names, and restart the daemon; otherwise move it out of the root";
    Finding::new(format!("foreign: {why}; the daemon does not open it")).at(path.as_str()).fix(fix)
}

/// Not the spare of a view file, `.meta.json.new`, which the next write swaps with it.
fn is_working(name: &str) -> bool {
    if name.starts_with('.') && name.len() > ".new".len() && name.ends_with(".new") {
        return false;
    }
    let suffix = Path::new(name).extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    name == ".new" || matches!(suffix, "new" | "keeping" | "repairing")
}

fn age(data: &std::fs::Metadata) -> Duration {
    let since = data.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    since.unwrap_or_default()
}
