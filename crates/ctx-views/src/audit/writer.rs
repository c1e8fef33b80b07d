//! The thread that writes the audit log: commits as they come, and in between what a crash left out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use ctx_journal::{Committed, Entry, Journal, JournalError, LogPath, LogWriter, lock};
use ctx_session::{Name, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::EventName;
use super::map::{AuditEvent, RecordOf};
use super::progress::{Kept, Line};
use super::standing::{Audited, Lines, Standing};
use super::{AuditOptions, Behind, Deed, KIND, Work};
use crate::db::project_logs;

const OPENED: &str = r#"{"type":"audit_opened"}"#;
/// How soon what could not be audited is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Lines that a start may have to read again after a crash.
const UNKEPT_MAX: u64 = 4096;

/// Whose log it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Whose {
    Session(SessionId),
    Project(Name),
    Root,
}

impl RecordOf {
    pub(super) fn place(&self) -> (Whose, u64) {
        match self {
            RecordOf::Session { session, session_seq } => (Whose::Session(*session), *session_seq),
            RecordOf::Project { project, project_seq } => (Whose::Project(project.clone()), *project_seq),
            RecordOf::Root { layout } => (Whose::Root, *layout),
        }
    }
}

/// The thread's own.
pub(super) struct Writer {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) options: AuditOptions,
    pub(super) behind: Arc<Behind>,
    /// None until it could be opened, and after a failure.
    writer: Option<Box<dyn LogWriter>>,
    pub(super) audited: HashMap<Whose, Audited>,
    /// The last line, if there is one, and how many lines came since that was last kept on disk.
    last: Option<Line>,
    unkept: u64,
    /// Whether logs may be read for what has not been audited.
    may_read: bool,
    /// All lines, while there are logs that are not those whose events it has.
    pub(super) lines: Option<Lines>,
    /// Logs to be read for what has not been audited.
    pub(super) queue: VecDeque<LogPath>,
    /// Those that could not be; they go back into the queue after a while.
    pub(super) failed: Vec<LogPath>,
    /// Both.
    pub(super) pending: HashSet<LogPath>,
    /// Those of them that something happened to while this writer was there.
    pub(super) owed: HashSet<LogPath>,
    waiting_for_all: Vec<SyncSender<()>>,
}

impl Writer {
    pub fn new(journal: Arc<dyn Journal>, options: AuditOptions, behind: Arc<Behind>) -> Writer {
        Writer {
            journal,
            options,
            behind,
            writer: None,
            audited: HashMap::new(),
            last: None,
            unkept: 0,
            may_read: false,
            lines: None,
            queue: VecDeque::new(),
            failed: Vec::new(),
            pending: HashSet::new(),
            owed: HashSet::new(),
            waiting_for_all: Vec::new(),
        }
    }

