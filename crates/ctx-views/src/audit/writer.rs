//! The thread that writes the audit log: commits as they come, and in between what a crash left out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use ctx_journal::{Entry, Journal, JournalError, LogPath, LogWriter};
use ctx_session::project::{Decoded, Project, ProjectBody, ProjectRecord};
use ctx_session::{Body, Name, Record, Session, SessionId, Timestamp};
use serde::Deserialize;

use super::map::{self, AuditEvent, RecordOf};
use super::{AuditOptions, Behind, KIND, Work, events, lock, project_events};
use crate::db::{project_logs, project_of_log};
use crate::files::record_of;

const OPENED: &str = r#"{"type":"audit_opened"}"#;
/// How soon what could not be told is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Whose log it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    Session(SessionId),
    Project(Name),
}

impl RecordOf {
    fn place(&self) -> (Whose, u64) {
        match self {
            RecordOf::Session { session, session_seq } => (Whose::Session(*session), *session_seq),
            RecordOf::Project { project, project_seq } => (Whose::Project(project.clone()), *project_seq),
        }
    }
}

/// The thread's own.
pub(super) struct Writer {
    journal: Arc<dyn Journal>,
    options: AuditOptions,
    behind: Arc<Behind>,
    /// None until it could be opened, and after a failure.
    writer: Option<Box<dyn LogWriter>>,
    /// The last record of each log that has been told of.
    told: HashMap<Whose, u64>,
    /// Logs to be read for what has not been told.
    queue: VecDeque<LogPath>,
    /// Those that could not be; they go back into the queue after a while.
    failed: Vec<LogPath>,
    /// Both.
    pending: HashSet<LogPath>,
    settling: Vec<SyncSender<()>>,
}

impl Writer {
    pub fn new(journal: Arc<dyn Journal>, options: AuditOptions, behind: Arc<Behind>) -> Writer {
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
    pub fn run(mut self, work: &Receiver<Work>) {
        self.queue_up_all();
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
                Ok(Work::Behind(log)) => self.queue_up(log),
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

    /// Every log there is may have more than was told.
    fn queue_up_all(&mut self) {
        for listed in [(self.options.session_logs)(), project_logs(&*self.journal)] {
            match listed {
                Ok(logs) => logs.into_iter().for_each(|log| self.queue_up(log)),
                Err(error) => self.note(&error),
            }
        }
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

    /// Takes the log up, reading how far each log has been told of; makes it when there is none.
    fn open(&mut self) -> Result<(), JournalError> {
        if self.writer.is_some() {
            return Ok(());
        }
        let AuditOptions { log, owner, now, .. } = &self.options;
        let mut told = HashMap::new();
        let opened = self.journal.open(log, *now, &mut |entry| {
            if let Some((whose, seq)) = told_by(&entry) {
                let last = told.entry(whose).or_insert(seq);
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
        // Lines that were written may be gone: what was told of each log is what is there, and no more.
        let has_less = self.told.iter().any(|(whose, seq)| told.get(whose).is_none_or(|told| told < seq));
        self.told = told;
        if has_less {
            self.queue_up_all();
        }
        Ok(())
    }

    fn commit(&mut self, log: LogPath, through: u64, time: Timestamp, events: &[AuditEvent]) {
        // Where an earlier commit of this log waits, the log has this one too.
        if self.pending.contains(&log) || self.writer.is_none() || !self.append(events, through, time) {
            self.queue_up(log);
        }
    }

    /// Appends the events of a commit that have not been told of. False when that failed.
    fn append(&mut self, events: &[AuditEvent], through: u64, time: Timestamp) -> bool {
        let Some((whose, _)) = events.first().map(|event| event.record.place()) else { return true };
        let told = self.told.get(&whose).copied();
        let new = events.iter().filter(|event| told.is_none_or(|told| event.record.place().1 > told));
        let lines: Vec<String> = new.map(to_line).collect();
        let appended = match &self.writer {
            _ if lines.is_empty() => Ok(()),
            Some(writer) => writer.append_soon(time, &lines).map(drop).map_err(|error| error.to_string()),
            None => Err("the audit log is not open".to_owned()),
        };
        match appended {
            Ok(()) => {
                let last = self.told.entry(whose).or_insert(through);
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

    /// Tells what is missing of one log; when none is left to try, tries those again that failed.
    fn catch_up(&mut self) {
        let Some(log) = self.queue.pop_front() else {
            self.queue.extend(self.failed.drain(..));
            return;
        };
        let caught_up = self.open().and_then(|()| match project_of_log(&log) {
            Some(slug) => self.catch_up_project(&log, slug),
            None => self.catch_up_session(&log),
        });
        match caught_up {
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
    fn catch_up_session(&mut self, log: &LogPath) -> Result<bool, JournalError> {
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

    /// The same for a project, whose log is short.
    fn catch_up_project(&mut self, log: &LogPath, slug: Name) -> Result<bool, JournalError> {
        let mut project = Project::new(slug);
        let mut commit: Vec<ProjectRecord> = Vec::new();
        let mut ok = true;
        let journal = Arc::clone(&self.journal);
        journal.read(log, 0, &mut |entry| {
            if let Decoded::Known(body) = ProjectBody::decode(&entry.kind, &entry.text) {
                let record = ProjectRecord { seq: entry.seq, time: entry.time, body };
                project.apply(&record);
                commit.push(record);
            }
            if entry.more {
                return ControlFlow::Continue(());
            }
            let commit = std::mem::take(&mut commit);
            if let Some(last) = commit.last() {
                ok = self.append(&project_events(&project, &commit), last.seq, last.time);
            }
            if ok { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(ok)
    }

    /// Whether a session's log has records that give events and have not been told of. Reads its two ends alone.
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
            Some(Body::SessionMeta(meta)) => self.told.get(&Whose::Session(meta.session_id)).copied(),
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

/// Which record of which log a line tells of.
fn told_by(entry: &Entry) -> Option<(Whose, u64)> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(flatten)]
        record: RecordOf,
    }
    let told: Told = serde_json::from_str(&entry.text).ok().filter(|_| entry.kind == KIND)?;
    Some(told.record.place())
}
