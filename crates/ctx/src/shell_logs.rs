//! Where shells leave their logs: written by `ctx mcp` and by the daemon through the journal,
//! read by `ctx shells`, `ctx watch` and the daemon's API.
//!
//! A root that is there and ours to write holds them under `.state/shell`; otherwise they are in the user's own
//! state directory, or, where that cannot be written either, in one that does not last. Readers look in all.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ctx_host::{LogError, ShellLog, ShellRecord};
use ctx_journal::{Damage, DamageKind, Entry, FileJournal, Journal, JournalError, LogPath, LogWriter, Owner};
use ctx_session::{Code, Timestamp, Ulid};

use crate::failure::Failure;
use crate::output;
use crate::root::{Root, xdg};
use crate::words;

/// A shell's log, in a directory of its own.
pub const LOG_NAME: &str = "events.jsonl";
/// Where logs are beneath a root, and beneath the user's own state directory.
const IN_ROOT: &str = ".state/shell";
const IN_STATE: &str = "shell";

/// A directory with shell logs beneath it.
pub struct Shelf {
    pub dir: PathBuf,
    /// The part of a log's path before its id.
    prefix: &'static str,
    journal: FileJournal,
}

impl Shelf {
    /// Where a new shell's log goes. The operator is told of a place that does not last: shells work without their
    /// logs, and most who start a server look at no other directory.
    pub fn for_writing(root: &Root) -> Result<Shelf, Failure> {
        let Err(no_root) = writable(&root.path).and_then(|()| holds_no_link(&root.path)) else {
            return Shelf::at(root.path.clone(), true);
        };
        let own = state_dir().ok();
        let no_state = match own.as_deref().map(|dir| private_dir(dir).and_then(|()| writable(dir))) {
            Some(Ok(())) => return Shelf::at(own.unwrap_or_default(), false),
            Some(Err(error)) => error.to_string(),
            None => "neither XDG_STATE_HOME nor HOME is set".to_owned(),
        };
        let state = own.unwrap_or_else(|| PathBuf::from("the state directory"));
        let neither = format!("{} ({no_root}) nor {} ({no_state})", root.path.display(), state.display());
        let dir = passing_dir();
        match private_dir(&dir).and_then(|()| is_private(&dir)) {
            Ok(()) => {
                output::say(format!(
                    "warning: the logs of shells are in {}, a temporary directory: neither {neither} can be written; name a directory with --root",
                    dir.display()
                ));
                Shelf::at(dir, false)
            }
            Err(error) => {
                let message = format!(
                    "no directory for shells: neither {neither} nor {} ({error}) can be written",
                    dir.display()
                );
                Err(Failure::new(Code::Eacces, message)
                    .hint("name a directory of your own with --root or CTX_ROOT"))
            }
        }
    }

    /// The shelf of a root that is ours.
    pub fn in_root(root: &Path) -> Result<Shelf, Failure> {
        Shelf::at(root.to_owned(), true)
    }

    /// Everywhere a shell's log may be.
    pub fn for_reading(root: &Root) -> Result<Vec<Shelf>, Failure> {
        let mut shelves = Vec::new();
        if root.path.join(IN_ROOT).is_dir() {
            shelves.push(Shelf::at(root.path.clone(), true)?);
        }
        for own in own_dirs() {
            if own.join(IN_STATE).is_dir() {
                shelves.push(Shelf::at(own, false)?);
            }
        }
        Ok(shelves)
    }

    /// The directories in which those are or will be, each log in one of its own.
    pub fn places(root: &Root) -> Vec<PathBuf> {
        let own = own_dirs().into_iter().map(|dir| dir.join(IN_STATE));
        std::iter::once(root.path.join(IN_ROOT)).chain(own).collect()
    }

    fn at(dir: PathBuf, in_root: bool) -> Result<Shelf, Failure> {
        let journal = FileJournal::at(&dir).map_err(|error| Failure::io(dir.display(), error))?;
        Ok(Shelf { dir, prefix: if in_root { IN_ROOT } else { IN_STATE }, journal })
    }

