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
    /// Its place in the audit log.
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
        let mut lines = Vec::new();
        let mut next = None;
        let read = self.journal.read_back(&self.log, &mut |entry| {
            let Some(line) = line_of(&entry).filter(|line| fits(query, line)) else {
                return ControlFlow::Continue(());
            };
            if lines.len() == query.limit {
                next = lines.last().map(|line: &AuditLine| line.number);
                return ControlFlow::Break(());
            }
            lines.push(line);
            ControlFlow::Continue(())
        });
        match read {
            Ok(()) | Err(JournalError::NotThere { .. }) => Ok((lines, next)),
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
