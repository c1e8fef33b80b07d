//! The writer of a log: group commit, and what happens when the disk fails.
//!
//! One write and one sync are in flight at a time. Appends that come meanwhile are collected and go out
//! together in the next write, carried by one of the threads that wait. Rules when the disk fails:
//!
//! - No room (also a short write): the file is cut back to where it was and that is synced, so that what was
//!   refused cannot come back; the writer can be used again.
//! - Anything else: the writer is poisoned. Nothing is tried again as if it had worked; the log is taken up
//!   through recovery, which is told from where on the file is in doubt.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ctx_session::Timestamp;

use crate::disk::{Disk, DiskFile, is_no_space};
use crate::error::AppendError;
use crate::format::{self, COMMAND_BYTES_MAX, Times};
use crate::path::LogPath;
use crate::recover::{self, Tail};
use crate::{Committed, LogWriter, soon};

/// A buffer that grew beyond this is given back.
const BUFFER_KEPT_MAX: usize = 64 << 10;

/// Locks a mutex also after a thread has panicked with it. For data that no panic leaves half changed: every change under
/// such a lock is a single step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The logs of one journal that are open, and those that failed.
#[derive(Default)]
pub(crate) struct Registry {
    open: Mutex<HashMap<LogPath, Weak<OpenLog>>>,
    /// Logs whose writer was poisoned: up to where the file is known to be on disk.
    in_doubt: Mutex<HashMap<LogPath, u64>>,
}

impl Registry {
    /// The log, if it is open here.
    pub fn get(&self, log: &LogPath) -> Option<Arc<OpenLog>> {
        lock(&self.open).get(log).and_then(Weak::upgrade)
    }

    pub fn in_doubt_from(&self, log: &LogPath) -> Option<u64> {
        lock(&self.in_doubt).get(log).copied()
    }

    pub fn clear_doubt(&self, log: &LogPath) {
        lock(&self.in_doubt).remove(log);
    }

    pub fn renamed(&self, from: &LogPath, to: &LogPath) {
        let moved = lock(&self.open).remove(from);
        if let Some(moved) = moved {
            if let Some(open) = moved.upgrade() {
                lock(&open.state).log = to.clone();
            }
            lock(&self.open).insert(to.clone(), moved);
        }
        let mut in_doubt = lock(&self.in_doubt);
        if let Some(from) = in_doubt.remove(from) {
            in_doubt.insert(to.clone(), from);
        }
    }
}

/// Where a log stands when it is opened.
pub(crate) struct Start {
    pub next: u64,
    pub len: u64,
    /// A tail that there was no room to keep elsewhere; it must be cut before anything is written.
    pub uncut: Option<Tail>,
}

/// Why a write did not happen.
#[derive(Debug, Clone)]
enum Failure {
    NoSpace,
    Broken(String),
}

/// Commands that go out in one write. Set once, when the write has ended.
#[derive(Default)]
struct Batch {
    outcome: OnceLock<Result<(), Failure>>,
}

struct State {
    log: LogPath,
    /// The seq that the next record gets, counting what is collected.
    next: u64,
    /// The same, counting only what is written.
    next_written: u64,
    /// The length of the file, as far as it holds whole commands.
    len: u64,
    /// Up to where the file is on disk.
    len_synced: u64,
    /// What is collected for the next write.
    collected: Vec<u8>,
    collected_records: u64,
    batch: Arc<Batch>,
    /// Whether someone waits for the next write to be synced.
    wants_sync: bool,
    /// Whether a write or sync is in flight.
    busy: bool,
    uncut: Option<Tail>,
    poisoned: Option<String>,
}

/// A log that is open for appending.
pub(crate) struct OpenLog {
    file: Box<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    /// Something ended, or something was collected.
    changed: Condvar,
    /// How much of the file readers may see.
    visible: AtomicU64,
}

