//! News of sessions and issues: which came, changed or ended, for those who watch over all of theirs at once.
//!
//! Bounded, and the oldest is dropped: a listener that fell behind is told so and lists them again.

use std::sync::Arc;

use ctx_session::record::{CheckpointBody, Record, Scope, SessionBody, SessionMeta};
use ctx_session::{Body, IssueId, SessionId};
use tokio::sync::broadcast;

/// News that wait for a listener.
const WAITING: usize = 1_024;

/// What happened to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    /// Its state, title, model or directory.
    Changed,
    /// It is over: ended or failed.
    Ended,
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    Session {
        session: SessionId,
        change: Change,
    },
    /// A session is not there any more; this is what it was.
    Purged(Arc<SessionMeta>),
    /// Of an issue with its todos and who works on it.
    Issue {
        issue: IssueId,
        is_new: bool,
    },
}

/// Everyone who listens.
#[derive(Debug)]
pub(crate) struct Newsroom {
    sender: broadcast::Sender<News>,
}

impl Default for Newsroom {
    fn default() -> Newsroom {
        Newsroom { sender: broadcast::Sender::new(WAITING) }
    }
}

impl Newsroom {
    /// Tells what records mean for a session's place in a list, if anything.
    pub fn tell(&self, meta: &SessionMeta, records: &[Record]) {
        if meta.scope == Scope::Temp {
            return;
        }
        let Some(change) = records.iter().filter_map(|record| change_of(&record.body)).next_back() else {
            return;
        };
        self.send(News::Session { session: meta.session_id, change });
    }

    pub fn issue(&self, issue: IssueId, is_new: bool) {
        self.send(News::Issue { issue, is_new });
    }

    pub fn subscribe(&self) -> broadcast::Receiver<News> {
        self.sender.subscribe()
    }

    fn send(&self, news: News) {
        // Nobody listening is fine.
        let _ = self.sender.send(news);
    }

    pub fn purged(&self, meta: &Arc<SessionMeta>) {
        if meta.scope != Scope::Temp {
            self.send(News::Purged(meta.clone()));
        }
    }

    /// A session is over, and no record says so.
    pub fn ended(&self, meta: &SessionMeta) {
        if meta.scope != Scope::Temp {
            self.send(News::Session { session: meta.session_id, change: Change::Ended });
        }
    }

    pub fn created(&self, meta: &SessionMeta) {
        if meta.scope != Scope::Temp {
            self.send(News::Session { session: meta.session_id, change: Change::Created });
        }
    }
}

fn change_of(body: &Body) -> Option<Change> {
    match body {
        Body::Session(SessionBody::Meta(_)) => Some(Change::Created),
        Body::Session(SessionBody::StateChanged(change)) if change.to.is_over() => Some(Change::Ended),
        Body::Approval(_)
        | Body::Session(
            SessionBody::StateChanged(_)
            | SessionBody::Renamed(_)
            | SessionBody::ModelSet(_)
            | SessionBody::CwdChanged(_)
            | SessionBody::Archived(_)
            | SessionBody::Imported(_)
            | SessionBody::ImportUndone(_)
            | SessionBody::Forked(_)
            | SessionBody::Bound(_)
            | SessionBody::Unbound(_),
        )
        | Body::Checkpoint(CheckpointBody::RolledBack(_)) => Some(Change::Changed),
        Body::Run(_)
        | Body::Message(_)
        | Body::Tool(_)
        | Body::Subagent(_)
        | Body::Terminal(_)
        | Body::Compaction(_)
        | Body::Session(
            SessionBody::Attached(_)
            | SessionBody::Detached(_)
            | SessionBody::Failed(_)
            | SessionBody::Requested(_),
        )
        | Body::Checkpoint(
            CheckpointBody::Created(_) | CheckpointBody::PromptEdited(_) | CheckpointBody::Resumed(_),
        ) => None,
    }
}
