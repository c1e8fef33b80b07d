//! The journal over a [`Disk`]: a file per log.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ctx_session::Timestamp;

use crate::blob::{self, BlobRef};
use crate::damage::Damage;
use crate::disk::{Disk, DiskFile, OpenMode, Replace, write_full};
use crate::error::{AppendError, JournalError};
use crate::fork::{Fork, ForkEnds};
use crate::format::{self, LOG_BYTES_MAX};
use crate::lines::{LineForm, LineReader, count_lines};
use crate::memory::MemoryDisk;
use crate::path::{EVENTS, LogPath, Owner, join, parent_of};
use crate::real::RealDisk;
use crate::recover::{self, io_error};
use crate::scan::Scanner;
use crate::writer::{self, FileWriter, Registry, Start, lock};
use crate::{Entry, Journal, LogWriter, OnEnd, Opened, seek};

/// How often a log is opened again that was replaced just then.
const LOCK_TRIES: u32 = 8;

/// Logs as files.
pub struct FileJournal {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) registry: Arc<Registry>,
    /// Directories whose own entry is known to be on disk.
    durable_dirs: Mutex<HashSet<String>>,
    blobs_made: AtomicU64,
    /// Tells directories that are made beside the tree from each other.
    pub(crate) dirs_made: AtomicU64,
}

impl FileJournal {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        FileJournal {
            disk,
            registry: Arc::default(),
            durable_dirs: Mutex::default(),
            blobs_made: AtomicU64::new(0),
            dirs_made: AtomicU64::new(0),
        }
    }

    /// A journal on the real disk, beneath an existing directory.
    pub fn at(root: &Path) -> io::Result<Self> {
        Ok(FileJournal::new(Arc::new(RealDisk::new(root)?)))
    }

    /// A journal in memory, for what need not outlive the process: temp sessions.
    pub fn in_memory() -> Self {
        FileJournal::new(Arc::new(MemoryDisk::default()))
    }

    /// Makes a directory and those above it, and makes them durable.
    pub(crate) fn make_dirs(&self, dir: &str, owner: Owner) -> io::Result<()> {
        for path in with_parents(dir) {
            if self.disk.make_dir(path, owner)? {
                lock(&self.durable_dirs).remove(path);
            }
        }
        self.sync_dirs(dir)
    }

    /// The same for a directory that many logs lie in: that it is durable is remembered.
    pub(crate) fn make_shared_dirs(&self, dir: &str, owner: Owner) -> io::Result<()> {
        let mut made = false;
        for path in with_parents(dir) {
            made |= self.disk.make_dir(path, owner)?;
        }
        if !made && lock(&self.durable_dirs).contains(dir) {
            return Ok(());
        }
        lock(&self.durable_dirs).retain(|known| !with_parents(dir).any(|path| path == known));
        self.sync_dirs(dir)?;
        lock(&self.durable_dirs).insert(dir.to_owned());
        Ok(())
    }

    /// Makes the names of a directory and of those above it durable. Also those that we did not make: whoever did
    /// may have died before that.
    fn sync_dirs(&self, dir: &str) -> io::Result<()> {
        for path in with_parents(dir) {
            if lock(&self.durable_dirs).contains(path) {
                continue;
            }
            self.disk.sync_dir(parent_of(path))?;
            // A log's own directory is one of many, and is asked for seldom.
            if path != dir {
                lock(&self.durable_dirs).insert(path.to_owned());
            }
        }
        Ok(())
    }

    /// Every log is opened here, and one that is not the daemon's alone is not.
    pub(crate) fn open_file(&self, log: &LogPath, mode: OpenMode) -> Result<Box<dyn DiskFile>, JournalError> {
        let file = self.disk.open(log.as_str(), mode).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => JournalError::NotThere { log: log.clone() },
            _ => io_error(log, "open", error),
        })?;
        // Asked of what is open: nobody can put something else in its place meanwhile.
        match self.disk.foreign(log.as_str(), &*file).map_err(|error| io_error(log, "look at", error))? {
            None => Ok(file),
            Some((path, why)) => Err(JournalError::Foreign { log: log.clone(), path, why }),
        }
    }

    /// Whom a log is kept for.
    pub fn kept_for(&self, log: &LogPath) -> Result<Owner, JournalError> {
        let owner = self.open_file(log, OpenMode::Read)?.owner();
        owner.map_err(|error| io_error(log, "read the owner of", error))
    }

    /// The length of a log that was opened, unless no log can be that long.
    fn len_of(&self, file: &dyn DiskFile, log: &LogPath) -> Result<u64, JournalError> {
        let len = file.len().map_err(|error| io_error(log, "read its length", error))?;
        if len > LOG_BYTES_MAX {
            return Err(JournalError::TooLarge { log: log.clone(), bytes: len });
        }
        Ok(len)
    }

    /// Opens a log and takes its lock. A repair may put another file in its place in between: then that one.
    pub(crate) fn open_locked(&self, log: &LogPath) -> Result<Box<dyn DiskFile>, JournalError> {
        let io = |error| io_error(log, "lock", error);
        for _ in 0..LOCK_TRIES {
            let file = self.open_file(log, OpenMode::Write)?;
            self.len_of(&*file, log)?;
            if !file.try_lock().map_err(io)? {
                break;
            }
            if self.open_file(log, OpenMode::Read)?.id().map_err(io)? == file.id().map_err(io)? {
                return Ok(file);
            }
        }
        Err(JournalError::Locked { log: log.clone() })
    }

    /// Opens a log to read, and says how much of it may be seen.
    pub(crate) fn open_to_read(&self, log: &LogPath) -> Result<(Box<dyn DiskFile>, u64), JournalError> {
        let file = self.open_file(log, OpenMode::Read)?;
        let len = self.len_of(&*file, log)?;
        let limit = match self.registry.get(log) {
            Some(open) => Some(open.visible()),
            None => self.registry.in_doubt_from(log),
        };
        Ok((file, limit.unwrap_or(u64::MAX).min(len)))
    }

    /// Writes a log's first command into a working file, syncs it and gives it its name.
    fn make_file(
        &self,
        log: &LogPath,
        owner: Owner,
        bytes: &[u8],
    ) -> Result<Box<dyn DiskFile>, JournalError> {
        let io = |action| move |error| io_error(log, action, error);
        let there = || JournalError::AlreadyThere { log: log.clone() };
        let working = format!("{log}.new");
        let file = self.disk.open(&working, OpenMode::Create(owner)).map_err(io("create"))?;
        // Whoever has the lock makes the log, and may have done so already.
        if !file.try_lock().map_err(io("lock"))? || self.exists(log)? {
            return Err(there());
        }
        let made = file
            .truncate(0)
            .and_then(|()| write_full(&*file, bytes, 0))
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.rename(&working, log.as_str(), Replace::No));
        match made {
            Ok(()) => (),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(there()),
            Err(error) => {
                let _ = self.disk.remove_file(&working);
                return Err(io_error(log, "create", error));
            }
        }
        if let Err(error) = self.disk.sync_dir(log.dir()) {
            let _ = self.disk.remove_file(log.as_str());
            return Err(io_error(log, "sync the directory of", error));
        }
        Ok(file)
    }

    pub(crate) fn exists(&self, log: &LogPath) -> Result<bool, JournalError> {
        match self.disk.open(log.as_str(), OpenMode::Read) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error(log, "open", error)),
        }
    }

    pub(crate) fn remove_tree(&self, dir: &str) -> io::Result<()> {
        self.remove_in(dir)?;
        self.disk.remove_dir(dir)
    }

    /// Removes everything in a directory.
    pub(crate) fn remove_in(&self, dir: &str) -> io::Result<()> {
        for entry in self.disk.list(dir)? {
            let path = join(dir, &entry.name);
            if entry.is_dir { self.remove_tree(&path)? } else { self.disk.remove_file(&path)? }
        }
        Ok(())
    }
}

