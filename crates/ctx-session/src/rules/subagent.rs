//! Subagents: who may start one, and the records of its start and its end.
//!
//! The primary of a run that goes on starts subagents, so many at once; they start none. A pause starts none either: the
//! call waits for the resume. What ends a run ends its subagents.

use super::left_open::{approval_interrupted, interrupted_calls};
use super::{Given, answer, busy};
use crate::code::Refusal;
use crate::command::{Answer, Decision, Effect, Exit, Partial, Spawn};
use crate::control::Approval;
use crate::ids::{RunId, SubagentId};
use crate::limits::Limits;
use crate::record::{
    AssistantFinished, Body, Caller, ExitCause, FinishReason, MessageBody, SubagentBody, SubagentRunning,
    SubagentSpawned,
};
use crate::session::Session;
use crate::subagent::Invocation;
use crate::time::Timestamp;

/// Whether there is room for one more. The refusal is for the model to read.
pub(super) fn may_spawn(session: &Session, run: RunId, limits: &Limits) -> Result<(), Refusal> {
    let max = limits.subagents_per_run;
    if session.subagents.alive_in(run).count() < usize::try_from(max).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(busy(&format!(
        "a run has at most {max} subagents at once, and {max} are at work; dispatch this one when another has ended"
    )))
}

pub(super) fn spawned(
    session: &Session,
    run: RunId,
    spawn: &Spawn,
    given: &Given<'_>,
) -> Result<Decision, Refusal> {
    if session.subagents.get(spawn.invocation_id).is_some() || !session.is_primarys_open_call(spawn.call_id) {
        return Ok(answer(Answer::Ignored));
    }
    may_spawn(session, run, given.limits)?;
    Ok(written(vec![Body::Subagent(SubagentBody::Spawned(SubagentSpawned {
        turn_id: run,
        invocation_id: spawn.invocation_id,
        call_id: spawn.call_id,
        name: spawn.name.clone(),
        model: spawn.model.clone(),
        prompt: spawn.prompt.clone(),
        walltime_ms: spawn.walltime_ms.unwrap_or(given.limits.subagent_walltime_ms),
        memory_bytes: spawn.memory_bytes,
    }))]))
}

pub(super) fn running(of: &Invocation, cage_id: Option<&str>) -> Decision {
    written(vec![Body::Subagent(SubagentBody::Running(SubagentRunning {
        turn_id: of.run(),
        invocation_id: of.id(),
        name: of.name().to_owned(),
        cage_id: cage_id.map(str::to_owned),
    }))])
}

/// The end of one: what it was saying is kept, and its open tools are settled.
pub(super) fn exited(
    session: &Session,
    of: &Invocation,
    exit: &Exit,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Decision {
    let mut records: Vec<Body> = cut_off(of, partial).into_iter().collect();
    let is_its = |caller: Option<&Caller>| caller.is_some_and(|caller| caller.invocation_id == of.id());
    records.extend(interrupted_calls(
        session,
        of.run(),
        "the subagent ended before this tool did",
        now,
        is_its,
    ));
    let is_waiting = |approval: &&Approval| is_its(approval.asked.caller.as_ref());
    let approvals: Vec<&Approval> = session.control.open_approvals().filter(is_waiting).collect();
    records.extend(approvals.iter().map(|approval| approval_interrupted(approval)));
    records.push(Body::Subagent(SubagentBody::Exited(of.exit(exit.cause, exit.message.clone(), now))));
    let settled = approvals.iter().map(|approval| approval.asked.approval_id);
    let effects = settled.map(|approval| Effect::ApprovalSettled { approval }).collect();
    Decision { records, effects, answer: Answer::Done }
}

/// The text that a subagent was saying when it was stopped.
fn cut_off(of: &Invocation, partial: Option<&Partial>) -> Option<Body> {
    let partial = partial.filter(|partial| !partial.text.is_empty())?;
    Some(Body::Message(MessageBody::AssistantFinished(AssistantFinished {
        turn_id: of.run(),
        message_id: partial.message_id,
        text: partial.text.clone(),
        finish_reason: FinishReason::Cancelled,
        usage: None,
        caller: Some(of.caller()),
    })))
}

/// The records that end all subagents of a run that are alive.
pub(super) fn all_exited(session: &Session, run: RunId, cause: ExitCause, now: Timestamp) -> Vec<Body> {
    session.subagents.alive_in(run).map(|alive| exit_record(alive, cause, now)).collect()
}

pub(super) fn exit_record(of: &Invocation, cause: ExitCause, now: Timestamp) -> Body {
    Body::Subagent(SubagentBody::Exited(of.exit(cause, None, now)))
}

/// The subagent of this run that lives and is named.
pub(super) fn alive(session: &Session, run: RunId, id: SubagentId) -> Option<&Invocation> {
    session.subagents.get(id).filter(|found| found.run() == run && found.is_alive())
}

fn written(records: Vec<Body>) -> Decision {
    Decision { records, effects: Vec::new(), answer: Answer::Done }
}
