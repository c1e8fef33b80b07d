//! Sessions that cannot be brought back: their log is gone or cannot be read, or ctx itself breaks on it again and again.
//!
//! They are shown as failed, with what to do. Where the log can still be written, that is a record; where it cannot, the
//! registry and the index know it, and a log that is back is found again by whoever asks next.

use ctx_journal::{Journal, JournalError, LogPath};
use ctx_session::record::Failure;
use ctx_session::{Code, Refusal, SessionId, State};

use crate::registry::Summary;

/// So often in a row a driver may panic on a log before its session is failed.
pub(crate) const PANICS_MAX: u32 = 3;

/// The reason of a session whose log is gone.
pub(crate) const GONE: &str = "log_missing";

/// What a log that cannot be opened means for its session; None where that may pass by itself.
pub(crate) fn failure_of(id: SessionId, error: &JournalError) -> Option<Failure> {
    match error {
        JournalError::NotThere { log } => Some(gone(id, log)),
        error if error.is_unreadable() => Some(unreadable(id, &error.to_string())),
        _ => None,
    }
}

/// Whether nothing is where a log was.
pub(crate) fn is_gone(journal: &dyn Journal, log: &LogPath) -> bool {
    matches!(journal.head(log), Err(JournalError::NotThere { .. }))
}

fn failure(code: Code, reason: &str, message: String) -> Failure {
    Failure { code, reason: reason.to_owned(), message }
}

pub(crate) fn gone(id: SessionId, log: &LogPath) -> Failure {
    let message = format!(
        "its log {log} is gone; put the directory back from a backup, or forget the session with `ctx purge {id}`"
    );
    failure(Code::Enoent, GONE, message)
}

pub(crate) fn unreadable(id: SessionId, why: &str) -> Failure {
    let message = format!(
        "its log cannot be read: {why}; make it readable or put it back from a backup, or delete the session with `ctx purge {id}`"
    );
    failure(Code::Eio, "log_unreadable", message)
}

pub(crate) fn panicked(id: SessionId) -> Failure {
    let message = format!(
        "ctx broke {PANICS_MAX} times in a row on this session, and the daemon's log says where; `ctx fork {id}` goes on with a \
         copy, `ctx repair` looks for damage, `ctx end {id}` closes it"
    );
    failure(Code::Eio, "driver_panicked", message)
}

/// What whoever asks for something of a broken session is told.
pub(crate) fn refusal(id: SessionId, summary: &Summary) -> Refusal {
    let why = match summary.details.as_deref().map(|details| &details.state) {
        Some(State::Failed(failure)) => failure.message.clone(),
        _ => "the daemon's log has the reason".to_owned(),
    };
    Refusal::new(Code::Eshutdown, failed(id, &why))
}

pub(crate) fn failed(id: SessionId, why: &str) -> String {
    format!("session {id} has failed: {why}")
}