/// The directories on the way to one, from the top, and itself.
fn with_parents(dir: &str) -> impl Iterator<Item = &str> {
    let ends = dir.match_indices('/').map(|(at, _)| at).chain([dir.len()]);
    ends.filter_map(|end| dir.get(..end)).filter(|path| !path.is_empty())
}

pub(crate) fn scan_from(
    file: &dyn DiskFile,
    log: &LogPath,
    limit: u64,
    from: u64,
    on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>,
) -> io::Result<Vec<Damage>> {
    let mut sink = |entry: Entry| {
        if entry.seq < from {
            return ControlFlow::Continue(());
        }
        on_entry(entry)
    };
    let offset = seek::offset_before(file, limit, from)?;
    let mut lines = LineReader::new(file, offset, limit, (offset == 0).then_some(0));
    let mut scanner = if offset == 0 { Scanner::from_start(log) } else { Scanner::from_middle(log, offset) };
    let mut damage = loop {
        match lines.next_line()? {
            Some(line) if scanner.line(line, &mut sink).is_break() => break scanner.into_damage(),
            Some(_) => (),
            None => break scanner.finish(&mut sink).damage,
        }
    };
    for damage in damage.iter_mut().filter(|damage| damage.line == 0) {
        damage.line = count_lines(file, damage.offset)? + 1;
    }
    Ok(damage)
}

