//! Sessions that cannot be brought back: their log is gone or cannot be read, or ctx itself breaks on it again and again.
//!
//! They are shown as failed, with what to do. Where the log can still be written, that is a record; where it cannot, the
//! registry and the index know it, and a log that is back is found again by whoever asks next.

use std::sync::Arc;

use ctx_journal::{JournalError, LogPath, lock};
use ctx_session::record::Failure;
use ctx_session::{Code, Refusal, SessionId, State, StateName};

use crate::details::Details;
use crate::driver::Begin;
use crate::paths::Shelf;
use crate::registry::Summary;
use crate::shared::Inner;

/// So often in a row a driver may panic on a log before its session is failed.
const PANICS_MAX: u32 = 3;

/// The reason of a session whose log is gone.
const GONE: &str = "log_missing";

/// Why a session cannot be worked with, where its log does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Its log is gone or unreadable: tried again whenever someone asks.
    Log,
    /// ctx panics on it, also when it is to write down that the session has failed: left alone until the next start.
    Driver,
}

/// What a log that cannot be opened means for its session; None where that may pass by itself.
pub(crate) fn failure_of(id: SessionId, error: &JournalError) -> Option<Failure> {
    match error {
        JournalError::NotThere { log } => Some(gone(id, log)),
        error if error.is_unreadable() => Some(unreadable(id, &error.to_string())),
        _ => None,
    }
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

fn panicked(id: SessionId) -> Failure {
    let message = format!(
        "ctx broke {PANICS_MAX} times in a row on this session, and the daemon's log says where; `ctx fork {id}` goes on with a \
         copy, `ctx repair` looks for damage, `ctx end {id}` closes it"
    );
    failure(Code::Eio, "driver_panicked", message)
}

impl Inner {
    /// A driver panicked, or loading its session did.
    pub(crate) fn note_panic(&self, id: SessionId) {
        *lock(&self.panics).entry(id).or_default() += 1;
    }

    /// Work on a session came to its end: what broke before did not break in a row.
    pub(crate) fn forget_panics(&self, id: SessionId) {
        lock(&self.panics).remove(&id);
    }

    /// How a session is to be taken up.
    pub(crate) fn begin_of(&self, id: SessionId) -> Begin {
        let panics = lock(&self.panics).get(&id).copied().unwrap_or(0);
        if panics < PANICS_MAX { Begin::Open } else { Begin::Fail { failure: panicked(id) } }
    }

    /// Refuses what is asked of a session on which ctx breaks.
    pub(crate) fn refuse_broken(&self, id: SessionId) -> Result<(), Refusal> {
        match self.registry.get(id) {
            Some(summary) if summary.broken == Some(Broken::Driver) => Err(refusal(id, &summary)),
            Some(_) | None => Ok(()),
        }
    }

    /// Shows a session as failed that its log does not know to be.
    pub(crate) fn break_down(&self, id: SessionId, broken: Broken, failure: Failure) -> Refusal {
        tracing::error!(session = %id, reason = failure.reason, message = failure.message, "a session has failed");
        let refusal = Refusal::new(Code::Eshutdown, failed(id, &failure.message));
        let log = self.log_of(id).ok().map(|(_, log)| log);
        self.registry.update(id, |summary| summary.break_down(broken, failure.clone()));
        let Some(summary) = self.registry.get(id) else { return refusal };
        if let Some(shelf) = Shelf::of(&summary.meta) {
            self.shelves.ended(self, &shelf, summary.meta.name.as_str());
            self.shelves.touch(shelf);
        }
        if let Some(log) = log {
            if failure.reason == GONE {
                self.behind.gone(&log);
            }
            self.behind.broken(&log, failure);
        }
        self.news.ended(&summary.meta);
        refusal
    }

    /// Takes in what the index knows of and the start did not find: their logs are gone. Blocking.
    pub(crate) fn take_in_gone(&self) {
        let Some(index) = self.behind.index() else { return };
        // What the plan found to be gone is written by now.
        index.flush();
        let gone_ones = match index.ask(|queries| queries.gone()) {
            Ok(gone_ones) => gone_ones,
            Err(error) => return tracing::warn!(%error, "sessions whose logs are gone are not listed"),
        };
        for item in gone_ones {
            let (id, overview) = (item.id(), item.row);
            let is_there = !matches!(self.journal.head(&item.log), Err(JournalError::NotThere { .. }));
            if is_there || self.registry.get(id).is_some() {
                continue;
            }
            let mut summary = Summary::new(Arc::new(overview.meta), overview.created_at);
            summary.updated_at = overview.updated_at;
            summary.cwd = overview.cwd;
            summary.archived = overview.archived;
            summary.dir_name = item.log.dir().rsplit('/').next().unwrap_or_default().to_owned();
            summary.break_down(Broken::Log, gone(id, &item.log));
            self.behind.broken(&item.log, gone(id, &item.log));
            if let Err(refusal) = self.registry.add(summary) {
                tracing::warn!(session = %id, %refusal, "a session whose log is gone is not listed");
            }
        }
    }
}

/// What whoever asks for something of a broken session is told.
pub(crate) fn refusal(id: SessionId, summary: &Summary) -> Refusal {
    let why = match summary.details.as_deref().map(|details| &details.state) {
        Some(State::Failed(failure)) => failure.message.clone(),
        _ => "the daemon's log has the reason".to_owned(),
    };
    Refusal::new(Code::Eshutdown, failed(id, &why))
}

fn failed(id: SessionId, why: &str) -> String {
    format!("session {id} has failed: {why}")
}

impl Summary {
    /// Failed, whatever its log says.
    pub(crate) fn break_down(&mut self, broken: Broken, failure: Failure) {
        let mut details = match &self.details {
            Some(details) => (**details).clone(),
            None => Details::unread(&self.meta),
        };
        (details.state, details.current_run, details.approvals) = (State::Failed(failure), None, 0);
        self.details = Some(Arc::new(details));
        (self.state, self.failing, self.broken) = (StateName::Failed, None, Some(broken));
    }
}
