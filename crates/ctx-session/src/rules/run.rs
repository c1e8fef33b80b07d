//! A run while it goes on, its end, and its cancellation. Whichever end comes first wins; later ones are no-ops.

use std::collections::BTreeSet;

use serde_json::Value;

use super::left_open::{interrupted, skipped};
use super::{Given, answer, compaction, count_changed, moved, queue::discard, subagent};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Effect, Outcome, Partial, Progress, StartedTool};
use crate::ids::{RunId, SubagentId};
use crate::port::Retry;
use crate::record::{
    ApprovalBody, ApprovalRequested, AssistantFinished, AssistantStarted, Body, Caller, CancelReason,
    Cancelled, ExitCause, Failed, FinishReason, MessageBody, Noticed, ReasoningFinished, Retrying, RunBody,
    RunFinished, StateName, ToolBody, ToolPending, ToolStarted, Trigger,
};
use crate::session::{Run, RunState, Session, State};
use crate::subagent::Invocation;
use crate::time::Timestamp;

/// Progress of a run that is over comes from a loop that has not noticed yet: it is dropped. While the session is
/// paused, what was in flight is read to its end, and nothing new begins. What a subagent does that is over is dropped too.
pub(super) fn progress(
    session: &Session,
    run: RunId,
    caller: Option<SubagentId>,
    progress: &Progress,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let Some(is_paused) = is_paused(session, run) else { return Ok(answer(Answer::Ignored)) };
    let subagent = match caller.map(|id| subagent::alive(session, run, id)) {
        None => None,
        Some(Some(alive)) => Some(alive),
        Some(None) => return Ok(answer(Answer::Ignored)),
    };
    check_tool(session, progress)?;
    let caller = subagent.map(Invocation::caller);
    let done = |records| Ok(Decision { records, effects: Vec::new(), answer: Answer::Done });
    match (progress.clone(), is_paused) {
        (
            said @ (Progress::AssistantStarted { .. }
            | Progress::AssistantFinished { .. }
            | Progress::ReasoningFinished { .. }
            | Progress::Retrying(_)
            | Progress::Noticed { .. }
            | Progress::ToolFinished(_)),
            _,
        )
        | (said @ Progress::ApprovalRequested { .. }, false) => {
            done(record_of(run, caller, said).into_iter().collect())
        }
        // A subagent's loop stays where it is through a pause, and says it again when the session goes on.
        (Progress::ToolsStarted(_) | Progress::ToolsStartedUpTo { .. }, true) if caller.is_some() => {
            Ok(answer(Answer::Held))
        }
        (Progress::ToolsStartedUpTo { calls, .. }, false) if caller.is_some() => {
            done(calls.into_iter().map(|call| tool_started(run, call, caller.clone())).collect())
        }
        (Progress::ToolsStarted(calls), false) => {
            done(calls.into_iter().map(|call| tool_started(run, call, caller.clone())).collect())
        }
        (Progress::ToolsStarted(calls), true) => Ok(held(session, run, calls)),
        (Progress::ToolsStartedUpTo { calls, behind }, false) => {
            let behind = still_new(session, behind).map(|call| tool_pending(run, call));
            done(calls.into_iter().map(|call| tool_started(run, call, None)).chain(behind).collect())
        }
        (Progress::ToolsStartedUpTo { mut calls, behind }, true) => {
            calls.extend(behind);
            Ok(held(session, run, calls))
        }
        (
            Progress::ApprovalRequested { .. } | Progress::Compacted(_) | Progress::SubagentSpawned(_),
            true,
        ) => Ok(answer(Answer::Held)),
        (Progress::SubagentSpawned(_), false) if caller.is_some() => Ok(answer(Answer::Ignored)),
        (Progress::SubagentSpawned(spawn), false) => subagent::spawned(session, run, &spawn, given),
        (Progress::SubagentRunning { cage_id }, _) => {
            Ok(subagent.map_or(answer(Answer::Ignored), |one| subagent::running(one, cage_id.as_deref())))
        }
        (Progress::SubagentExited { exit, partial }, _) => Ok(subagent
            .map_or(answer(Answer::Ignored), |one| {
                subagent::exited(session, one, &exit, partial.as_ref(), given.now)
            })),
        (Progress::Compacted(compaction), false) => match session.run(run) {
            Some(run) => compaction::compacted(session, run, &compaction, given),
            None => Ok(answer(Answer::Ignored)),
        },
        (Progress::Together(parts), _) => {
            together(session, run, caller.map(|of| of.invocation_id), &parts, given)
        }
    }
}

