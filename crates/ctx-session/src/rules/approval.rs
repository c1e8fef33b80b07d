//! Approvals: a tool call that waits for the operator. Whoever answers first decides; nobody in time means no.

use super::{answer, busy, over};
use crate::code::{Code, Refusal};
use crate::command::{Answer, ApprovalAnswer, Decision, Effect};
use crate::ids::ApprovalId;
use crate::limits::Limits;
use crate::record::{ApprovalBody, ApprovalOutcome, ApprovalSettled, Body};
use crate::session::{Session, State};

pub(super) fn answer_approval(
    session: &Session,
    id: ApprovalId,
    given_answer: ApprovalAnswer,
    note: Option<&str>,
    limits: &Limits,
) -> Result<Decision, Refusal> {
    let (outcome, by) = match given_answer {
        ApprovalAnswer::Allow { by } => (ApprovalOutcome::Allow, Some(by)),
        ApprovalAnswer::Deny { by } => (ApprovalOutcome::Deny, Some(by)),
        ApprovalAnswer::Timeout => (ApprovalOutcome::Timeout, None),
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
    let record = Body::Approval(ApprovalBody::Settled(ApprovalSettled {
        turn_id: found.asked.turn_id,
        approval_id: id,
        outcome,
        by,
        note: note.map(str::trim).filter(|note| !note.is_empty()).map(str::to_owned),
    }));
    let effects = vec![Effect::ApprovalSettled { approval: id }];
    Ok(Decision { records: vec![record], effects, answer: Answer::Done })
}
