//! Trying again: a new run from the log after one that failed or was cancelled, without a new message.

use super::post::context_record;
use super::{Given, busy, count_changed, moved, over, slot_of};
use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, Decision, Effect};
use crate::ids::RunId;
use crate::record::{
    Archived, Body, RunBody, RunCreated, RunKind, RunWishes, SessionBody, StateName, Trigger,
};
use crate::session::{Run, RunState, Session, State};

pub(super) fn retry(
    session: &Session,
    admission: &Admission,
    by: u32,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let last = may_retry(session)?.id;
    let context = slot_of(admission)?;
    let run = RunId(given.ids.next(given.now));
    let (from, to) = (StateName::Idle, StateName::Running);
    let back = session
        .archived
        .then_some(Body::Session(SessionBody::Archived(Archived { archived: false, by: None })));
    let mut records: Vec<Body> = back.into_iter().collect();
    records.extend([
        Body::Run(RunBody::Created(RunCreated {
            turn_id: run,
            kind: RunKind::Continuation,
            continues: Some(last),
            strategy: None,
            wishes: wishes_of_retry(session, by),
        })),
        context_record(run, context),
        moved(from, to, Trigger::RunRetried, Some(by)),
    ]);
    let effects = std::iter::once(Effect::StartRun { run }).chain(count_changed(from, to)).collect();
    Ok(Decision { records, effects, answer: Answer::Run { run, state: RunState::Running } })
}

/// What came with the message holds for its retry too, unless another user asks: what is looser than the owner's word is
/// the owner's to say.
pub fn wishes_of_retry(session: &Session, by: u32) -> RunWishes {
    let last = last_run(session).filter(|_| by == session.meta.owner);
    last.map(|run| run.wishes.clone()).unwrap_or_default()
}

/// A compaction is asked for again by name; what it was to work on is not a message.
fn last_run(session: &Session) -> Option<&Run> {
    session.runs().rev().find(|run| run.kind != RunKind::Compaction)
}

/// The run that is tried again, where there is one.
fn may_retry(session: &Session) -> Result<&Run, Refusal> {
    match &session.state {
        State::Idle => {}
        State::Running { .. } => {
            return Err(busy("the session is running; there is nothing to try again yet"));
        }
        State::Queued { .. } => return Err(busy("a message is queued; resume or discard it first")),
        State::Paused { .. } => return Err(busy("the session is paused; resume it or roll it back first")),
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    let nothing = |why: &str| Err(Refusal::new(Code::Enoent, format!("{why}; send a message instead")));
    match last_run(session) {
        None => nothing("the session has no run to try again"),
        Some(run) => match run.state {
            RunState::Failed(_) | RunState::Cancelled if run.started_at.is_some() => Ok(run),
            RunState::Failed(_) | RunState::Cancelled => nothing("the last run never began"),
            RunState::Done | RunState::Pending | RunState::Running => {
                nothing("the last run did not fail: it came to its end")
            }
        },
    }
}
