//! The issue that a session works on: a pointer, not a state. Binding changes no todo.

use super::{answer, over};
use crate::code::Refusal;
use crate::command::{Answer, Decision};
use crate::ids::IssueId;
use crate::record::{Body, Bound, SessionBody, Unbound};
use crate::session::{Session, State};

pub(super) fn bind(session: &Session, issue: IssueId, by: u32) -> Result<Decision, Refusal> {
    may_change(session)?;
    if session.bound_issue == Some(issue) {
        return Ok(answer(Answer::Done));
    }
    let record = Body::Session(SessionBody::Bound(Bound { issue_id: issue, by }));
    Ok(Decision { records: vec![record], effects: Vec::new(), answer: Answer::Done })
}

pub(super) fn unbind(session: &Session, by: u32) -> Result<Decision, Refusal> {
    may_change(session)?;
    let Some(issue_id) = session.bound_issue else { return Ok(answer(Answer::Done)) };
    let record = Body::Session(SessionBody::Unbound(Unbound { issue_id, by }));
    Ok(Decision { records: vec![record], effects: Vec::new(), answer: Answer::Done })
}

fn may_change(session: &Session) -> Result<(), Refusal> {
    match &session.state {
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => Ok(()),
        State::Ended | State::Failed(_) => Err(over(session)),
    }
}
