//! Reading the audit log, the newest lines first, with or without a daemon.

use std::ops::ControlFlow;
use std::sync::Arc;

use ctx_journal::{Entry, Journal, JournalError, LogPath};
use ctx_session::{SessionId, Timestamp};

use super::{AuditEvent, EventName, KIND};

/// Which lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Only what this user did, or what happened to what is theirs; none: everyone's, for the daemon's owner.
    pub user: Option<u32>,
    /// Only what happened in this session, or what its runs did to its project's issues.
    pub session: Option<SessionId>,
    /// Any of these; none: all.
    pub events: Vec<EventName>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only lines before this one, by [`AuditLine::number`].
    pub before: Option<u64>,
    pub limit: usize,
}

/// A line of the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditLine {
    /// Its place in the audit log, or among one user's lines of it.
    pub number: u64,
    pub time: Timestamp,
    pub event: AuditEvent,
}

/// Reads the audit log.
#[derive(Clone)]
pub struct AuditReader {
    journal: Arc<dyn Journal>,
    log: LogPath,
}

impl AuditReader {
    pub fn new(journal: Arc<dyn Journal>, log: LogPath) -> AuditReader {
        AuditReader { journal, log }
    }

    /// The newest lines that fit, newest first, and the number to go on before if there may be more. A log that
    /// does not exist yet has none.
    pub fn newest(&self, query: &AuditQuery) -> Result<(Vec<AuditLine>, Option<u64>), JournalError> {
        self.page(query, Some)
    }

    /// The same of one user's lines, for that user: numbered among themselves, so that no number tells how much others
    /// did.
    pub fn newest_of(
        &self,
        user: u32,
        query: &AuditQuery,
    ) -> Result<(Vec<AuditLine>, Option<u64>), JournalError> {
        let (mut own, mut end) = (0, None);
        self.back(|line| {
            end = end.max(Some(line.number));
            own += u64::from(line.event.user == user);
            ControlFlow::Continue(())
        })?;
        self.page(query, |line| {
            // What came since the count is for the next time.
            let is_own = line.event.user == user && Some(line.number) <= end;
            is_own.then(|| {
                own = own.saturating_sub(1);
                AuditLine { number: own, ..line }
            })
        })
    }

    fn page(
        &self,
        query: &AuditQuery,
        mut shown: impl FnMut(AuditLine) -> Option<AuditLine>,
    ) -> Result<(Vec<AuditLine>, Option<u64>), JournalError> {
        let mut lines = Vec::new();
        let mut next = None;
        self.back(|line| {
            let Some(line) = shown(line).filter(|line| fits(query, line)) else {
                return ControlFlow::Continue(());
            };
            if lines.len() == query.limit {
                next = lines.last().map(|line: &AuditLine| line.number);
                return ControlFlow::Break(());
            }
            lines.push(line);
            ControlFlow::Continue(())
        })?;
        Ok((lines, next))
    }

    fn back(&self, mut on_line: impl FnMut(AuditLine) -> ControlFlow<()>) -> Result<(), JournalError> {
        let read = self.journal.read_back(&self.log, &mut |entry| match line_of(&entry) {
            Some(line) => on_line(line),
            None => ControlFlow::Continue(()),
        });
        match read {
            Ok(()) | Err(JournalError::NotThere { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn line_of(entry: &Entry) -> Option<AuditLine> {
    let event = serde_json::from_str(&entry.text).ok().filter(|_| entry.kind == KIND)?;
    Some(AuditLine { number: entry.seq, time: entry.time, event })
}

fn fits(query: &AuditQuery, line: &AuditLine) -> bool {
    query.user.is_none_or(|user| line.event.user == user)
        && query.session.is_none_or(|session| line.event.session() == Some(session))
        && (query.events.is_empty() || query.events.contains(&line.event.event))
        && query.since.is_none_or(|since| line.time >= since)
        && query.until.is_none_or(|until| line.time < until)
        && query.before.is_none_or(|before| line.number < before)
}