    /// Tells of commits as they come, and of what is behind in between.
    pub fn run(mut self, work: &Receiver<Work>) {
        self.queue_up_all();
        lock(&self.behind.logs).has_list = true;
        if let Err(error) = self.open() {
            self.note(&error);
        }
        loop {
            let dropped = self.behind.take();
            dropped.into_iter().for_each(|log| self.owe(log));
            let wait = match (self.queue.is_empty() || !self.may_read, self.failed.is_empty()) {
                (false, _) => Duration::ZERO,
                (true, false) => RETRY,
                // Also what was dropped while the desk was full is seen then.
                (true, true) => RETRY * 60,
            };
            if self.queue.is_empty() {
                self.lines = None;
                for done in self.waiting_for_all.drain(..) {
                    let _ = done.try_send(());
                }
            }
            match work.recv_timeout(wait) {
                Ok(Work::Commit { log, through, time, events }) => self.commit(log, through, time, &events),
                Ok(Work::Behind(log)) => self.owe(log),
                Ok(Work::Opened(log)) => self.compare(log),
                Ok(Work::Read) => self.may_read = true,
                Ok(Work::Last(log, done)) => drop(done.try_send(self.audit_last(&log))),
                Ok(Work::Deed(deed, done)) => drop(done.try_send(self.audit_deed(&deed))),
                Ok(Work::Flush(done)) => {
                    self.flush();
                    // Who asked may have stopped waiting.
                    let _ = done.try_send(());
                }
                Ok(Work::Complete(done)) => self.waiting_for_all.push(done),
                Err(RecvTimeoutError::Timeout) if self.may_read => self.catch_up(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.unkept >= UNKEPT_MAX {
                self.keep_audited();
            }
        }
        self.audit_owed();
        self.keep_audited();
    }

    /// Remembers for the next start what has been audited. Where that fails, the next start reads more.
    fn keep_audited(&mut self) {
        self.flush();
        let (Some(last), Some(_), 1..) = (&self.last, &self.writer, self.unkept) else { return };
        let AuditOptions { log, owner, root, .. } = &self.options;
        if let Err(error) = Kept::new(last, &self.audited).write(root, log, *owner) {
            self.note(&error);
        }
        self.unkept = 0;
    }

    /// Every log there is may have more than was audited.
    fn queue_up_all(&mut self) {
        for listed in [(self.options.session_logs)(), project_logs(&*self.journal)] {
            match listed {
                Ok(logs) => logs.into_iter().for_each(|log| self.queue_up(log)),
                Err(error) => self.note(&error),
            }
        }
    }

    pub(super) fn queue_up(&mut self, log: LogPath) {
        if self.pending.insert(log.clone()) {
            self.queue.push_back(log);
        }
    }

    pub(super) fn note(&self, error: &dyn std::fmt::Display) {
        *lock(&self.behind.error) = Some(error.to_string());
    }

    fn flush(&mut self) {
        if let Some(Err(error)) = self.writer.as_ref().map(|writer| writer.flush()) {
            self.note(&error);
            self.writer = None;
        }
    }

    /// Takes the log up, reading how far each log was audited; makes it when there is none.
    pub(super) fn open(&mut self) -> Result<(), JournalError> {
        if self.writer.is_some() {
            return Ok(());
        }
        let AuditOptions { log, owner, now, .. } = &self.options;
        let Taken { writer, audited, last, lines, .. } = match self.take_up() {
            Ok(taken) => taken,
            Err(JournalError::NotThere { .. }) => {
                let writer = self.journal.create(log, *owner, *now, &[OPENED.to_owned()])?;
                Taken { writer, audited: HashMap::new(), first: None, last: None, lines: 0 }
            }
            Err(error) => return Err(error),
        };
        (self.writer, self.last, self.unkept) = (Some(writer), last, lines);
        // Lines that were written may be gone: what was audited of each log is what is there, and no more.
        let is_there = |(whose, last): (&Whose, &Audited)| {
            audited.get(whose).is_some_and(|audited| (audited.at, audited.time) == (last.at, last.time))
        };
        let has_less = !self.audited.iter().all(is_there);
        (self.audited, self.lines) = (audited, None);
        if has_less {
            self.queue_up_all();
        }
        Ok(())
    }

    /// Takes the log up where that was kept on disk, if that is of this log; else all of it is read.
    fn take_up(&self) -> Result<Taken, JournalError> {
        if let Some(kept) = Kept::read(&self.options.root, &self.options.log) {
            let last = kept.last.clone();
            match self.take_up_from(last.number, kept.into_audited()) {
                Ok(taken) if taken.first.as_ref() == Some(&last) => return Ok(taken),
                Ok(_) | Err(JournalError::NotThere { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.take_up_from(0, HashMap::new())
    }

    fn take_up_from(&self, from: u64, mut audited: HashMap<Whose, Audited>) -> Result<Taken, JournalError> {
        let (mut first, mut last, mut lines) = (None, None, 0);
        let opened = self.journal.open_from(&self.options.log, self.options.now, from, &mut |entry| {
            let Some((whose, seq, _)) = told_by(&entry) else { return };
            let line = Line { number: entry.seq, whose: whose.clone(), seq, time: entry.time };
            // What was kept with this line says more of it than the line itself.
            if from == 0 || lines > 0 {
                // The last line counts, not the highest seq: a log that was cut goes on with lower ones.
                audited.insert(whose, Audited { through: seq, at: seq, time: entry.time });
            }
            first.get_or_insert_with(|| line.clone());
            last = Some(line);
            lines += 1;
        })?;
        Ok(Taken { writer: opened.writer, audited, first, last, lines })
    }

    fn commit(&mut self, log: LogPath, through: u64, time: Timestamp, events: &[AuditEvent]) {
        // Where an earlier commit of this log waits, the log has this one too.
        let waits = self.pending.contains(&log) || self.writer.is_none();
        if waits || self.is_out_of_line(events, through, time) || !self.append(events, through, time, None) {
            self.owe(log);
        }
    }

    /// Whether a commit is newer than the last one audited, and has an older place.
    fn is_out_of_line(&self, events: &[AuditEvent], through: u64, time: Timestamp) -> bool {
        let audited = events.first().and_then(|event| self.audited.get(&event.record.place().0));
        audited.is_some_and(|audited| through <= audited.through && time > audited.time)
    }

    /// Looks whether a log is the one whose events it has.
    fn compare(&mut self, log: LogPath) {
        if self.pending.contains(&log) || self.writer.is_none() {
            return;
        }
        match self.standing(&log) {
            Ok(Standing::Other) => self.queue_up(log),
            // What it has more comes by itself, or was asked for.
            Ok(Standing::Audited | Standing::More) | Err(JournalError::NotThere { .. }) => {}
            Err(error) => self.note(&error),
        }
    }

    /// Appends the events of a commit that have not been audited: those after the last that was, or where the log is
    /// not the one whose events it has, those without a line. False when that failed.
    pub(super) fn append(
        &mut self,
        events: &[AuditEvent],
        through: u64,
        time: Timestamp,
        known: Option<&Lines>,
    ) -> bool {
        let Some((whose, at)) = events.last().map(|event| event.record.place()) else { return true };
        let audited = self.audited.get(&whose).copied();
        let is_new = |event: &&AuditEvent| match known {
            Some(lines) => !lines.have(event, time),
            None => audited.is_none_or(|audited| event.record.place().1 > audited.through),
        };
        let lines: Vec<String> = events.iter().filter(is_new).map(to_line).collect();
        let is_before = known.is_none() && lines.is_empty();
        let appended = match &self.writer {
            _ if lines.is_empty() => Ok(None),
            Some(writer) => writer.append_soon(time, &lines).map(Some).map_err(|error| error.to_string()),
            None => Err("the audit log is not open".to_owned()),
        };
        match appended {
            Ok(_) if is_before => true,
            Ok(committed) => {
                if let Some(committed) = committed {
                    self.note_lines(committed, events.iter().rfind(is_new), time);
                }
                self.audited.insert(whose, Audited { through, at, time });
                if let Some(all) = &mut self.lines {
                    events.iter().for_each(|event| {
                        let (whose, seq) = event.record.place();
                        all.add(whose, seq, time, event.event);
                    });
                }
                true
            }
            Err(error) => {
                self.note(&error);
                self.writer = None;
                false
            }
        }
    }

    /// Remembers the last line that was written.
    fn note_lines(&mut self, written: Committed, last: Option<&AuditEvent>, time: Timestamp) {
        let Some((whose, seq)) = last.map(|event| event.record.place()) else { return };
        self.last = Some(Line { number: written.next.saturating_sub(1), whose, seq, time });
        self.unkept += written.next.saturating_sub(written.first);
    }

    /// Tells everything that a log has, now.
    fn audit_last(&mut self, log: &LogPath) -> Result<(), String> {
        let audited = self.open().and_then(|()| self.catch_up_session(log));
        match audited.map_err(|error| error.to_string())? {
            true => self.sync()?,
            false => return Err(lock(&self.behind.error).clone().unwrap_or_default()),
        }
        // There is nothing more to read in it.
        self.is_done_with(log);
        self.queue.retain(|other| other != log);
        self.failed.retain(|other| other != log);
        Ok(())
    }

    /// Writes a deed, which no record describes. A crash may have come between the line and whoever waited for it.
    fn audit_deed(&mut self, deed: &Deed) -> Result<(), String> {
        self.open().map_err(|error| error.to_string())?;
        let Deed { time, event } = deed;
        let (whose, at) = event.record.place();
        let is_told =
            self.audited.get(&whose).is_some_and(|audited| (audited.at, audited.time) == (at, *time));
        if !is_told {
            let writer = self.writer.as_ref().ok_or("the audit log is not open")?;
            let appended = writer.append_soon(*time, &[to_line(event)]);
            let appended = appended.map_err(|error| self.failed_to_write(&error))?;
            self.note_lines(appended, Some(event), *time);
            self.audited.insert(whose, Audited { through: at, at, time: *time });
        }
        self.sync()
    }

    /// Makes what was appended durable.
    fn sync(&mut self) -> Result<(), String> {
        let synced = self.writer.as_ref().map_or(Ok(()), |writer| writer.flush());
        synced.map_err(|error| self.failed_to_write(&error))
    }

    /// The log is opened again before anything else is written.
    fn failed_to_write(&mut self, error: &dyn std::fmt::Display) -> String {
        self.note(error);
        self.writer = None;
        error.to_string()
    }
}

/// The audit log, taken up.
struct Taken {
    writer: Box<dyn LogWriter>,
    audited: HashMap<Whose, Audited>,
    /// The first and the last line that was read, and how many were.
    first: Option<Line>,
    last: Option<Line>,
    lines: u64,
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

/// Which record of which log a line is of, and which event.
pub(super) fn told_by(entry: &Entry) -> Option<(Whose, u64, EventName)> {
    #[derive(Deserialize)]
    struct Line {
        event: EventName,
        #[serde(flatten)]
        record: RecordOf,
    }
    let line: Line = serde_json::from_str(&entry.text).ok().filter(|_| entry.kind == KIND)?;
    let (whose, seq) = line.record.place();
    Some((whose, seq, line.event))
}
