//! The queue: a message that was kept because no slot was free. Nothing is dequeued by itself.

use super::{busy, count_changed, moved, over, post::context_record, slot_of};
use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, Decision, Effect};
use crate::ids::MessageId;
use crate::record::{
    Body, CancelReason, Cancelled, LimitScope, QueuedDiscarded, RunBody, SessionBody, StateChanged,
    StateName, Trigger,
};
use crate::session::{Run, RunState, Session, State};

pub(super) fn resume_queued(session: &Session, admission: &Admission, by: u32) -> Result<Decision, Refusal> {
    let run = queued_run(session)?;
    let context = slot_of(admission)?;
    let (from, to) = (StateName::Queued, StateName::Running);
    // By the limit that it waited for: how many run now, this one among them.
    let limit = match (&session.state, admission) {
        (State::Queued { limit, .. }, Admission::Granted { running, .. }) => {
            let scope = limit.map_or(LimitScope::PerProject, |limit| limit.scope);
            running.iter().find(|running| running.scope == scope).copied()
        }
        _ => None,
    };
    let resumed = StateChanged { from, to, trigger: Trigger::QueueResumed, by: Some(by), limit };
    let records = vec![context_record(run.id, context), Body::Session(SessionBody::StateChanged(resumed))];
    let effects = std::iter::once(Effect::StartRun { run: run.id }).chain(count_changed(from, to)).collect();
    let answer =
        Answer::Posted { run: run.id, message: message_of(run), state: RunState::Running, repeated: false };
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
        Body::Run(RunBody::QueuedDiscarded(QueuedDiscarded {
            turn_id: run.id,
            message_id: message_of(run),
            by: who,
        })),
        Body::Run(RunBody::Cancelled(Cancelled { turn_id: run.id, reason, by, duration_ms: 0 })),
        moved(StateName::Queued, StateName::Idle, Trigger::QueuedDiscarded, by),
    ];
    Decision { records, effects: Vec::new(), answer: Answer::Run { run: run.id, state: RunState::Cancelled } }
}

/// Only messages are queued, so there is one.
pub(super) fn message_of(run: &Run) -> MessageId {
    run.message_id.unwrap_or(MessageId(run.id.0))
}

fn queued_run(session: &Session) -> Result<&Run, Refusal> {
    match &session.state {
        State::Queued { run, .. } => {
            session.run(*run).ok_or_else(|| Refusal::new(Code::Enoent, "the queued message is damaged"))
        }
        State::Idle => Err(Refusal::new(Code::Enoent, "no message is queued in this session")),
        State::Running { .. } => Err(busy("the session is running; nothing is queued")),
        State::Paused { .. } => Err(busy("the session is paused; nothing is queued")),
        State::Ended | State::Failed(_) => Err(over(session)),
    }
}