impl OpenLog {
    /// How much of the file readers may see.
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    fn wait<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a command; with `sync`, returns when it is on disk.
    fn commit(
        self: &Arc<Self>,
        expected: Option<u64>,
        times: Times<'_>,
        bodies: &[String],
        sync: bool,
    ) -> Result<Committed, AppendError> {
        let size = format::encoded_len_max(bodies);
        check(bodies, size, || lock(&self.state).log.clone())?;
        let mut state = lock(&self.state);
        // A write has a limit too; whoever comes when it is reached waits for the one after it.
        while !state.collected.is_empty() && state.collected.len() + size > COMMAND_BYTES_MAX {
            state = if state.busy { self.wait(state) } else { self.write_collected(state) };
        }
        if let Some(reason) = &state.poisoned {
            return Err(AppendError::Poisoned { log: state.log.clone(), reason: reason.clone() });
        }
        if let Some(expected) = expected.filter(|expected| *expected != state.next) {
            return Err(AppendError::Conflict { log: state.log.clone(), expected, next: state.next });
        }
        let first = state.next;
        let next = first + bodies.len() as u64;
        format::encode(&mut state.collected, first, times, bodies);
        state.next = next;
        state.collected_records += bodies.len() as u64;
        state.wants_sync |= sync;
        let batch = Arc::clone(&state.batch);
        loop {
            match batch.outcome.get() {
                Some(Ok(())) => return Ok(Committed { first, next }),
                Some(Err(Failure::NoSpace)) => return Err(AppendError::NoSpace { log: state.log.clone() }),
                Some(Err(Failure::Broken(reason))) => {
                    return Err(AppendError::Poisoned { log: state.log.clone(), reason: reason.clone() });
                }
                None if state.busy => state = self.wait(state),
                None => state = self.write_collected(state),
            }
        }
    }

    /// Writes what is collected. The lock is let go meanwhile, so that others can collect the next write.
    fn write_collected<'s>(self: &'s Arc<Self>, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let mut bytes = std::mem::take(&mut state.collected);
        format::mark_batch(&mut bytes, state.collected_records);
        let next = state.next;
        let batch = std::mem::take(&mut state.batch);
        let sync = std::mem::take(&mut state.wants_sync);
        let (len, log, uncut) = (state.len, state.log.clone(), state.uncut.take());
        state.collected_records = 0;
        state.busy = true;
        drop(state);

        let mut uncut = uncut;
        let result = self.write(&log, &bytes, len, sync, &mut uncut);

        let mut state = lock(&self.state);
        state.busy = false;
        state.uncut = uncut;
        match &result {
            Ok(()) => {
                state.len = len + bytes.len() as u64;
                state.next_written = next;
                if sync {
                    state.len_synced = state.len;
                } else {
                    soon::sync_later(self);
                }
                self.visible.store(state.len, Ordering::Release);
            }
            Err(failure) => self.fail_collected(&mut state, failure),
        }
        // Nobody else sets the outcome of this batch.
        let _ = batch.outcome.set(result);
        bytes.clear();
        if state.collected.capacity() == 0 && bytes.capacity() <= BUFFER_KEPT_MAX {
            state.collected = bytes;
        }
        self.changed.notify_all();
        state
    }

    /// What was collected meanwhile counted on the seqs of the write that failed, and fails with it.
    fn fail_collected(&self, state: &mut State, failure: &Failure) {
        state.next = state.next_written;
        if let Failure::Broken(reason) = failure {
            state.poisoned = Some(reason.clone());
        }
        state.collected.clear();
        state.collected_records = 0;
        state.wants_sync = false;
        let waiting = std::mem::take(&mut state.batch);
        let _ = waiting.outcome.set(Err(failure.clone()));
    }

    fn write(
        &self,
        log: &LogPath,
        bytes: &[u8],
        len: u64,
        sync: bool,
        uncut: &mut Option<Tail>,
    ) -> Result<(), Failure> {
        let broken = |action: &str, error: &io::Error| Failure::Broken(format!("{action} failed: {error}"));
        if let Some(tail) = uncut {
            match recover::cut(&*self.disk, &*self.file, log, tail) {
                Ok(_) => *uncut = None,
                Err(error) if is_no_space(&error) => return Err(Failure::NoSpace),
                Err(error) => return Err(broken("cutting off a torn tail", &error)),
            }
        }
        self.check_undisturbed(len)?;
        match self.file.write_at(bytes, len) {
            Ok(written) if written == bytes.len() => (),
            Ok(_) => return Err(self.cut_back(len)),
            Err(error) if is_no_space(&error) => return Err(self.cut_back(len)),
            Err(error) => return Err(broken("a write", &error)),
        }
        if sync { self.file.sync().map_err(|error| broken("a sync", &error)) } else { Ok(()) }
    }

    /// An editor or a restore may have put another file in this one's place, or changed its length: what is written
    /// then would be lost.
    fn check_undisturbed(&self, len: u64) -> Result<(), Failure> {
        let looked = self.file.is_linked().and_then(|linked| Ok((linked, self.file.len()?)));
        match looked {
            Ok((true, found)) if found == len => Ok(()),
            Ok((true, found)) => {
                let reason =
                    format!("someone else changed the file: {len} bytes were left, {found} are there");
                Err(Failure::Broken(reason))
            }
            Ok((false, _)) => Err(Failure::Broken("someone else replaced or removed the file".to_owned())),
            Err(error) => Err(Failure::Broken(format!("looking at the file failed: {error}"))),
        }
    }

    /// Takes back a write that found no room.
    fn cut_back(&self, len: u64) -> Failure {
        if let Err(error) = self.file.truncate(len) {
            return Failure::Broken(format!("there was no room, and cutting back failed: {error}"));
        }
        // Without this a crash could bring back, whole, a command that was refused.
        match self.file.sync() {
            Ok(()) => Failure::NoSpace,
            Err(error) => Failure::Broken(format!("there was no room, and a sync failed: {error}")),
        }
    }

    /// Syncs what was written without a sync.
    pub fn sync_written(&self) -> Result<(), AppendError> {
        let mut state = lock(&self.state);
        while state.busy {
            state = self.wait(state);
        }
        if let Some(reason) = &state.poisoned {
            return Err(AppendError::Poisoned { log: state.log.clone(), reason: reason.clone() });
        }
        if state.len == state.len_synced {
            return Ok(());
        }
        state.busy = true;
        drop(state);
        let result = self.file.sync();
        let mut state = lock(&self.state);
        state.busy = false;
        let answer = match result {
            Ok(()) => {
                state.len_synced = state.len;
                Ok(())
            }
            Err(error) => {
                let reason = format!("a sync failed: {error}");
                self.fail_collected(&mut state, &Failure::Broken(reason.clone()));
                Err(AppendError::Poisoned { log: state.log.clone(), reason })
            }
        };
        self.changed.notify_all();
        answer
    }
}

