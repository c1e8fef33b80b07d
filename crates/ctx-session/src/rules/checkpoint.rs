//! Checkpoints: pausing a run, editing prompts while it is paused, going on, and going back.

use super::{
    Given, answer, busy, compaction, count_changed, moved, over, post::context_record, run::closing_records,
    slot_of,
};
use crate::code::{Code, Refusal};
use crate::command::{
    Admission, Answer, Decision, Effect, FinishedTool, Outcome, Partial, Pauser, RunContext,
};
use crate::control::Checkpoint;
use crate::ids::{CheckpointId, MessageId, RunId};
use crate::ledger::Back;
use crate::limits::Limits;
use crate::record::{
    Body, CancelReason, CheckpointBody, CheckpointBy, CheckpointCreated, CheckpointResumed, CompactionBody,
    CompactionRejected, FilesBack, MessageBody, PromptEdited, Rejection, RolledBack, StateName,
    SubagentSnapshot, SystemNote, ToolStatus, Trigger,
};
use crate::session::{RunState, Session, State};

/// What the model that asked for a checkpoint reads when the session goes on.
const RESUMED: &str = "the session was paused at this checkpoint until its operator went on";

pub(super) fn checkpoint(
    session: &Session,
    by: Pauser,
    reason: Option<&str>,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let run = match (&session.state, by) {
        (State::Running { run }, Pauser::Operator { .. }) => *run,
        (State::Running { run }, Pauser::Model { run: asking, call })
            if *run == asking && session.open_tools_of(asking).any(|(open, _)| open == call) =>
        {
            *run
        }
        // A loop that has not noticed yet that its run is over.
        (_, Pauser::Model { .. }) => return Ok(answer(Answer::Ignored)),
        (State::Idle | State::Queued { .. }, Pauser::Operator { .. }) => {
            return Err(busy("nothing is running in this session; only a run can be paused"));
        }
        (State::Paused { .. }, Pauser::Operator { .. }) => {
            return Err(busy("the session is already paused; resume it or roll it back"));
        }
        (State::Ended | State::Failed(_), Pauser::Operator { .. }) => return Err(over(session)),
    };
    let reason = checked_reason(reason, given.limits)?;
    let checkpoint = CheckpointId(given.ids.next(given.now));
    let mut records = Vec::new();
    let (created_by, who) = match by {
        Pauser::Operator { by } => (CheckpointBy::Operator, Some(by)),
        Pauser::Model { call, .. } => {
            let open = session.open_tools_of(run).find(|(open, _)| *open == call).map(|(_, tool)| tool);
            let lasted = open.map_or(0, |tool| given.now.millis_since(tool.started));
            let caller = open.and_then(|tool| tool.caller.clone());
            records.push(FinishedTool::new(call, ToolStatus::Ok, lasted, RESUMED).record(run, caller));
            (CheckpointBy::Model, None)
        }
    };
    records.push(created(session, checkpoint, run, created_by, who, reason));
    let (from, to) = (StateName::Running, StateName::Paused);
    records.push(moved(from, to, Trigger::Checkpoint, who));
    let effects = count_changed(from, to).into_iter().collect();
    Ok(Decision { records, effects, answer: Answer::Checkpoint { checkpoint } })
}

fn checked_reason(reason: Option<&str>, limits: &Limits) -> Result<Option<String>, Refusal> {
    let Some(reason) = reason.map(str::trim).filter(|reason| !reason.is_empty()) else { return Ok(None) };
    if reason.len() > limits.title_bytes {
        let message = format!("a reason has at most {} bytes", limits.title_bytes);
        return Err(Refusal::invalid("reason", message));
    }
    Ok(Some(reason.to_owned()))
}

/// The record of a checkpoint, with what holds at this moment.
pub(super) fn created(
    session: &Session,
    checkpoint_id: CheckpointId,
    run: RunId,
    created_by: CheckpointBy,
    by: Option<u32>,
    reason: Option<String>,
) -> Body {
    Body::Checkpoint(CheckpointBody::Created(CheckpointCreated {
        checkpoint_id,
        turn_id: run,
        created_by,
        by,
        reason,
        compaction_id: None,
        cursor: session.ledger.newest(),
        prompts: session.control.prompts.in_effect.clone(),
        active_subagents: snapshots(session, run),
    }))
}