fn first_record(file: &dyn DiskFile, limit: u64) -> io::Result<Option<Entry>> {
    let mut lines = LineReader::first(file, limit);
    let Some(line) = lines.next_line()?.filter(|line| line.form == LineForm::Whole) else { return Ok(None) };
    Ok(format::parse(line.bytes).ok().map(|(envelope, time, text)| Entry {
        seq: envelope.seq,
        time,
        kind: envelope.kind.to_string(),
        more: envelope.more,
        line: 1,
        offset: 0,
        text: text.to_owned(),
    }))
}

impl FileJournal {
    /// The directories that a path with `*` for whole names stands for.
    fn expand(&self, under: &str) -> Result<Vec<String>, JournalError> {
        let Some((before, after)) = split_at_star(under) else { return Ok(vec![under.to_owned()]) };
        let entries = match self.disk.list(before) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JournalError::Io { path: before.to_owned(), action: "list", error }),
        };
        let mut dirs = Vec::new();
        for entry in entries.iter().filter(|entry| entry.is_dir) {
            let dir = join(before, &entry.name);
            let dir = if after.is_empty() { dir } else { format!("{dir}/{after}") };
            dirs.extend(self.expand(&dir)?);
        }
        Ok(dirs)
    }
}

/// What stands before and behind the first `*`.
fn split_at_star(path: &str) -> Option<(&str, &str)> {
    if let Some(after) = path.strip_prefix("*/") {
        return Some(("", after));
    }
    match path.split_once("/*/") {
        Some(parts) => Some(parts),
        None => path.strip_suffix("/*").map(|before| (before, "")),
    }
}

impl Journal for FileJournal {
    fn create(
        &self,
        log: &LogPath,
        owner: Owner,
        time: Timestamp,
        bodies: &[String],
    ) -> Result<Box<dyn LogWriter>, JournalError> {
        let size = format::encoded_len_max(bodies);
        writer::check(bodies, size, || log.clone()).map_err(|error| match error {
            AppendError::BadBody { log, index, reason } => JournalError::BadBody { log, index, reason },
            other => JournalError::BadBody { log: log.clone(), index: 0, reason: other.to_string() },
        })?;
        self.make_dirs(log.dir(), owner).map_err(|error| io_error(log, "make the directory of", error))?;
        if self.exists(log)? {
            return Err(JournalError::AlreadyThere { log: log.clone() });
        }
        let mut bytes = Vec::with_capacity(size);
        format::encode(&mut bytes, 0, format::Times::One(time), bodies);
        format::mark_batch(&mut bytes, bodies.len() as u64);
        let file = self.make_file(log, owner, &bytes)?;
        self.registry.clear_doubt(log);
        let start = Start { next: bodies.len() as u64, len: bytes.len() as u64, uncut: None };
        let (disk, registry) = (Arc::clone(&self.disk), Arc::clone(&self.registry));
        Ok(Box::new(FileWriter::new(log, file, disk, registry, start)))
    }

    fn open_from(
        &self,
        log: &LogPath,
        now: Timestamp,
        from: u64,
        on_entry: &mut dyn FnMut(Entry),
    ) -> Result<Opened, JournalError> {
        let file = self.open_locked(log)?;
        // Its name as well as its contents may be there and not be durable.
        let named = self.sync_dirs(log.dir()).and_then(|()| self.disk.sync_dir(log.dir()));
        named.map_err(|error| io_error(log, "sync the directory of", error))?;
        let in_doubt_from = self.registry.in_doubt_from(log);
        let wish = recover::Wish { from, in_doubt_from, now };
        let recovered = recover::recover(&*self.disk, &*file, log, wish, on_entry)?;
        self.registry.clear_doubt(log);
        let (disk, registry) = (Arc::clone(&self.disk), Arc::clone(&self.registry));
        let writer = Box::new(FileWriter::new(log, file, disk, registry, recovered.start));
        Ok(Opened { writer, damage: recovered.damage })
    }

