//! Reading logs for what has not been audited: what a crash left out, and what happened to a log that waited for that.
//!
//! Not here: commits as they come, and the audit log itself (`writer`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_journal::{Entry, JournalError, LogPath};
use ctx_session::project::{Project, ProjectBody, ProjectRecord};
use ctx_session::record::Decoded;
use ctx_session::record::SessionBody;
use ctx_session::{Body, Name, Record, Session};

use super::standing::{Audited, Lines, Look, Standing};
use super::writer::{Whose, Writer, told_by};
use super::{events, project_events};
use crate::db::project_of_log;
use crate::files::record_of;

/// How long a stop may read for what happened; the next start reads the rest.
const CLOSING: Duration = Duration::from_secs(2);

impl Writer {
    /// Tells what is missing of one log; when none is left to try, tries those again that failed.
    pub(super) fn catch_up(&mut self) {
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
                self.is_done_with(&log);
            }
            Ok(false) => self.failed.push(log),
            Err(error) => {
                self.note(&error);
                self.failed.push(log);
                self.lines = None;
            }
        }
    }

    /// Something happened to a log that has to be read for it.
    pub(super) fn owe(&mut self, log: LogPath) {
        self.owed.insert(log.clone());
        self.queue_up(log);
    }

    /// A log has nothing more to audit.
    pub(super) fn is_done_with(&mut self, log: &LogPath) {
        self.pending.remove(log);
        self.owed.remove(log);
    }

    /// Tells before the end what happened while this writer was there: who stops the daemon and reads the log finds it.
    pub(super) fn audit_owed(&mut self) {
        let dropped = self.behind.take();
        dropped.into_iter().for_each(|log| self.owe(log));
        self.queue = self.owed.iter().cloned().collect();
        let until = Instant::now() + CLOSING;
        while !self.queue.is_empty() && Instant::now() < until {
            self.catch_up();
        }
    }

    /// All lines of the audit log, if a log turned out to be another than the one whose events it has.
    fn lines_for(&mut self, standing: Standing) -> Result<Option<Lines>, JournalError> {
        match standing {
            Standing::Audited | Standing::More => return Ok(None),
            Standing::Other => {}
        }
        if let Some(lines) = self.lines.replace(Lines::default()) {
            return Ok(Some(lines));
        }
        self.lines = None;
        let mut lines = Lines::default();
        self.journal.read(&self.options.log, 0, &mut |entry| {
            if let Some((whose, seq, event)) = told_by(&entry) {
                lines.add(whose, seq, entry.time, event);
            }
            ControlFlow::Continue(())
        })?;
        self.lines = Some(Lines::default());
        Ok(Some(lines))
    }

    /// Reads a session's log as far as needed, and audits what was not audited yet. False when that failed.
    pub(super) fn catch_up_session(&mut self, log: &LogPath) -> Result<bool, JournalError> {
        let standing = self.standing(log)?;
        if standing == Standing::Audited {
            return Ok(true);
        }
        let known = self.lines_for(standing)?;
        let mut session: Option<Session> = None;
        let mut commit: Vec<Record> = Vec::new();
        let mut ok = true;
        let journal = Arc::clone(&self.journal);
        journal.read(log, 0, &mut |entry| {
            let record = record_of(&entry);
            match (&record, &mut session) {
                (Some(record), Some(session)) => session.apply(record),
                (Some(Record { seq, time, body: Body::Session(SessionBody::Meta(meta)) }), none) => {
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
                ok = self.append(&events(session, &commit), last.seq, last.time, known.as_ref());
            }
            if ok { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.keep_lines(known);
        Ok(ok)
    }

    /// Keeps all lines for the next log, with those that were added since.
    fn keep_lines(&mut self, known: Option<Lines>) {
        if let Some(mut known) = known {
            known.extend(self.lines.take().unwrap_or_default());
            self.lines = Some(known);
        }
    }

    /// The same for a project, whose log is short.
    fn catch_up_project(&mut self, log: &LogPath, slug: Name) -> Result<bool, JournalError> {
        let mut look = Look::new(self.audited.get(&Whose::Project(slug.clone())).copied());
        self.journal.read_back(log, &mut |entry| look.take(&entry))?;
        let known = self.lines_for(look.finish())?;
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
                ok = self.append(&project_events(&project, &commit), last.seq, last.time, known.as_ref());
            }
            if ok { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.keep_lines(known);
        Ok(ok)
    }

    /// Compares a session's log with what was audited of it. Reads its two ends alone.
    pub(super) fn standing(&self, log: &LogPath) -> Result<Standing, JournalError> {
        let mut look: Option<Look> = None;
        self.journal.ends(log, &mut |first, entry| {
            look.get_or_insert_with(|| Look::new(self.audited_of(first))).take(&entry)
        })?;
        Ok(look.map_or(Standing::Audited, |look| look.finish()))
    }

    /// What has been audited of a session whose log begins like this; None: not even the first, or nobody knows.
    fn audited_of(&self, first: Option<&Entry>) -> Option<Audited> {
        match first.and_then(record_of).map(|record| record.body) {
            Some(Body::Session(SessionBody::Meta(meta))) => {
                self.audited.get(&Whose::Session(meta.session_id)).copied()
            }
            Some(_) | None => None,
        }
    }
}
