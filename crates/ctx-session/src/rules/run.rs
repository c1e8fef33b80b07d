//! A run while it goes on, its end, and its cancellation. Whichever end comes first wins; later ones are no-ops.

use serde_json::Value;

use super::{answer, count_changed, moved, queue::discard};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Effect, Outcome, Partial, Progress};
use crate::ids::RunId;
use crate::record::{
    AssistantFinished, AssistantStarted, Body, CancelReason, Cancelled, Failed, FinishReason,
    ReasoningFinished, RunFinished, StateName, ToolFinished, ToolStarted, ToolStatus, Trigger,
};
use crate::session::{Run, RunState, Session, State};
use crate::time::Timestamp;

/// Progress of a run that is over comes from a loop that has not noticed yet: it is dropped.
pub(super) fn progress(session: &Session, run: RunId, progress: &Progress) -> Result<Decision, Refusal> {
    match &session.state {
        State::Running { run: current } if *current == run => {}
        State::Running { .. } | State::Idle | State::Queued { .. } | State::Ended | State::Failed(_) => {
            return Ok(answer(Answer::Ignored));
        }
    }
    check_tool(session, progress)?;
    let body = progress_record(run, progress);
    Ok(Decision { records: vec![body], effects: Vec::new(), answer: Answer::Done })
}

/// In the log every tool that ends has started, and ends once.
fn check_tool(session: &Session, progress: &Progress) -> Result<(), Refusal> {
    let is_open = |call_id| session.open_tools().any(|(open, _)| open == call_id);
    match progress {
        Progress::ToolStarted { call_id, .. } if is_open(*call_id) => {
            Err(Refusal::new(Code::Eexist, format!("tool call {call_id} has started already")))
        }
        Progress::ToolFinished { call_id, .. } if !is_open(*call_id) => {
            Err(Refusal::new(Code::Enoent, format!("no tool call {call_id} is open in this run")))
        }
        Progress::ToolStarted { .. }
        | Progress::ToolFinished { .. }
        | Progress::AssistantStarted { .. }
        | Progress::AssistantFinished { .. }
        | Progress::ReasoningFinished { .. } => Ok(()),
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

fn progress_record(turn_id: RunId, progress: &Progress) -> Body {
    match progress.clone() {
        Progress::AssistantStarted { message_id, model, step } => {
            Body::AssistantStarted(AssistantStarted { turn_id, message_id, model, step })
        }
        Progress::AssistantFinished { message_id, text, finish_reason, usage } => {
            Body::AssistantFinished(AssistantFinished { turn_id, message_id, text, finish_reason, usage })
        }
        Progress::ReasoningFinished { message_id, text } => {
            Body::ReasoningFinished(ReasoningFinished { turn_id, message_id, text })
        }
        Progress::ToolStarted { call_id, provider_call_id, name, input } => {
            let input = readable(input);
            Body::ToolStarted(ToolStarted { turn_id, call_id, provider_call_id, name, input })
        }
        Progress::ToolFinished { call_id, status, duration_ms, output, truncated, blob } => {
            Body::ToolFinished(ToolFinished {
                turn_id,
                call_id,
                status,
                duration_ms,
                output,
                truncated,
                blob,
            })
        }
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
        (State::Idle | State::Running { .. } | State::Queued { .. } | State::Ended | State::Failed(_), _) => {
            return Ok(answer(Answer::Ignored));
        }
    };
    let mut records = settle(session, current, outcome, partial, now);
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

/// The records that close a run: what was cut off is kept, open tools are settled, then the end itself.
pub(super) fn settle(
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
        records.push(Body::AssistantFinished(AssistantFinished {
            turn_id: run.id,
            message_id: partial.message_id,
            text: partial.text.clone(),
            finish_reason,
            usage: None,
        }));
    }
    for (call_id, started) in session.open_tools_of(run.id) {
        records.push(Body::ToolFinished(ToolFinished {
            turn_id: run.id,
            call_id,
            status: ToolStatus::Interrupted,
            duration_ms: now.millis_since(started),
            output: "the run ended before this tool did".to_owned(),
            truncated: false,
            blob: None,
        }));
    }
    // Waiting in the queue is not work.
    let duration_ms = run.started_at.map_or(0, |started| now.millis_since(started));
    records.push(match outcome {
        Outcome::Done => Body::RunFinished(RunFinished { turn_id: run.id, duration_ms, usage: run.usage }),
        Outcome::Failed(failure) => Body::Failed(Failed {
            turn_id: run.id,
            code: failure.code,
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            duration_ms,
        }),
        Outcome::Cancelled { reason, by } => {
            Body::Cancelled(Cancelled { turn_id: run.id, reason: *reason, by: *by, duration_ms })
        }
    });
    records
}

/// Asks a run to stop. Its end comes as `FinishRun`, so that a run which ends by itself meanwhile wins.
pub(super) fn cancel_run(
    session: &Session,
    run: RunId,
    reason: CancelReason,
    by: Option<u32>,
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
        State::Running { .. } | State::Queued { .. } | State::Idle | State::Ended | State::Failed(_) => {
            Ok(answer(Answer::Run { run, state }))
        }
    }
}