    fn read(
        &self,
        log: &LogPath,
        from: u64,
        on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Vec<Damage>, JournalError> {
        let (file, limit) = self.open_to_read(log)?;
        scan_from(&*file, log, limit, from, on_entry).map_err(|error| io_error(log, "read", error))
    }

    fn head(&self, log: &LogPath) -> Result<Option<Entry>, JournalError> {
        let (file, limit) = self.open_to_read(log)?;
        first_record(&*file, limit).map_err(|error| io_error(log, "read", error))
    }

    fn ends(&self, log: &LogPath, on_end: OnEnd<'_>) -> Result<Option<Entry>, JournalError> {
        let (file, limit) = self.open_to_read(log)?;
        let mut read = || {
            let first = first_record(&*file, limit)?;
            seek::read_back(&*file, limit, &mut |entry| on_end(first.as_ref(), entry))?;
            Ok(first)
        };
        read().map_err(|error| io_error(log, "read", error))
    }

    fn read_back(
        &self,
        log: &LogPath,
        on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let (file, limit) = self.open_to_read(log)?;
        seek::read_back(&*file, limit, on_entry).map_err(|error| io_error(log, "read", error))
    }

    fn rename(&self, from: &LogPath, to: &LogPath) -> Result<(), JournalError> {
        if !from.owns_dir() || !to.owns_dir() {
            let error = io::Error::other("only a log with a directory of its own can be renamed");
            return Err(io_error(from, "rename", error));
        }
        let (from_parent, to_parent) = (parent_of(from.dir()), parent_of(to.dir()));
        match self.kept_for(from) {
            Ok(owner) => self
                .make_dirs(to_parent, owner)
                .map_err(|error| io_error(to, "make the directory of", error))?,
            // What is left beside a log that is gone or unreadable is not less worth keeping.
            Err(error) if from_parent == to_parent && error.is_lasting() => {}
            Err(error) => return Err(error),
        }
        self.disk.rename(from.dir(), to.dir(), Replace::No).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => JournalError::AlreadyThere { log: to.clone() },
            io::ErrorKind::NotFound => JournalError::NotThere { log: from.clone() },
            _ => io_error(from, "rename", error),
        })?;
        self.registry.renamed(from, to);
        self.disk.sync_dir(to_parent).map_err(|error| io_error(to, "sync the directory of", error))?;
        if from_parent != to_parent {
            self.disk
                .sync_dir(from_parent)
                .map_err(|error| io_error(from, "sync the directory of", error))?;
        }
        Ok(())
    }

    fn remove(&self, log: &LogPath) -> Result<(), JournalError> {
        if log.owns_dir() {
            return self.remove_dir_of(log);
        }
        self.disk.remove_file(log.as_str()).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => JournalError::NotThere { log: log.clone() },
            _ => io_error(log, "remove", error),
        })?;
        self.disk.sync_dir(log.dir()).map_err(|error| io_error(log, "sync the directory of", error))?;
        self.registry.clear_doubt(log);
        Ok(())
    }

    fn fork(&self, fork: &Fork<'_>, ends: &dyn Fn(u64) -> ForkEnds) -> Result<u64, JournalError> {
        self.fork_log(fork, ends)
    }

    fn sweep(&self) -> Result<(), JournalError> {
        self.sweep_working_dirs()
    }

    fn move_to_trash(&self, log: &LogPath, notice: &str) -> Result<(), JournalError> {
        self.trash_dir_of(log, notice)
    }

    fn empty_trash(&self, tell: &mut dyn FnMut(&str) -> bool) -> Result<(), JournalError> {
        self.clear_trash(tell)
    }

    fn list(&self, under: &str) -> Result<Vec<LogPath>, JournalError> {
        let mut logs = Vec::new();
        let mut dirs = self.expand(under)?;
        while let Some(dir) = dirs.pop() {
            let entries = match self.disk.list(&dir) {
                Ok(entries) => entries,
                // It went away while we looked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // Of a directory in which a user keeps what they like; it hides no other.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
                Err(error) => return Err(JournalError::Io { path: dir, action: "list", error }),
            };
            // A log's directory holds no further logs.
            if entries.iter().any(|entry| !entry.is_dir && entry.name == EVENTS) {
                logs.extend(LogPath::new(join(&dir, EVENTS)));
                continue;
            }
            for entry in entries.iter().filter(|entry| entry.is_dir) {
                let below = join(&dir, &entry.name);
                let log = join(&below, EVENTS);
                // Most directories have a log: asking for it is cheaper than listing what is beside it.
                match self.disk.open(&log, OpenMode::Read) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => dirs.push(below),
                    // One that cannot be opened is one all the same, and whoever reads it says why.
                    Ok(_) | Err(_) => logs.extend(LogPath::new(log)),
                }
            }
        }
        Ok(logs)
    }

    fn is_foreign(&self, log: &LogPath) -> bool {
        matches!(self.open_file(log, OpenMode::Read), Err(JournalError::Foreign { .. }))
    }

    fn put_blob(&self, log: &LogPath, bytes: &[u8]) -> Result<BlobRef, JournalError> {
        let owner = self.kept_for(log)?;
        let unique = self.blobs_made.fetch_add(1, Ordering::Relaxed);
        blob::put(&*self.disk, log, owner, bytes, unique)
    }

    fn get_blob(&self, log: &LogPath, sha256: &str) -> Result<Vec<u8>, JournalError> {
        blob::get(&*self.disk, log, sha256)
    }
}