    /// The directory that the logs' own is in.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join(Path::new(self.prefix).parent().unwrap_or(Path::new("")))
    }

    /// Where the output of living shells is kept.
    pub fn spool_dir(&self) -> PathBuf {
        self.dir.join(self.prefix).join("output")
    }

    pub fn path_of(&self, log: Ulid) -> Result<LogPath, LogError> {
        LogPath::new(format!("{}/{log}/{LOG_NAME}", self.prefix)).map_err(|error| said(&error))
    }

    /// The logs on this shelf, oldest first: also those that cannot be read, which hide no others.
    pub fn logs(&self) -> Result<Vec<LogPath>, Failure> {
        let dir = self.dir.join(self.prefix);
        let failed = |error| Failure::io(dir.display(), error);
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let id = name.to_str().filter(|name| name.parse::<Ulid>().is_ok());
            let is_there = |id: &&str| match std::fs::symlink_metadata(dir.join(id).join(LOG_NAME)) {
                Err(error) => {
                    !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
                }
                Ok(_) => true,
            };
            ids.extend(id.filter(is_there).map(str::to_owned));
        }
        ids.sort();
        let log = |id: &String| LogPath::new(format!("{}/{id}/{LOG_NAME}", self.prefix)).ok();
        Ok(ids.iter().filter_map(log).collect())
    }

    /// The same where the shelf is one of several: one that is not ours to read is said to be left out.
    pub fn logs_or_tell(&self) -> Result<Vec<LogPath>, Failure> {
        match self.logs() {
            Err(Failure::Said { code: Code::Eacces, message, .. }) => {
                output::say(format_args!("left out, the daemon's own: {message}"));
                Ok(Vec::new())
            }
            logs => logs,
        }
    }

    /// Hands out a log's records from a seq on, and returns the seq after the last. Says which lines are missing.
    pub fn read(&self, log: &LogPath, from: u64, on_record: &mut dyn FnMut(&Entry)) -> Result<u64, Failure> {
        self.told(log, from, on_record).map_err(|error| Failure::new(Code::Eio, error.to_string()))
    }

    /// The same where one log is one of many: one that cannot be read is said to be left out.
    pub fn read_or_tell(&self, log: &LogPath, from: u64, on_record: &mut dyn FnMut(&Entry)) -> Option<u64> {
        let read = self.told(log, from, on_record);
        read.inspect_err(|error| output::say(format!("a shell's log is left out: {error}"))).ok()
    }

    fn told(&self, log: &LogPath, from: u64, on_record: &mut dyn FnMut(&Entry)) -> Result<u64, JournalError> {
        let (next, damage) = self.records(log, from, on_record)?;
        if from == 0 {
            self.tell_damage(log, &damage);
        }
        Ok(next)
    }

    /// The same, without a word.
    pub fn entries(
        &self,
        log: &LogPath,
        from: u64,
        on_record: &mut dyn FnMut(&Entry),
    ) -> Result<u64, JournalError> {
        Ok(self.records(log, from, on_record)?.0)
    }

    fn records(
        &self,
        log: &LogPath,
        from: u64,
        on_record: &mut dyn FnMut(&Entry),
    ) -> Result<(u64, Vec<Damage>), JournalError> {
        let mut next = from;
        let damage = self.journal.read(log, from, &mut |entry| {
            next = entry.seq + 1;
            on_record(&entry);
            ControlFlow::Continue(())
        })?;
        Ok((next, damage))
    }

    /// The first of a log's records that tells what is wanted, and what. None too where it cannot be read.
    pub fn first<T>(&self, log: &LogPath, pick: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        let mut found = None;
        let read = self.journal.read(log, 0, &mut |entry| {
            found = pick(&entry);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.ok().and(found)
    }

    /// Says which lines are missing in what is shown.
    fn tell_damage(&self, log: &LogPath, damage: &[Damage]) {
        let is_lost = |damage: &&Damage| {
            matches!(damage.kind, DamageKind::BadLine { .. } | DamageKind::LongLine { .. })
        };
        for damage in damage.iter().filter(is_lost) {
            let file = self.dir.join(log.as_str());
            output::say(format!("{}: line {} is damaged and left out", file.display(), damage.line));
        }
    }

    /// A log's lines from a seq on, about `bytes` of them, and the seq to go on with.
    pub fn piece(&self, log: Ulid, from: u64, bytes: usize) -> Result<(String, Option<u64>), LogError> {
        let (mut text, mut next) = (String::new(), None);
        let read = self.journal.read(&self.path_of(log)?, from, &mut |entry| {
            if text.len() >= bytes {
                next = Some(entry.seq);
                return ControlFlow::Break(());
            }
            text.push_str(&entry.text);
            text.push('\n');
            ControlFlow::Continue(())
        });
        read.map_err(|error| said(&error))?;
        Ok((text, next))
    }

    /// The user whom the log of a shell is kept for; nobody for a log that is foreign.
    pub fn kept_for(&self, log: &LogPath) -> Option<u32> {
        self.journal.kept_for(log).ok().map(|owner| owner.uid)
    }

    /// Whether a server still writes a log.
    pub fn has_writer(&self, log: &LogPath) -> bool {
        has_writer(&self.dir.join(log.as_str()))
    }

    /// The length of a log's file: whether it has grown is cheap to ask.
    pub fn size(&self, log: &LogPath) -> u64 {
        std::fs::metadata(self.dir.join(log.as_str())).map_or(0, |meta| meta.len())
    }
}

/// Whether a server still writes a log's file. It holds the file's lock from before the log has its name to the
/// shell's end; a server that was killed holds nothing.
pub fn has_writer(file: &Path) -> bool {
    let Ok(file) = std::fs::File::open(file) else { return false };
    matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock))
}