/// Whether the session is paused, where the run goes on.
fn is_paused(session: &Session, run: RunId) -> Option<bool> {
    match &session.state {
        State::Running { run: current } if *current == run => Some(false),
        State::Paused { .. } if session.current_run().is_some_and(|current| current.id == run) => Some(true),
        State::Running { .. }
        | State::Paused { .. }
        | State::Idle
        | State::Queued { .. }
        | State::Ended
        | State::Failed(_) => None,
    }
}

/// The record of what is one record whatever the session's state is.
fn record_of(turn_id: RunId, caller: Option<Caller>, progress: Progress) -> Option<Body> {
    let body = match progress {
        Progress::AssistantStarted { message_id, model, step } => {
            let started = AssistantStarted { turn_id, message_id, model, step, caller };
            Body::Message(MessageBody::AssistantStarted(started))
        }
        Progress::AssistantFinished { message_id, text, finish_reason, usage } => {
            let finished = AssistantFinished { turn_id, message_id, text, finish_reason, usage, caller };
            Body::Message(MessageBody::AssistantFinished(finished))
        }
        Progress::ReasoningFinished { message_id, text } => {
            let finished = ReasoningFinished { turn_id, message_id, text, caller };
            Body::Message(MessageBody::ReasoningFinished(finished))
        }
        Progress::Retrying(Retry { code, reason, message, attempt, attempts_max, wait_ms }) => {
            let retry = Retrying { turn_id, code, reason, message, attempt, attempts_max, wait_ms, caller };
            Body::Run(RunBody::Retrying(retry))
        }
        Progress::Noticed { reason, message } => {
            Body::Run(RunBody::Noticed(Noticed { turn_id, reason, message, caller }))
        }
        Progress::ToolFinished(finished) => finished.record(turn_id, caller),
        Progress::ApprovalRequested { approval_id, call_id, tool, subject, pattern, diff, expires_at } => {
            Body::Approval(ApprovalBody::Requested(ApprovalRequested {
                turn_id,
                approval_id,
                call_id,
                tool,
                subject,
                pattern,
                diff,
                expires_at,
                caller,
            }))
        }
        Progress::ToolsStarted(_)
        | Progress::ToolsStartedUpTo { .. }
        | Progress::Compacted(_)
        | Progress::SubagentSpawned(_)
        | Progress::SubagentRunning { .. }
        | Progress::SubagentExited { .. }
        | Progress::Together(_) => return None,
    };
    Some(body)
}

/// None of them rests on another, so each is decided as the session is now. The last one's answer is that to all.
fn together(
    session: &Session,
    run: RunId,
    caller: Option<SubagentId>,
    parts: &[Progress],
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let mut all = answer(Answer::Done);
    for part in parts {
        let one = progress(session, run, caller, part, given)?;
        all.records.extend(one.records);
        all.effects.extend(one.effects);
        all.answer = one.answer;
    }
    Ok(all)
}

/// Calls of a paused run start when it is resumed.
fn held(session: &Session, run: RunId, calls: Vec<StartedTool>) -> Decision {
    let records = still_new(session, calls).map(|call| tool_pending(run, call)).collect();
    Decision { records, effects: Vec::new(), answer: Answer::Held }
}

/// Those of them that do not wait already.
fn still_new(session: &Session, calls: Vec<StartedTool>) -> impl Iterator<Item = StartedTool> + '_ {
    let is_new = |call: &StartedTool| !session.pending_calls().iter().any(|p| p.call_id == call.call_id);
    calls.into_iter().filter(is_new)
}

fn tool_started(turn_id: RunId, call: StartedTool, caller: Option<Caller>) -> Body {
    let StartedTool { call_id, provider_call_id, name, input, provider } = call;
    Body::Tool(ToolBody::Started(ToolStarted {
        turn_id,
        call_id,
        provider_call_id,
        name,
        input: readable(input),
        provider,
        caller,
    }))
}

fn tool_pending(turn_id: RunId, call: StartedTool) -> Body {
    let StartedTool { call_id, provider_call_id, name, input, provider } = call;
    Body::Tool(ToolBody::Pending(ToolPending {
        turn_id,
        call_id,
        provider_call_id,
        name,
        input: readable(input),
        provider,
    }))
}

