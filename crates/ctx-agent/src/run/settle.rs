//! Settling tool calls: each is recorded, judged by the policy, made, and its result recorded, in order.
//!
//! A call that cannot be made is no failure of the run: the model is told why and goes on.

use std::sync::Arc;

use ctx_session::command::{ApprovalAsk, Approved, Progress, StartedTool};
use ctx_session::record::{ApprovalOutcome, BlobRef, ToolStatus};
use ctx_session::{CallId, Code};
use serde_json::Value;
use tokio::time::Instant;

use crate::control::policy::{Effects, Policy, Verdict};
use crate::cut;
use crate::model::ToolCall;
use crate::tool::checkpoint::CHECKPOINT;
use crate::tool::output::OUTPUT_READ;
use crate::tool::{Plan, Scope, Tool, ToolError, Tools, Work};
use ctx_session::port::RunPort;
use ctx_session::port::Stopped;

/// Settles the calls of one answer. All of them are recorded as started first: they belong to one message. Those behind
/// a checkpoint begin after it.
pub(super) async fn settle(
    calls: &[StartedTool],
    tools: &Tools,
    policy: &Policy,
    scope: &Arc<Scope>,
    port: &dyn RunPort,
) -> Result<(), Stopped> {
    let mut rest = calls;
    while !rest.is_empty() {
        let pause = rest.iter().position(|call| call.name == CHECKPOINT);
        let (now, behind) =
            rest.split_at_checked(pause.map_or(rest.len(), |at| at + 1)).unwrap_or((rest, &[]));
        let (calls, waiting) = (now.to_vec(), behind.to_vec());
        let begun = match behind {
            [] => Progress::ToolsStarted(calls),
            [_, ..] => Progress::ToolsStartedUpTo { calls, behind: waiting },
        };
        port.progress(begun).await?;
        make_all(now, tools, policy, scope, port).await?;
        rest = behind;
    }
    Ok(())
}

async fn make_all(
    calls: &[StartedTool],
    tools: &Tools,
    policy: &Policy,
    scope: &Arc<Scope>,
    port: &dyn RunPort,
) -> Result<(), Stopped> {
    for call in calls {
        let begin = Instant::now();
        let (status, text) = match make(call, tools, policy, scope, port).await? {
            Made::Said(text) => (ToolStatus::Ok, text),
            Made::Failed(error) => (ToolStatus::Error, error.to_string()),
            Made::SettledAlready => continue,
        };
        let duration_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let call_id = call.call_id;
        let back = tools.get(OUTPUT_READ).is_ok().then_some(call_id);
        let (output, blob) = fit(text, back, scope.limits.tool_output_bytes, port).await?;
        let truncated = blob.is_some();
        port.progress(Progress::ToolFinished { call_id, status, duration_ms, output, truncated, blob })
            .await?;
    }
    Ok(())
}

/// The calls of an answer, each with an id of ours.
pub(super) fn started(calls: Vec<ToolCall>, port: &dyn RunPort) -> Vec<StartedTool> {
    let with_id = calls.into_iter().map(|call| {
        let ToolCall { provider_call_id, name, input } = call;
        StartedTool { call_id: CallId(port.new_id()), provider_call_id, name, input }
    });
    with_id.collect()
}

/// What became of a call.
enum Made {
    Said(String),
    Failed(ToolError),
    /// Its result is in the log.
    SettledAlready,
}

impl From<Result<String, ToolError>> for Made {
    fn from(result: Result<String, ToolError>) -> Made {
        match result {
            Ok(text) => Made::Said(text),
            Err(error) => Made::Failed(error),
        }
    }
}

