//! Approvals: a tool call that waits for the operator. Whoever answers first decides; nobody in time means no.

use super::{answer, busy, over};
use crate::code::{Code, Refusal};
use crate::command::{Answer, ApprovalAnswer, Decision, Effect};
use crate::control::Approval;
use crate::ids::ApprovalId;
use crate::limits::Limits;
use crate::record::{ApprovalBody, ApprovalOutcome, ApprovalScope, ApprovalSettled, Body};
use crate::session::{Session, State};

pub(super) fn answer_approval(
    session: &Session,
    id: ApprovalId,
    given_answer: ApprovalAnswer,
    note: Option<&str>,
    limits: &Limits,
) -> Result<Decision, Refusal> {
    let (outcome, scope, by) = match given_answer {
        ApprovalAnswer::Allow { by, scope } => (ApprovalOutcome::Allow, scope, Some(by)),
        ApprovalAnswer::Deny { by } => (ApprovalOutcome::Deny, ApprovalScope::Call, Some(by)),
        ApprovalAnswer::Timeout => (ApprovalOutcome::Timeout, ApprovalScope::Call, None),
    };
    let found = match (session.control.approval(id), given_answer) {
        (Some(found), _) => found,
        // A clock that nobody stopped.
        (None, ApprovalAnswer::Timeout) => return Ok(answer(Answer::Ignored)),
        (None, ApprovalAnswer::Allow { .. } | ApprovalAnswer::Deny { .. }) => {
            return Err(Refusal::new(Code::Enoent, format!("no approval {id} in this session")));
        }
    };
    if let Some((settled, _)) = &found.settled {
        return match given_answer {
            ApprovalAnswer::Timeout => Ok(answer(Answer::Ignored)),
            ApprovalAnswer::Allow { .. } | ApprovalAnswer::Deny { .. } if session.state.name().is_over() => {
                Err(over(session))
            }
            ApprovalAnswer::Allow { .. } | ApprovalAnswer::Deny { .. } => {
                let how = settled.outcome.as_str();
                Err(busy(&format!("this approval was already answered: {how}")))
            }
        };
    }
    match (&session.state, given_answer) {
        (State::Running { .. }, _) => {}
        // Its time stands still while the session is paused.
        (State::Paused { .. }, ApprovalAnswer::Timeout) => return Ok(answer(Answer::Held)),
        (State::Paused { .. }, ApprovalAnswer::Allow { .. } | ApprovalAnswer::Deny { .. }) => {
            return Err(busy("the session is paused; resume it, then answer"));
        }
        (State::Idle | State::Queued { .. }, _) => {
            return Err(busy("no run waits for this approval"));
        }
        (State::Ended | State::Failed(_), _) => return Err(over(session)),
    }
    if note.is_some_and(|note| note.len() > limits.title_bytes) {
        return Err(Refusal::invalid("note", format!("a note has at most {} bytes", limits.title_bytes)));
    }
    let note = note.map(str::trim).filter(|note| !note.is_empty()).map(str::to_owned);
    let settle = |of: &Approval, scope| {
        let (turn_id, approval_id, note) = (of.asked.turn_id, of.asked.approval_id, note.clone());
        let settled = ApprovalSettled { turn_id, approval_id, outcome, scope, by, note };
        Body::Approval(ApprovalBody::Settled(settled))
    };
    // What is allowed until the session ends is allowed to those that wait for the same, too.
    let is_same = |other: &&Approval| {
        let (one, other) = (&found.asked, &other.asked);
        one.approval_id != other.approval_id && (&one.tool, &one.pattern) == (&other.tool, &other.pattern)
    };
    let others = session.control.open_approvals().filter(|_| scope == ApprovalScope::Session).filter(is_same);
    let others: Vec<&Approval> = others.collect();
    let mut records = vec![settle(found, scope)];
    records.extend(others.iter().map(|other| settle(other, ApprovalScope::Call)));
    let settled = std::iter::once(id).chain(others.iter().map(|other| other.asked.approval_id));
    let effects = settled.map(|approval| Effect::ApprovalSettled { approval }).collect();
    Ok(Decision { records, effects, answer: Answer::Done })
}