pub(super) fn edit_prompt(
    session: &Session,
    checkpoint: CheckpointId,
    target: &str,
    hash: &str,
    by: u32,
) -> Result<Decision, Refusal> {
    let current = current(session, checkpoint)?;
    let Some(old) = current.prompt(target) else {
        let known: Vec<&str> = current.created.prompts.iter().map(|prompt| prompt.target.as_str()).collect();
        let message = format!("no prompt `{target}` here; available: {}", known.join(", "));
        return Err(Refusal::new(Code::Enoent, message));
    };
    if old == hash {
        return Ok(answer(Answer::Done));
    }
    let record = Body::Checkpoint(CheckpointBody::PromptEdited(PromptEdited {
        checkpoint_id: checkpoint,
        target: target.to_owned(),
        old_hash: old.to_owned(),
        new_hash: hash.to_owned(),
        by,
    }));
    Ok(Decision { records: vec![record], effects: Vec::new(), answer: Answer::Done })
}

/// The checkpoint that the session is paused at, if it is this one.
pub(super) fn current(session: &Session, id: CheckpointId) -> Result<&Checkpoint, Refusal> {
    let found = known(session, id)?;
    match &session.state {
        State::Paused { checkpoint } if *checkpoint == id => Ok(found),
        State::Paused { checkpoint } => {
            Err(busy(&format!("the session is paused at checkpoint {checkpoint}, not at this one")))
        }
        State::Idle | State::Running { .. } | State::Queued { .. } => {
            Err(busy("the session is no longer paused at this checkpoint"))
        }
        State::Ended | State::Failed(_) => Err(over(session)),
    }
}

fn known(session: &Session, id: CheckpointId) -> Result<&Checkpoint, Refusal> {
    let found = session.control.checkpoint(id);
    found.ok_or_else(|| Refusal::new(Code::Enoent, format!("no checkpoint {id} in this session")))
}

pub(super) fn resume(
    session: &Session,
    checkpoint: CheckpointId,
    admission: &Admission,
    by: u32,
    message: Option<&str>,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let current = current(session, checkpoint)?;
    let goes_on = session.current_run().is_some_and(|run| !session.is_answered(run.id));
    if message.is_some() && (!goes_on || session.control.proposed_at(current).is_some()) {
        return Err(busy("no run waits for an answer here; resume without a message, then post it"));
    }
    if let Some(proposed) = session.control.proposed_at(current) {
        return compaction::approve(session, proposed.id(), &Default::default(), admission, by, given);
    }
    let from = StateName::Paused;
    let (run, to) = match session.current_run() {
        Some(run) if !session.is_answered(run.id) => (run, StateName::Running),
        done => return Ok(end_of_pause(session, current, done.map(|run| run.id), by, given)),
    };
    let context = slot_of(admission)?;
    let mut records = vec![resumed(current, by)];
    records.extend(continued(current, run.id, context, given));
    records.extend(message.map(|text| answered(run.id, text, given)));
    records.push(moved(from, to, Trigger::CheckpointResumed, Some(by)));
    let effects =
        std::iter::once(Effect::ContinueRun { run: run.id }).chain(count_changed(from, to)).collect();
    Ok(Decision { records, effects, answer: Answer::Run { run: run.id, state: RunState::Running } })
}

/// The operator's answer, as the agent reads it. It is a message of the run that was paused.
fn answered(run: RunId, text: &str, given: &mut Given<'_>) -> Body {
    let message_id = MessageId(given.ids.next(given.now));
    let text = format!("The operator answers: {text}");
    Body::Message(MessageBody::System(SystemNote { turn_id: run, message_id, text, injected: false }))
}

/// The model came to its end while the session was paused: nothing is left to do, and no slot is needed for that.
fn end_of_pause(
    session: &Session,
    current: &Checkpoint,
    run: Option<RunId>,
    by: u32,
    given: &mut Given<'_>,
) -> Decision {
    let mut records = vec![resumed(current, by)];
    let run = run.and_then(|run| session.run(run));
    if let Some(run) = run {
        records.extend(notice(current, run.id, given));
        records.extend(closing_records(session, run, &Outcome::Done, None, given.now));
    }
    records.push(moved(StateName::Paused, StateName::Idle, Trigger::CheckpointResumed, Some(by)));
    let effects = run.map(|run| Effect::KillRun { run: run.id }).into_iter().collect();
    let answer = run.map_or(Answer::Done, |run| Answer::Run { run: run.id, state: RunState::Done });
    Decision { records, effects, answer }
}