/// Refuses what could not be read back, before anything is written.
pub(crate) fn check(bodies: &[String], size: usize, log: impl Fn() -> LogPath) -> Result<(), AppendError> {
    if bodies.is_empty() {
        let reason = "the command has no records".to_owned();
        return Err(AppendError::BadBody { log: log(), index: 0, reason });
    }
    if size > COMMAND_BYTES_MAX {
        return Err(AppendError::TooLarge { log: log(), bytes: size, max: COMMAND_BYTES_MAX });
    }
    for (index, body) in bodies.iter().enumerate() {
        format::check_body(body).map_err(|reason| AppendError::BadBody { log: log(), index, reason })?;
    }
    Ok(())
}

/// The handle that appends; dropping it syncs what is not synced, and gives the log back.
pub(crate) struct FileWriter {
    open: Arc<OpenLog>,
    registry: Arc<Registry>,
}

impl FileWriter {
    pub fn new(
        log: &LogPath,
        file: Box<dyn DiskFile>,
        disk: Arc<dyn Disk>,
        registry: Arc<Registry>,
        start: Start,
    ) -> Self {
        let state = State {
            log: log.clone(),
            next: start.next,
            next_written: start.next,
            len: start.len,
            len_synced: start.len,
            collected: Vec::new(),
            collected_records: 0,
            batch: Arc::default(),
            wants_sync: false,
            busy: false,
            uncut: start.uncut,
            poisoned: None,
        };
        let visible = AtomicU64::new(start.len);
        let open =
            Arc::new(OpenLog { file, disk, state: Mutex::new(state), changed: Condvar::new(), visible });
        lock(&registry.open).insert(log.clone(), Arc::downgrade(&open));
        FileWriter { open, registry }
    }
}

impl LogWriter for FileWriter {
    fn append(&self, expected: u64, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError> {
        self.open.commit(Some(expected), Times::One(time), bodies, true)
    }

    fn append_dated(
        &self,
        expected: u64,
        times: &[Timestamp],
        bodies: &[String],
    ) -> Result<Committed, AppendError> {
        self.open.commit(Some(expected), Times::Each(times), bodies, true)
    }

    fn append_next(&self, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError> {
        self.open.commit(None, Times::One(time), bodies, true)
    }

    fn append_soon(&self, time: Timestamp, bodies: &[String]) -> Result<Committed, AppendError> {
        self.open.commit(None, Times::One(time), bodies, false)
    }

    fn flush(&self) -> Result<(), AppendError> {
        self.open.sync_written()
    }

    fn next_seq(&self) -> u64 {
        lock(&self.open.state).next
    }

    fn end(&self) -> u64 {
        lock(&self.open.state).len
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // A failure poisons the log, which is noted below.
        let _ = self.open.sync_written();
        let state = lock(&self.open.state);
        if state.poisoned.is_some() {
            lock(&self.registry.in_doubt).insert(state.log.clone(), state.len_synced);
        }
        lock(&self.registry.open).remove(&state.log);
        drop(state);
        // The background thread may hold the file a moment longer; the lock goes now.
        self.open.file.unlock();
    }
}