/// In the log every tool that ends has started, and ends once; a call asks for one approval at a time.
fn check_tool(session: &Session, progress: &Progress) -> Result<(), Refusal> {
    let is_open = |call_id| session.open_tools().any(|(open, _)| open == call_id);
    let not_open =
        |call_id| Refusal::new(Code::Enoent, format!("no tool call {call_id} is open in this run"));
    match progress {
        Progress::ToolsStarted(_) | Progress::ToolsStartedUpTo { .. } => {
            let mut seen = BTreeSet::new();
            match progress.calls().find(|call| is_open(call.call_id) || !seen.insert(call.call_id)) {
                Some(StartedTool { call_id, .. }) => {
                    Err(Refusal::new(Code::Eexist, format!("tool call {call_id} has started already")))
                }
                None => Ok(()),
            }
        }
        Progress::ToolFinished(finished) if !is_open(finished.call_id) => Err(not_open(finished.call_id)),
        Progress::ApprovalRequested { call_id, .. } if !is_open(*call_id) => Err(not_open(*call_id)),
        Progress::ApprovalRequested { approval_id, call_id, .. }
            if session.control.approval(*approval_id).is_some()
                || session.control.open_approval_of(*call_id).is_some() =>
        {
            Err(Refusal::new(Code::Eexist, format!("tool call {call_id} waits for an approval already")))
        }
        Progress::ToolFinished(_)
        | Progress::ApprovalRequested { .. }
        | Progress::AssistantStarted { .. }
        | Progress::AssistantFinished { .. }
        | Progress::ReasoningFinished { .. }
        | Progress::Retrying(_)
        | Progress::Noticed { .. }
        | Progress::SubagentSpawned(_)
        | Progress::SubagentRunning { .. }
        | Progress::SubagentExited { .. }
        | Progress::Compacted(_)
        | Progress::Together(_) => Ok(()),
    }
}

/// The deepest nesting of a tool's input that is kept as JSON: a reader of the log stops at 128 levels.
const INPUT_DEPTH_MAX: usize = 100;

/// Input that could not be read back out of the log is kept as its text.
fn readable(input: Value) -> Value {
    if deeper_than(INPUT_DEPTH_MAX, &input) { Value::String(input.to_string()) } else { input }
}

fn deeper_than(levels: usize, value: &Value) -> bool {
    match (value, levels) {
        (Value::Array(_) | Value::Object(_), 0) => true,
        (Value::Array(items), _) => items.iter().any(|item| deeper_than(levels - 1, item)),
        (Value::Object(fields), _) => fields.values().any(|field| deeper_than(levels - 1, field)),
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => false,
    }
}

pub(super) fn finish_run(
    session: &Session,
    run: RunId,
    outcome: &Outcome,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let current = match (&session.state, session.run(run)) {
        (State::Running { run: current }, Some(found)) if *current == run => found,
        (_, Some(found)) if found.state.is_over() => {
            return Ok(answer(Answer::Run { run, state: found.state.clone() }));
        }
        (State::Paused { .. }, Some(found)) if Some(found) == session.current_run() => {
            return Ok(finish_paused(session, found, outcome, partial, now));
        }
        (
            State::Idle
            | State::Running { .. }
            | State::Queued { .. }
            | State::Paused { .. }
            | State::Ended
            | State::Failed(_),
            _,
        ) => return Ok(answer(Answer::Ignored)),
    };
    let mut records = closing_records(session, current, outcome, partial, now);
    let (from, to) = (StateName::Running, StateName::Idle);
    let (trigger, by, state) = match outcome {
        Outcome::Done => (Trigger::RunCompleted, None, RunState::Done),
        Outcome::Failed(failure) => (Trigger::RunFailed, None, RunState::Failed(failure.clone())),
        Outcome::Cancelled { by, .. } => (Trigger::RunCancelled, *by, RunState::Cancelled),
    };
    records.push(moved(from, to, trigger, by));
    let effects = count_changed(from, to).into_iter().collect();
    Ok(Decision { records, effects, answer: Answer::Run { run, state } })
}

/// A paused run ends when the session is resumed. One that was being cancelled when it was paused ends now.
fn finish_paused(
    session: &Session,
    run: &Run,
    outcome: &Outcome,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Decision {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => answer(Answer::Held),
        Outcome::Cancelled { reason, by } => cancel_paused(session, run, *reason, *by, partial, now),
    }
}

