//! What is shown of a session besides its summary: from the session itself, or from the index.

use ctx_session::record::{SessionMeta, Usage};
use ctx_session::{IssueId, Missing, RunId, Session, State, StateName, Timestamp};
use ctx_views::db::SessionItem;

/// What is shown of a session besides its summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    pub state: State,
    pub title: Option<String>,
    pub model_override: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// The run that goes on, waits or is paused.
    pub current_run: Option<RunId>,
    pub bound_issue: Option<IssueId>,
    /// Tool calls that wait for the operator.
    pub approvals: usize,
    /// What its model calls have cost.
    pub usage: Usage,
    /// What its log has lost.
    pub missing: Option<Missing>,
}

impl Details {
    /// Of a session whose log was not read, or cannot be.
    pub fn unread(meta: &SessionMeta) -> Details {
        Details {
            state: State::Idle,
            title: meta.title.clone(),
            model_override: None,
            ended_at: None,
            current_run: None,
            bound_issue: None,
            approvals: 0,
            usage: Usage::default(),
            missing: None,
        }
    }

    pub fn of(session: &Session) -> Details {
        Details {
            state: session.state.clone(),
            title: session.title.clone(),
            model_override: session.model_override.clone(),
            ended_at: session.ended_at,
            current_run: session.current_run().map(|run| run.id),
            bound_issue: session.bound_issue,
            approvals: session.control.open_approvals().count(),
            usage: session.overview.usage,
            missing: session.missing,
        }
    }

    /// Whether a session would give the same, without making it.
    pub(crate) fn are_of(&self, session: &Session) -> bool {
        self.state == session.state
            && self.title == session.title
            && self.model_override == session.model_override
            && self.ended_at == session.ended_at
            && self.current_run == session.current_run().map(|run| run.id)
            && self.bound_issue == session.bound_issue
            && self.approvals == session.control.open_approvals().count()
            && self.usage == session.overview.usage
            && self.missing == session.missing
    }

    /// From the index; None where it does not know enough.
    pub(crate) fn of_row(item: &SessionItem) -> Option<Details> {
        let row = &item.row;
        let state = match row.state {
            StateName::Idle => State::Idle,
            StateName::Ended => State::Ended,
            StateName::Failed => State::Failed(row.failure.clone()?),
            StateName::Running | StateName::Queued | StateName::Paused => return None,
        };
        Some(Details {
            state,
            title: row.title.clone(),
            model_override: row.model_override.clone(),
            ended_at: row.ended_at,
            current_run: None,
            bound_issue: row.bound_issue,
            approvals: 0,
            usage: row.usage,
            missing: row.missing,
        })
    }
}