pub(super) fn resumed(checkpoint: &Checkpoint, by: u32) -> Body {
    let prompts = checkpoint.edited_prompts();
    Body::Checkpoint(CheckpointBody::Resumed(CheckpointResumed {
        checkpoint_id: checkpoint.id(),
        by,
        prompts,
    }))
}

/// Under what the run goes on, and the notice that its prompts are other than before.
pub(super) fn continued(
    checkpoint: &Checkpoint,
    run: RunId,
    context: &RunContext,
    given: &mut Given<'_>,
) -> Vec<Body> {
    std::iter::once(context_record(run, context)).chain(notice(checkpoint, run, given)).collect()
}

/// What the agent reads when its prompts are other than before. It is a message of the run that was paused.
pub(super) fn notice(checkpoint: &Checkpoint, run: RunId, given: &mut Given<'_>) -> Option<Body> {
    let edited = checkpoint.edited_prompts();
    if edited.is_empty() {
        return None;
    }
    let mut text = "System prompts were updated at this checkpoint.".to_owned();
    for prompt in &edited {
        let old = checkpoint.created.prompts.iter().find(|old| old.target == prompt.target);
        let old = old.map_or("none", |old| old.hash.as_str());
        let whose = if prompt.target == "primary" { String::new() } else { format!(" of {}", prompt.target) };
        text += &format!(" Previous prompt hash{whose}: {old}, new prompt hash: {}.", prompt.hash);
    }
    let message_id = MessageId(given.ids.next(given.now));
    Some(Body::Message(MessageBody::System(SystemNote { turn_id: run, message_id, text, injected: false })))
}

pub(super) fn rollback(
    session: &Session,
    id: CheckpointId,
    by: u32,
    partial: Option<&Partial>,
    files: Option<FilesBack>,
    given: &Given<'_>,
) -> Result<Decision, Refusal> {
    let target = known(session, id)?;
    match &session.state {
        State::Idle | State::Paused { .. } => {}
        State::Running { .. } => {
            return Err(busy("the session is running; pause it or cancel the run, then roll back"));
        }
        State::Queued { .. } => {
            return Err(busy("a message is queued; resume or discard it, then roll back"));
        }
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    let from = session.state.name();
    let Back { mut superseded, restored, restored_calls, elided_calls } = session.ledger.back_to(target.seq);
    let mut records = Vec::new();
    let mut effects = Vec::new();
    if let Some(run) = session.current_run() {
        let outcome = Outcome::Cancelled { reason: CancelReason::RolledBack, by: Some(by) };
        records.extend(closing_records(session, run, &outcome, partial, given.now));
        let cut_off = partial.filter(|partial| !partial.text.is_empty());
        superseded.extend(cut_off.map(|partial| partial.message_id.0));
        effects.push(Effect::KillRun { run: run.id });
    }
    // Going back is rejecting what was proposed, to this checkpoint or to an earlier one.
    let at = session.paused_at();
    let waiting = at.and_then(|at| session.control.proposed_at(at));
    if let Some(waiting) = waiting {
        records.push(Body::Compaction(CompactionBody::Rejected(CompactionRejected {
            compaction_id: waiting.id(),
            by: Some(by),
            reason: Rejection::OperatorRejected,
        })));
    }
    records.push(Body::Checkpoint(CheckpointBody::RolledBack(RolledBack {
        checkpoint_id: id,
        by,
        superseded,
        restored,
        restored_call_ids: restored_calls,
        elided_call_ids: elided_calls,
        files,
    })));
    if from != StateName::Idle {
        let is_reject = waiting.is_some() && at.is_some_and(|at| at.id() == id);
        let trigger = if is_reject { Trigger::CompactionRejected } else { Trigger::RolledBack };
        records.push(moved(from, StateName::Idle, trigger, Some(by)));
    }
    Ok(Decision { records, effects, answer: Answer::Checkpoint { checkpoint: id } })
}

/// What the checkpoint keeps of the run's subagents, with the terminals that they have.
fn snapshots(session: &Session, run: RunId) -> Vec<SubagentSnapshot> {
    let mut kept = session.subagents.snapshots(run);
    for one in &mut kept {
        one.pty_id = session.terminals.of_subagent(one.invocation_id).map(|id| id.to_string());
    }
    kept
}
