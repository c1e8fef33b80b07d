//! The queue: a message that was kept because no slot was free. Nothing is dequeued by itself.

use super::{busy, count_changed, moved, over, post::context_record};
use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, Decision, Effect};
use crate::record::{Body, CancelReason, Cancelled, LimitScope, QueuedDiscarded, StateName, Trigger};
use crate::session::{Run, RunState, Session, State};

pub(super) fn resume_queued(session: &Session, admission: &Admission, by: u32) -> Result<Decision, Refusal> {
    let run = queued_run(session)?;
    let context = match admission {
        Admission::Granted(context) => context,
        Admission::Full(hit) => {
            let whose = match hit.scope {
                LimitScope::PerProject => "in this project",
                LimitScope::PerOperator => "of this operator",
            };
            let message = format!(
                "no slot is free: {} of {} sessions {whose} are running; wait for one to end or cancel one",
                hit.running, hit.limit
            );
            return Err(Refusal::new(Code::Ebusy, message));
        }
    };
    let (from, to) = (StateName::Queued, StateName::Running);
    let records = vec![context_record(run.id, context), moved(from, to, Trigger::QueueResumed, Some(by))];
    let effects = std::iter::once(Effect::StartRun { run: run.id }).chain(count_changed(from, to)).collect();
    let answer =
        Answer::Posted { run: run.id, message: run.message_id, state: RunState::Running, repeated: false };
    Ok(Decision { records, effects, answer })
}

pub(super) fn discard_queued(session: &Session, by: u32) -> Result<Decision, Refusal> {
    let run = queued_run(session)?;
    Ok(discard(session, run, CancelReason::QueuedDiscarded, Some(by)))
}

/// The queued run is cancelled and its message no longer counts. When nobody asked (the last connection of a
/// temp session went), it is the owner's doing.
pub(super) fn discard(session: &Session, run: &Run, reason: CancelReason, by: Option<u32>) -> Decision {
    let who = by.unwrap_or(session.meta.owner);
    let records = vec![
        Body::QueuedDiscarded(QueuedDiscarded { turn_id: run.id, message_id: run.message_id, by: who }),
        Body::Cancelled(Cancelled { turn_id: run.id, reason, by, duration_ms: 0 }),
        moved(StateName::Queued, StateName::Idle, Trigger::QueuedDiscarded, by),
    ];
    Decision { records, effects: Vec::new(), answer: Answer::Run { run: run.id, state: RunState::Cancelled } }
}

fn queued_run(session: &Session) -> Result<&Run, Refusal> {
    match &session.state {
        State::Queued { run, .. } => {
            session.run(*run).ok_or_else(|| Refusal::new(Code::Enoent, "the queued message is damaged"))
        }
        State::Idle => Err(Refusal::new(Code::Enoent, "no message is queued in this session")),
        State::Running { .. } => Err(busy("session is running; nothing is queued")),
        State::Ended | State::Failed(_) => Err(over(session)),
    }
}
