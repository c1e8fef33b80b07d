//! The threads that read logs for the index: compare it with what there is, and hand what is missing to the
//! writer in stretches. They come when there is something to read, and go when there is not.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use ctx_journal::{Entry, JournalError, LogPath};
use ctx_session::record::SessionBody;
use ctx_session::{Body, Record, SessionId};
use rusqlite::OptionalExtension;

use super::column::{Print, count_of, time_of};
use super::desk::{Job, Work};
use super::stretch::{Part, Seen, Stretch};
use super::{DbError, Shared, issues};
use crate::error::ViewError;
use crate::files::record_of;

/// Text of a log that goes to the writer at once.
const STRETCH_BYTES: usize = 1024 * 1024;

/// What the index knows of a log.
#[derive(Debug, Clone, Copy)]
struct Known {
    key: i64,
    id: Option<SessionId>,
    next_seq: u64,
    text_seq: u64,
    /// The last record that was seen, if one was.
    seen: Option<Seen>,
    missing: bool,
    /// It was left in the middle.
    is_reading: bool,
}

impl Known {
    /// Whether the file is as it was when its last record was seen, and nothing has come since.
    fn is_current(&self, file: &FileId) -> bool {
        self.seen.is_some_and(|seen| {
            !self.is_reading
                && seen.bytes > 0
                && seen.inode == file.inode
                && seen.bytes == file.len
                && seen.seq + 1 == self.next_seq
        })
    }
}

/// What tells a file from another, and from what it was.
#[derive(Debug, Clone, Copy)]
struct FileId {
    /// With the time of its last change: the next file often gets the inode of one that was removed.
    inode: u64,
    len: u64,
}

/// Works until there are no jobs.
pub(super) fn run(shared: &Arc<Shared>) {
    while let Some(job) = shared.desk.next_job() {
        let done = match &job {
            Job::Plan => plan(shared),
            Job::Lists(log) => lists(shared, log),
            Job::Text(log) => text(shared, log),
            Job::Issues(log) => read_issues(shared, log),
        };
        let close = match done {
            // The writer closes a job with its last stretch.
            Ok(Sent::Something) => false,
            Ok(Sent::Nothing) => true,
            Err(error) => {
                failed(shared, &job, &error);
                true
            }
        };
        if close {
            let staff = shared.desk.close(&job);
            shared.hire(staff);
        }
    }
}

/// A log that is gone leaves its row missing: it may be of another session, which nobody else forgets. Any other is tried
/// again.
fn failed(shared: &Shared, job: &Job, error: &DbError) {
    let is_gone = matches!(error, DbError::Log(JournalError::NotThere { .. }))
        || matches!(error, DbError::View(view) if view.is_not_found());
    if !is_gone {
        shared.note_error(error);
    }
    match job {
        Job::Lists(log) | Job::Text(log) if is_gone => {
            shared.desk.push(Work::Missing(vec![log.clone()]));
        }
        Job::Lists(log) | Job::Text(log) | Job::Issues(log) if !is_gone => {
            shared.desk.mark_stale(log.clone());
        }
        Job::Plan | Job::Lists(_) | Job::Text(_) | Job::Issues(_) => {}
    }
}

/// Whether a job has given the writer a last stretch.
enum Sent {
    Something,
    Nothing,
}

/// Compares the index with the logs that there are, and asks for those that have to be read.
fn plan(shared: &Arc<Shared>) -> Result<Sent, DbError> {
    if let Err(error) = plan_issues(shared) {
        // Sessions are listed all the same.
        shared.note_error(&error);
    }
    let logs = (shared.options.session_logs)()?;
    let known = all_known(shared)?;
    let there: HashSet<&LogPath> = logs.iter().collect();
    let gone = known.iter().filter(|(log, known)| !known.missing && !there.contains(log));
    let gone: Vec<LogPath> = gone.map(|(log, _)| log.clone()).collect();
    if !gone.is_empty() {
        // Before anything is read: a session may be met again in another place.
        shared.desk.push(Work::Missing(gone));
    }
    for log in &logs {
        let file = match file_id(shared, log) {
            Ok(file) => file,
            // Who reads it finds out that it went.
            Err(error) if error.is_not_found() => FileId { inode: 0, len: 0 },
            Err(error) => return Err(error.into()),
        };
        let job = match known.get(log) {
            Some(known) if known.is_current(&file) && !known.missing => {
                if known.text_seq >= known.next_seq {
                    continue;
                }
                Job::Text(log.clone())
            }
            Some(_) | None => Job::Lists(log.clone()),
        };
        let staff = shared.desk.ask(job, file.len);
        shared.hire(staff);
    }
    Ok(Sent::Nothing)
}