async fn make(
    call: &StartedTool,
    tools: &Tools,
    policy: &Policy,
    scope: &Arc<Scope>,
    port: &dyn RunPort,
) -> Result<Made, Stopped> {
    let tool = match tools.get(&call.name) {
        Ok(tool) => tool,
        Err(error) => return Ok(Made::Failed(error)),
    };
    let effects = tool.effects();
    let plan = match plan(tool, call.input.clone(), scope).await {
        Ok(plan) => plan,
        Err(error) => return Ok(Made::Failed(error)),
    };
    let Plan { subjects, work } = plan;
    let said = match permit(policy, call, effects, &subjects, port).await? {
        Ok(said) => said.unwrap_or_default(),
        Err(error) => return Ok(Made::Failed(error)),
    };
    match work {
        Work::Do(work) => Ok(work.await.map(|output| output + &said).into()),
        Work::Checkpoint { reason } => {
            port.checkpoint(call.call_id, reason).await?;
            Ok(Made::SettledAlready)
        }
        Work::Output(window) => {
            let told = port.output(window.call).await?;
            let told = told.map_err(|refusal| ToolError::new(refusal.code, refusal.message));
            Ok(told.and_then(|whole| window.of(&whole)).map(|output| output + &said).into())
        }
        Work::Issue(act) => {
            let told = port.issue(act).await?;
            Ok(told.map_err(|refusal| ToolError::new(refusal.code, refusal.message)).into())
        }
    }
}

/// Planning looks at the disk, so it is done off the async threads.
async fn plan(tool: Arc<dyn Tool>, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
    let scope = Arc::clone(scope);
    match tokio::task::spawn_blocking(move || tool.plan(input, &scope)).await {
        Ok(plan) => plan,
        Err(error) => Err(ToolError::new(Code::Eio, format!("the tool stopped working: {error}"))),
    }
}

/// Whether the policy, and where it wants to be asked the operator, lets a call be made; with the operator's note, if
/// there is one.
async fn permit(
    policy: &Policy,
    call: &StartedTool,
    effects: Effects,
    subjects: &[String],
    port: &dyn RunPort,
) -> Result<Result<Option<String>, ToolError>, Stopped> {
    let tool = &call.name;
    let subject = subjects.first();
    let on = subject.map(|subject| format!(" on {subject}")).unwrap_or_default();
    let denied = |message| Ok(Err(ToolError::new(Code::Eacces, message)));
    match policy.decide(tool, effects, subjects) {
        Verdict::Allow => return Ok(Ok(None)),
        Verdict::Deny => return denied(format!("the policy denies {tool}{on}; do without it")),
        Verdict::Ask => {}
    }
    let ask = ApprovalAsk { call: call.call_id, tool: tool.clone(), subject: subject.cloned() };
    let Approved { outcome, note } = port.approval(ask).await?;
    let said = note.as_ref().map(|note| format!("\n[the operator: {note}]"));
    let note = note.map(|note| format!(": {note}")).unwrap_or_default();
    match outcome {
        ApprovalOutcome::Allow => Ok(Ok(said)),
        ApprovalOutcome::Deny => denied(format!("the operator denied {tool}{on}{note}; do without it")),
        ApprovalOutcome::Timeout | ApprovalOutcome::Interrupted => {
            denied(format!("nobody approved {tool}{on} in time; do without it, or ask again later"))
        }
    }
}

/// Output that is too large is kept whole as a blob; the model gets its beginning and is told so, and how it can read
/// the rest.
async fn fit(
    text: String,
    back: Option<CallId>,
    bytes_max: usize,
    port: &dyn RunPort,
) -> Result<(String, Option<BlobRef>), Stopped> {
    if text.len() <= bytes_max {
        return Ok((text, None));
    }
    let blob = port.store_blob(text.as_bytes().to_vec()).await?;
    let note = |shown: usize| match back {
        Some(call) => format!(
            "\n[output cut at {shown} of {} bytes; read on with {OUTPUT_READ}, call_id {call}, offset {shown}]",
            text.len()
        ),
        None => format!("\n[output cut: {} bytes in all, kept as blob {}]", text.len(), blob.sha256),
    };
    // The longest that the note can be is that of the whole.
    let mut preview = cut(&text, bytes_max.saturating_sub(note(text.len()).len())).to_owned();
    let note = note(preview.len());
    preview.push_str(&note);
    Ok((preview, Some(blob)))
}
