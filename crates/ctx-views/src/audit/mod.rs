//! The audit log: who did what, in an append-only log of its own beside the sessions' logs.
//!
//! It tells of records and is written after them, within 200 ms, by one thread. What a crash left out is found
//! when the log is opened: it says for each session how far it has told of it, and what a session's log has
//! beyond that is appended. Purging a session leaves its lines.

mod control;
mod map;
mod read;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ctx_journal::{Entry, Journal, JournalError, LogPath, LogWriter, Owner};
use ctx_session::{Body, Record, Session, SessionId, Timestamp};
use serde::Deserialize;

use crate::db::SessionLogs;
use crate::files::record_of;
pub use map::{AuditEvent, EventName, events};
pub use read::{AuditLine, AuditQuery, AuditReader};

/// The kind of an audit line; the first line of the log is of another kind.
const KIND: &str = "audit";
const OPENED: &str = r#"{"type":"audit_opened"}"#;
/// Commits that may wait to be told of; more are read from their logs later.
const WAITING_MAX: usize = 4096;
/// How soon what could not be told is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Where the audit log is, and what it watches over.
#[derive(Clone)]
pub struct AuditOptions {
    /// `.state/audit.jsonl`.
    pub log: LogPath,
    /// The daemon.
    pub owner: Owner,
    pub now: Timestamp,
    pub session_logs: SessionLogs,
}

/// The audit log, open in the daemon that writes it.
pub struct Audit {
    to_writer: Mutex<Option<SyncSender<Work>>>,
    behind: Arc<Behind>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

enum Work {
    Commit {
        log: LogPath,
        through: u64,
        time: Timestamp,
        events: Vec<AuditEvent>,
    },
    /// Tells when everything before it is on disk.
    Flush(SyncSender<()>),
    /// Tells when nothing is behind that can be told.
    Settle(SyncSender<()>),
}

/// Session logs of which not everything has been told, and what stands in the way.
#[derive(Default)]
struct Behind {
    logs: Mutex<HashSet<LogPath>>,
    error: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Audit {
    /// Starts the writer. It opens the log, makes it if there is none, and tells what a crash left out, all
    /// behind the caller's back.
    pub fn start(journal: Arc<dyn Journal>, options: AuditOptions) -> std::io::Result<Audit> {
        let (to_writer, work) = sync_channel(WAITING_MAX);
        let behind = Arc::new(Behind::default());
        let of_thread = Arc::clone(&behind);
        let writer = std::thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || Writer::new(journal, options, of_thread).run(&work))?;
        Ok(Audit { to_writer: Mutex::new(Some(to_writer)), behind, writer: Mutex::new(Some(writer)) })
    }

    /// Tells of a commit, after it. `session` has its records applied. Never waits.
    pub fn committed(&self, log: &LogPath, session: &Session, commit: &[Record]) {
        let Some(last) = commit.last() else { return };
        let events = events(session, commit);
        if events.is_empty() {
            return;
        }
        let work = Work::Commit { log: log.clone(), through: last.seq, time: last.time, events };
        let to_writer = lock(&self.to_writer);
        match to_writer.as_ref().map(|to_writer| to_writer.try_send(work)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                lock(&self.behind.logs).insert(log.clone());
            }
        }
    }

    /// Waits until everything that was handed over is on disk or has failed.
    pub fn flush(&self) {
        self.wait_for(Work::Flush);
    }

    /// Waits until what a crash left out is told too, or has failed.
    pub fn settle(&self) {
        self.wait_for(Work::Settle);
        self.flush();
    }

    fn wait_for(&self, work: impl FnOnce(SyncSender<()>) -> Work) {
        let (done, answered) = sync_channel(1);
        let to_writer = lock(&self.to_writer).clone();
        if let Some(Ok(())) = to_writer.map(|to_writer| to_writer.send(work(done))) {
            // Fails when the writer is gone: then there is nothing to wait for.
            let _ = answered.recv();
        }
    }