/// Has the logs of all projects read: they are few and short beside those of sessions.
fn plan_issues(shared: &Arc<Shared>) -> Result<(), DbError> {
    let logs = issues::project_logs(&*shared.journal)?;
    shared.desk.push(Work::Projects(logs.iter().filter_map(issues::project_of_log).collect()));
    for log in logs.into_iter().filter(|log| issues::project_of_log(log).is_some()) {
        let staff = shared.desk.ask(Job::Issues(log), 0);
        shared.hire(staff);
    }
    Ok(())
}

fn read_issues(shared: &Shared, log: &LogPath) -> Result<Sent, DbError> {
    let Some(slug) = issues::project_of_log(log) else { return Ok(Sent::Nothing) };
    shared.desk.push(Work::Issues(issues::read(&*shared.journal, log, slug)?));
    Ok(Sent::Something)
}

fn all_known(shared: &Shared) -> Result<HashMap<LogPath, Known>, DbError> {
    shared.read(|db| {
        let mut statement = db.prepare(&format!("SELECT log, {KNOWN} FROM sessions"))?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, known_of(row, 1)?)))?;
        let mut known = HashMap::new();
        for row in rows {
            let (log, it) = row?;
            if let Ok(log) = LogPath::new(log) {
                known.insert(log, it);
            }
        }
        Ok(known)
    })
}

const KNOWN: &str = "next_seq, text_seq, inode, end_bytes, end_seq, end_time, missing, end_print, key, id, reading IS NOT NULL";

fn known_of(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Known> {
    let end_seq: i64 = row.get(at + 4)?;
    let seen = Seen {
        inode: count_of(row.get(at + 2)?),
        bytes: count_of(row.get(at + 3)?),
        seq: count_of(end_seq),
        time: time_of(row.get(at + 5)?),
        print: Print(row.get(at + 7)?),
    };
    Ok(Known {
        next_seq: count_of(row.get(at)?),
        text_seq: count_of(row.get(at + 1)?),
        seen: (end_seq >= 0).then_some(seen),
        missing: row.get(at + 6)?,
        key: row.get(at + 8)?,
        id: row.get::<_, String>(at + 9)?.parse().ok(),
        is_reading: row.get(at + 10)?,
    })
}

fn known(shared: &Shared, log: &LogPath) -> Result<Option<Known>, DbError> {
    shared.read(|db| {
        db.prepare_cached(&format!("SELECT {KNOWN} FROM sessions WHERE log = ?1"))?
            .query_row([log.as_str()], |row| known_of(row, 0))
            .optional()
    })
}

fn file_id(shared: &Shared, log: &LogPath) -> Result<FileId, ViewError> {
    let (inode, len) = shared.root.identity(Path::new(log.as_str()))?;
    Ok(FileId { inode, len })
}

/// Which session the first record says that this is, if it can be read.
fn told_id(shared: &Shared, log: &LogPath) -> Result<Option<SessionId>, DbError> {
    let head = shared.journal.head(log)?.as_ref().and_then(record_of);
    Ok(head.and_then(|record| match record.body {
        Body::Session(SessionBody::Meta(meta)) => Some(meta.session_id),
        _ => None,
    }))
}

/// Reads what the lists miss of a log; all of it when the index turns out to be about something else.
fn lists(shared: &Shared, log: &LogPath) -> Result<Sent, DbError> {
    let known = known(shared, log)?;
    let file = file_id(shared, log)?;
    let told = told_id(shared, log)?;
    let is_other = |known: &Known| told.is_some() && told != known.id;
    if let Some(known) = known.filter(|known| known.seen.is_some() && !is_other(known)) {
        let mut reading = Reading::new(shared, log, Part::Lists, known.seen.map_or(0, |seen| seen.seq), file);
        (reading.expected, reading.key) = (known.seen, Some(known.key));
        reading.read()?;
        if !reading.is_other && reading.next >= known.next_seq {
            return reading.finish();
        }
    }
    let mut reading = Reading::new(shared, log, Part::Lists, 0, file);
    reading.start_over = known.is_some();
    reading.read()?;
    reading.finish()
}

/// Reads the text that is missing of a log whose lists are complete.
fn text(shared: &Shared, log: &LogPath) -> Result<Sent, DbError> {
    let Some(known) = known(shared, log)?.filter(|known| known.text_seq < known.next_seq) else {
        return Ok(Sent::Nothing);
    };
    let file = file_id(shared, log)?;
    let mut reading = Reading::new(shared, log, Part::Text, known.text_seq, file);
    (reading.until, reading.key) = (known.next_seq, Some(known.key));
    reading.read()?;
    // The lists know of records that the log does not have: it has changed under us.
    if reading.next < known.next_seq {
        shared.desk.mark_stale(log.clone());
    }
    reading.finish()
}

/// A log while it is read.
struct Reading<'a> {
    shared: &'a Shared,
    log: &'a LogPath,
    part: Part,
    file: FileId,
    /// The row that it is read for.
    key: Option<i64>,
    /// What is in hand covers `from..next`.
    from: u64,
    next: u64,
    /// No record from here on.
    until: u64,
    records: Vec<Record>,
    /// What the log lacks of that.
    lost: Vec<Range<u64>>,
    bytes: usize,
    /// The last record that was read, and where it ends.
    last: Option<(Entry, u64)>,
    /// The record that has to come first, if the log is the one that the index knows.
    expected: Option<Seen>,
    /// It did not.
    is_other: bool,
    start_over: bool,
    damage: Vec<ctx_journal::Damage>,
    stopped: bool,
}

