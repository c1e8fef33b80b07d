//! How a session is over: ended by its operator, or failed for good.

use super::{answer, attach::detached, count_changed, moved, over, run::closing_records};
use crate::code::Refusal;
use crate::command::{Answer, Decision, Effect, Outcome, Partial};
use crate::record::{
    Body, CancelReason, CompactionBody, CompactionRejected, DetachReason, Failure, Rejection, SessionBody,
    StateName, Trigger,
};
use crate::session::{Session, State};
use crate::time::Timestamp;

/// Ends a session: a run that goes on or waits is cancelled with it, in the same command.
pub(super) fn end(
    session: &Session,
    by: u32,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle
        | State::Running { .. }
        | State::Queued { .. }
        | State::Paused { .. }
        | State::Failed(_) => {}
        State::Ended => return Err(over(session)),
    }
    let outcome = Outcome::Cancelled { reason: CancelReason::SessionEnded, by: Some(by) };
    let last = moved(session.state.name(), StateName::Ended, Trigger::SessionEnded, Some(by));
    let mut rest = unanswered(session, Some(by), Rejection::SessionEnded);
    rest.push(last);
    Ok(close(session, &outcome, partial, now, rest, StateName::Ended))
}

/// An error that no later command can mend. A session that is over already stays as it is.
pub(super) fn fail(
    session: &Session,
    failure: &Failure,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {}
        State::Ended | State::Failed(_) => return Ok(answer(Answer::Ignored)),
    }
    let mut rest = unanswered(session, None, Rejection::SessionFailed);
    rest.extend([
        Body::Session(SessionBody::Failed(failure.clone())),
        moved(session.state.name(), StateName::Failed, Trigger::SessionFailed, None),
    ]);
    Ok(close(session, &Outcome::Failed(failure.clone()), partial, now, rest, StateName::Failed))
}

/// What is proposed comes to nothing with its session.
fn unanswered(session: &Session, by: Option<u32>, reason: Rejection) -> Vec<Body> {
    let rejected =
        |id| Body::Compaction(CompactionBody::Rejected(CompactionRejected { compaction_id: id, by, reason }));
    session.control.proposed().map(|waiting| rejected(waiting.id())).collect()
}

fn close(
    session: &Session,
    outcome: &Outcome,
    partial: Option<&Partial>,
    now: Timestamp,
    last: Vec<Body>,
    to: StateName,
) -> Decision {
    let from = session.state.name();
    let mut records = Vec::new();
    let mut effects = Vec::new();
    if let Some(run) = session.current_run() {
        records.extend(closing_records(session, run, outcome, partial, now));
        if matches!(from, StateName::Running | StateName::Paused) {
            effects.push(Effect::KillRun { run: run.id });
        }
    }
    if let Some(old) = session.attached {
        let reason = DetachReason::SessionEnded;
        records.push(detached(old, reason));
        effects.push(Effect::CloseConnection { connection: old.connection, reason });
    }
    records.extend(last);
    effects.push(Effect::CloseClients);
    // A failed session that is ended has freed its name when it failed.
    if !from.is_over() {
        effects.push(Effect::FreeName);
    }
    effects.extend(count_changed(from, to));
    Decision { records, effects, answer: Answer::Done }
}