fn cancel_paused(
    session: &Session,
    run: &Run,
    reason: CancelReason,
    by: Option<u32>,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Decision {
    let mut records = closing_records(session, run, &Outcome::Cancelled { reason, by }, partial, now);
    records.push(moved(StateName::Paused, StateName::Idle, Trigger::RunCancelled, by));
    let answer = Answer::Run { run: run.id, state: RunState::Cancelled };
    Decision { records, effects: vec![Effect::KillRun { run: run.id }], answer }
}

/// The records that close a run: what was cut off is kept, open tools are settled, then the end itself.
pub(super) fn closing_records(
    session: &Session,
    run: &Run,
    outcome: &Outcome,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Vec<Body> {
    let mut records = Vec::new();
    if let Some(partial) = partial.filter(|partial| !partial.text.is_empty()) {
        let finish_reason = match outcome {
            Outcome::Done => FinishReason::Stop,
            Outcome::Failed(_) => FinishReason::Error,
            Outcome::Cancelled { .. } => FinishReason::Cancelled,
        };
        records.push(Body::Message(MessageBody::AssistantFinished(AssistantFinished {
            turn_id: run.id,
            message_id: partial.message_id,
            text: partial.text.clone(),
            finish_reason,
            usage: None,
            caller: None,
        })));
    }
    let cause = match outcome {
        Outcome::Failed(failure) if failure.code == Code::Eintr => ExitCause::DaemonStopped,
        Outcome::Done | Outcome::Failed(_) | Outcome::Cancelled { .. } => ExitCause::RunEnded,
    };
    records.extend(interrupted(session, run.id, cause, "the run ended before this tool did", now));
    records.extend(skipped(session, run.id));
    // Waiting in the queue is not work.
    let duration_ms = run.started_at.map_or(0, |started| now.millis_since(started));
    records.push(match outcome {
        Outcome::Done => {
            let (turn_id, usage) = (run.id, run.usage);
            Body::Run(RunBody::Finished(RunFinished { turn_id, duration_ms, usage, finish_reason: None }))
        }
        Outcome::Failed(failure) => Body::Run(RunBody::Failed(Failed {
            turn_id: run.id,
            code: failure.code,
            reason: failure.reason.clone(),
            message: with_edit(session, failure),
            duration_ms,
        })),
        Outcome::Cancelled { reason, by } => Body::Run(RunBody::Cancelled(Cancelled {
            turn_id: run.id,
            reason: *reason,
            by: *by,
            duration_ms,
        })),
    });
    records
}

/// Why a run failed; one that fails before any answer under prompts that were just edited says that they were.
fn with_edit(session: &Session, failure: &crate::record::Failure) -> String {
    let message = &failure.message;
    match session.control.just_edited {
        // What the daemon itself broke off is not the prompt's fault.
        Some(checkpoint) if failure.code != Code::Eintr => {
            format!("{message} (the prompt was edited at checkpoint {checkpoint}, just before)")
        }
        Some(_) | None => message.clone(),
    }
}

/// Asks a run to stop. Its end comes as `FinishRun`, so that a run which ends by itself meanwhile wins.
pub(super) fn cancel_run(
    session: &Session,
    run: RunId,
    reason: CancelReason,
    by: Option<u32>,
    partial: Option<&Partial>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let Some(found) = session.run(run) else {
        return Err(Refusal::new(Code::Enoent, format!("no run {run} in this session")));
    };
    let state = found.state.clone();
    match &session.state {
        State::Running { run: current } if *current == run => Ok(Decision {
            records: Vec::new(),
            effects: vec![Effect::StopRun { run, reason, by }],
            answer: Answer::Run { run, state },
        }),
        // A run that never started has nothing to stop: cancelling it is discarding its message.
        State::Queued { run: current, .. } if *current == run => Ok(discard(session, found, reason, by)),
        State::Paused { .. } if session.current_run() == Some(found) => {
            Ok(cancel_paused(session, found, reason, by, partial, now))
        }
        State::Running { .. }
        | State::Queued { .. }
        | State::Paused { .. }
        | State::Idle
        | State::Ended
        | State::Failed(_) => Ok(answer(Answer::Run { run, state })),
    }
}