/// The id in a log's path.
pub fn id_of(log: &LogPath) -> &str {
    log.dir().rsplit('/').next().unwrap_or_default()
}

fn state_dir() -> Result<PathBuf, Failure> {
    Ok(xdg("XDG_STATE_HOME", ".local/state")?.join("ctx"))
}

/// Where logs may be besides the root. One that anyone else could have made is none of ours.
fn own_dirs() -> Vec<PathBuf> {
    let passing = Some(passing_dir()).filter(|dir| is_private(dir).is_ok());
    state_dir().ok().into_iter().chain(passing).collect()
}

/// Where there is no other: it is gone when the user logs out, or when the machine starts anew.
fn passing_dir() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = runtime.filter(|dir| dir.is_absolute() && writable(dir).is_ok());
    let name = format!("ctx-{}", rustix::process::getuid().as_raw());
    base.unwrap_or_else(std::env::temp_dir).join(name)
}

fn writable(dir: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

/// The journal follows no links.
fn holds_no_link(root: &Path) -> std::io::Result<()> {
    let is_link = |path: &&Path| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let shelf = root.join(IN_ROOT);
    match shelf.ancestors().take_while(|path| *path != root).find(is_link) {
        Some(link) => Err(std::io::Error::other(format!("{} is a link", link.display()))),
        None => Ok(()),
    }
}

/// Others can write where this one is, and its name is no secret.
fn is_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(dir)?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw() && meta.mode() & 0o077 == 0;
    if ours {
        Ok(())
    } else {
        Err(std::io::Error::other("it exists and is not a private directory of this user"))
    }
}

fn private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Writes the records of one server's shells.
pub struct JournalShellLog {
    shelf: Arc<Shelf>,
    owner: Owner,
    writers: Mutex<HashMap<Ulid, Box<dyn LogWriter>>>,
}

impl JournalShellLog {
    /// Logs of our own user's.
    pub fn new(shelf: Arc<Shelf>) -> Self {
        JournalShellLog::for_owner(shelf, owner())
    }

    /// Makes what was written of a log readable at once.
    pub fn sync(&self, log: Ulid) {
        let writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = writers.get(&log).map(|writer| writer.flush()) {
            tracing::warn!(%error, %log, "a shell's log was not synced");
        }
    }

    /// Logs that belong to another user; only root can make them.
    pub fn for_owner(shelf: Arc<Shelf>, owner: Owner) -> Self {
        JournalShellLog { shelf, owner, writers: Mutex::new(HashMap::new()) }
    }
}

fn said(error: &dyn std::fmt::Display) -> LogError {
    LogError { message: error.to_string() }
}

fn owner() -> Owner {
    Owner::own()
}

impl ShellLog for JournalShellLog {
    fn record(&self, log: Ulid, record: &ShellRecord) -> Result<(), LogError> {
        let body = serde_json::to_string(record).map_err(|error| said(&error))?;
        let now: Timestamp = words::now();
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writers.get(&log) {
            return writer.append_soon(now, &[body]).map(drop).map_err(|error| said(&error));
        }
        let path = self.shelf.path_of(log)?;
        let writer =
            self.shelf.journal.create(&path, self.owner, now, &[body]).map_err(|error| said(&error))?;
        writers.insert(log, writer);
        Ok(())
    }

    fn close(&self, log: Ulid) {
        let writer = self.writers.lock().unwrap_or_else(PoisonError::into_inner).remove(&log);
        if let Some(Err(error)) = writer.map(|writer| writer.flush()) {
            tracing::warn!(%error, %log, "the end of a shell's log was not synced");
        }
    }
}