    /// What went wrong last, if anything did.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.behind.error).clone()
    }

    /// Writes what waits and stops. What is behind is told at the next start.
    pub fn close(&self) {
        lock(&self.to_writer).take();
        if let Some(writer) = lock(&self.writer).take() {
            // A writer that panicked has nothing more to write.
            let _ = writer.join();
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's own.
struct Writer {
    journal: Arc<dyn Journal>,
    options: AuditOptions,
    behind: Arc<Behind>,
    /// None until it could be opened, and after a failure.
    writer: Option<Box<dyn LogWriter>>,
    /// The last record of each session that has been told of.
    told: HashMap<SessionId, u64>,
    /// Logs to be read for what has not been told.
    queue: VecDeque<LogPath>,
    /// Those that could not be; they go back into the queue after a while.
    failed: Vec<LogPath>,
    /// Both.
    pending: HashSet<LogPath>,
    settling: Vec<SyncSender<()>>,
}

impl Writer {
    fn new(journal: Arc<dyn Journal>, options: AuditOptions, behind: Arc<Behind>) -> Writer {
        Writer {
            journal,
            options,
            behind,
            writer: None,
            told: HashMap::new(),
            queue: VecDeque::new(),
            failed: Vec::new(),
            pending: HashSet::new(),
            settling: Vec::new(),
        }
    }

    /// Tells of commits as they come, and of what is behind in between.
    fn run(mut self, work: &Receiver<Work>) {
        match (self.options.session_logs)() {
            Ok(logs) => logs.into_iter().for_each(|log| self.queue_up(log)),
            Err(error) => self.note(&error),
        }
        if let Err(error) = self.open() {
            self.note(&error);
        }
        loop {
            let dropped = std::mem::take(&mut *lock(&self.behind.logs));
            dropped.into_iter().for_each(|log| self.queue_up(log));
            let wait = match (self.queue.is_empty(), self.failed.is_empty()) {
                (false, _) => Duration::ZERO,
                (true, false) => RETRY,
                // Also what was dropped while the desk was full is seen then.
                (true, true) => RETRY * 60,
            };
            if self.queue.is_empty() {
                for done in self.settling.drain(..) {
                    let _ = done.try_send(());
                }
            }
            match work.recv_timeout(wait) {
                Ok(Work::Commit { log, through, time, events }) => self.commit(log, through, time, &events),
                Ok(Work::Flush(done)) => {
                    self.flush();
                    // Who asked may have stopped waiting.
                    let _ = done.try_send(());
                }
                Ok(Work::Settle(done)) => self.settling.push(done),
                Err(RecvTimeoutError::Timeout) => self.catch_up(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush();
    }

    fn queue_up(&mut self, log: LogPath) {
        if self.pending.insert(log.clone()) {
            self.queue.push_back(log);
        }
    }

    fn note(&self, error: &dyn std::fmt::Display) {
        *lock(&self.behind.error) = Some(error.to_string());
    }

    fn flush(&mut self) {
        if let Some(Err(error)) = self.writer.as_ref().map(|writer| writer.flush()) {
            self.note(&error);
            self.writer = None;
        }
    }

    /// Takes the log up, reading how far each session has been told of; makes it when there is none.
    fn open(&mut self) -> Result<(), JournalError> {
        if self.writer.is_some() {
            return Ok(());
        }
        let AuditOptions { log, owner, now, .. } = &self.options;
        let mut told = HashMap::new();
        let opened = self.journal.open(log, *now, &mut |entry| {
            if let Some((session, seq)) = told_by(&entry) {
                let last = told.entry(session).or_insert(seq);
                *last = seq.max(*last);
            }
        });
        self.writer = Some(match opened {
            Ok(opened) => opened.writer,
            Err(JournalError::NotThere { .. }) => {
                self.journal.create(log, *owner, *now, &[OPENED.to_owned()])?
            }
            Err(error) => return Err(error),
        });
        self.told = told;
        Ok(())
    }

    fn commit(&mut self, log: LogPath, through: u64, time: Timestamp, events: &[AuditEvent]) {
        // Where an earlier commit of the session waits, the log has this one too.
        if self.pending.contains(&log) || self.writer.is_none() || !self.append(events, through, time) {
            self.queue_up(log);
        }
    }

    /// Appends the events of a commit that have not been told of. False when that failed.
    fn append(&mut self, events: &[AuditEvent], through: u64, time: Timestamp) -> bool {
        let Some(session) = events.first().map(|event| event.session) else { return true };
        let told = self.told.get(&session).copied();
        let new = events.iter().filter(|event| told.is_none_or(|told| event.session_seq > told));
        let lines: Vec<String> = new.map(to_line).collect();
        let appended = match &self.writer {
            _ if lines.is_empty() => Ok(()),
            Some(writer) => writer.append_soon(time, &lines).map(drop).map_err(|error| error.to_string()),
            None => Err("the audit log is not open".to_owned()),
        };
        match appended {
            Ok(()) => {
                let last = self.told.entry(session).or_insert(through);
                *last = through.max(*last);
                true
            }
            Err(error) => {
                self.note(&error);
                self.writer = None;
                false
            }
        }
    }

    /// Tells what is missing of one session; when none is left to try, tries those again that failed.
    fn catch_up(&mut self) {
        let Some(log) = self.queue.pop_front() else {
            self.queue.extend(self.failed.drain(..));
            return;
        };
        match self.open().and_then(|()| self.catch_up_one(&log)) {
            Ok(true) | Err(JournalError::NotThere { .. }) => {
                self.pending.remove(&log);
            }
            Ok(false) => self.failed.push(log),
            Err(error) => {
                self.note(&error);
                self.failed.push(log);
            }
        }
    }

    /// Reads a session's log as far as needed, and tells what has not been told. False when that failed.
    fn catch_up_one(&mut self, log: &LogPath) -> Result<bool, JournalError> {
        if !self.has_more(log)? {
            return Ok(true);
        }
        let mut session: Option<Session> = None;
        let mut commit: Vec<Record> = Vec::new();
        let mut ok = true;
        let journal = Arc::clone(&self.journal);
        journal.read(log, 0, &mut |entry| {
            let record = record_of(&entry);
            match (&record, &mut session) {
                (Some(record), Some(session)) => session.apply(record),
                (Some(Record { seq, time, body: Body::SessionMeta(meta) }), none) => {
                    *none = Some(Session::new((**meta).clone(), *seq, *time));
                }
                (_, None) | (None, _) => {}
            }
            commit.extend(record);
            if entry.more {
                return ControlFlow::Continue(());
            }
            let commit = std::mem::take(&mut commit);
            if let (Some(session), Some(last)) = (&session, commit.last()) {
                ok = self.append(&events(session, &commit), last.seq, last.time);
            }
            if ok { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(ok)
    }

    /// Whether a log has records that give events and have not been told of. Reads its two ends alone.
    fn has_more(&self, log: &LogPath) -> Result<bool, JournalError> {
        let mut told = None;
        let mut more = false;
        let first = self.journal.ends(log, &mut |first, entry| {
            let told = *told.get_or_insert_with(|| self.told_of(first));
            more = told.is_none_or(|told| entry.seq > told && map::is_audited(&entry.kind));
            let is_told = told.is_some_and(|told| entry.seq <= told);
            if more || is_told { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(more || self.told_of(first.as_ref()).is_none())
    }

    /// The last record that has been told of a session whose log begins like this; None: not even the first, or
    /// nobody knows.
    fn told_of(&self, first: Option<&Entry>) -> Option<u64> {
        match first.and_then(record_of).map(|record| record.body) {
            Some(Body::SessionMeta(meta)) => self.told.get(&meta.session_id).copied(),
            Some(_) | None => None,
        }
    }
}

/// An event as the journal wants it.
fn to_line(event: &AuditEvent) -> String {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        #[serde(flatten)]
        event: &'a AuditEvent,
    }
    // This type has no map with keys that are not strings: serialising it cannot fail.
    serde_json::to_string(&Line { r#type: KIND, event }).unwrap_or_default()
}

/// Which record of which session a line tells of.
fn told_by(entry: &Entry) -> Option<(SessionId, u64)> {
    #[derive(Deserialize)]
    struct Told {
        session: SessionId,
        session_seq: u64,
    }
    let told: Told = serde_json::from_str(&entry.text).ok().filter(|_| entry.kind == KIND)?;
    Some((told.session, told.session_seq))
}