impl<'a> Reading<'a> {
    fn new(shared: &'a Shared, log: &'a LogPath, part: Part, from: u64, file: FileId) -> Reading<'a> {
        Reading {
            shared,
            log,
            part,
            file,
            key: None,
            from,
            next: from,
            until: u64::MAX,
            records: Vec::new(),
            lost: Vec::new(),
            bytes: 0,
            last: None,
            expected: None,
            is_other: false,
            start_over: false,
            damage: Vec::new(),
            stopped: false,
        }
    }

    fn read(&mut self) -> Result<(), DbError> {
        let (shared, log, from) = (self.shared, self.log, self.from);
        let damage = shared.journal.read(log, from, &mut |entry| self.take(entry))?;
        self.is_other |= self.expected.is_some();
        if self.part == Part::Lists {
            self.damage = damage;
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry) -> ControlFlow<()> {
        let end = entry.offset + entry.text.len() as u64 + 1;
        if let Some(expected) = self.expected.take()
            && !is_same(&expected, &entry, end)
        {
            self.is_other = true;
            return ControlFlow::Break(());
        }
        if entry.seq >= self.until {
            // The log covers everything before this one.
            self.next = self.until;
            return ControlFlow::Break(());
        }
        if entry.seq > self.next {
            self.lost.push(self.next..entry.seq);
        }
        self.next = entry.seq_after();
        self.bytes += entry.text.len();
        self.records.extend(record_of(&entry));
        self.last = Some((entry, end));
        if self.bytes < STRETCH_BYTES {
            return ControlFlow::Continue(());
        }
        let sent = self.send(false);
        if sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn seen(&self, entry: &Entry, end: u64) -> Seen {
        let print = Print::of_entry(entry);
        Seen { inode: self.file.inode, bytes: end, seq: entry.seq, time: entry.time, print }
    }

    /// Gives what is in hand to the writer. False when the index is being closed.
    fn send(&mut self, is_last: bool) -> bool {
        let stretch = Stretch {
            log: self.log.clone(),
            id: None,
            key: self.key,
            part: self.part,
            from: self.from,
            next: self.next,
            records: std::mem::take(&mut self.records),
            lost: std::mem::take(&mut self.lost),
            seen: self.last.as_ref().map(|(entry, end)| self.seen(entry, *end)),
            start_over: std::mem::take(&mut self.start_over),
            is_last,
            damage: std::mem::take(&mut self.damage),
        };
        self.from = self.next;
        self.bytes = 0;
        self.stopped = !self.shared.desk.prepare(stretch);
        !self.stopped
    }

    fn finish(mut self) -> Result<Sent, DbError> {
        if !self.stopped {
            self.send(true);
        }
        Ok(Sent::Something)
    }
}

/// Whether an entry is the record that was seen there before.
fn is_same(seen: &Seen, entry: &Entry, end: u64) -> bool {
    let same_place = seen.bytes == 0 || seen.bytes == end;
    entry.seq == seen.seq && same_place && Print::of_entry(entry) == seen.print
}
