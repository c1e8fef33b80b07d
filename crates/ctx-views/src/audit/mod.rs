//! The audit log: who did what, in an append-only log of its own beside the sessions' logs.
//!
//! It tells of records and is written after them, within 200 ms, by one thread. What a crash left out is found
//! when the log is opened: it says for each session how far it has told of it, and what a session's log has
//! beyond that is appended. Purging a session leaves its lines.

mod map;
mod read;

use std::collections::{HashMap, HashSet};
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
    Commit { log: LogPath, through: u64, time: Timestamp, events: Vec<AuditEvent> },
    Flush(SyncSender<()>),
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

    /// Waits until everything that was handed over, and what a crash left out, is on disk or has failed.
    pub fn flush(&self) {
        let (done, flushed) = sync_channel(1);
        let sent = lock(&self.to_writer).as_ref().map(|to_writer| to_writer.clone().send(Work::Flush(done)));
        if let Some(Ok(())) = sent {
            // Fails when the writer is gone: then there is nothing to wait for.
            let _ = flushed.recv();
        }
    }

    /// What went wrong last, if anything did.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.behind.error).clone()
    }

    /// Writes what waits and stops.
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
}

impl Writer {
    fn new(journal: Arc<dyn Journal>, options: AuditOptions, behind: Arc<Behind>) -> Writer {
        Writer { journal, options, behind, writer: None, told: HashMap::new() }
    }

    fn run(mut self, work: &Receiver<Work>) {
        match (self.options.session_logs)() {
            Ok(logs) => lock(&self.behind.logs).extend(logs),
            Err(error) => self.note(&error),
        }
        self.catch_up();
        loop {
            let waits = lock(&self.behind.logs).is_empty();
            let next =
                if waits { work.recv().map_err(|_| None) } else { work.recv_timeout(RETRY).map_err(Some) };
            match next {
                Ok(Work::Commit { log, through, time, events }) => self.commit(log, through, time, events),
                Ok(Work::Flush(done)) => {
                    self.catch_up();
                    self.flush();
                    // Who asked may have stopped waiting.
                    let _ = done.try_send(());
                }
                Err(Some(RecvTimeoutError::Timeout)) => self.catch_up(),
                Err(Some(RecvTimeoutError::Disconnected) | None) => break,
            }
        }
        self.catch_up();
        self.flush();
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

    fn commit(&mut self, log: LogPath, through: u64, time: Timestamp, events: Vec<AuditEvent>) {
        // An earlier commit of this session waits: the log has this one too.
        if lock(&self.behind.logs).contains(&log) || self.writer.is_none() {
            lock(&self.behind.logs).insert(log);
            return self.catch_up();
        }
        if !self.append(&events, through, time) {
            lock(&self.behind.logs).insert(log);
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

    /// Tells what is missing of every session that is behind.
    fn catch_up(&mut self) {
        let behind = std::mem::take(&mut *lock(&self.behind.logs));
        if behind.is_empty() {
            return;
        }
        if let Err(error) = self.open() {
            self.note(&error);
            lock(&self.behind.logs).extend(behind);
            return;
        }
        for log in behind {
            let done = self.catch_up_one(&log);
            match done {
                Ok(true) | Err(JournalError::NotThere { .. }) => {}
                Ok(false) => {
                    lock(&self.behind.logs).insert(log);
                }
                Err(error) => {
                    self.note(&error);
                    lock(&self.behind.logs).insert(log);
                }
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
        let first = self.journal.head(log)?.as_ref().and_then(record_of);
        let Some(Body::SessionMeta(meta)) = first.map(|record| record.body) else { return Ok(true) };
        let Some(told) = self.told.get(&meta.session_id).copied() else { return Ok(true) };
        let mut more = false;
        self.journal.read_back(log, &mut |entry| {
            more = entry.seq > told && map::is_audited(&entry.kind);
            if more || entry.seq <= told { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(more)
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
