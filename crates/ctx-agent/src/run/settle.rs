//! Settling tool calls: each is recorded, judged by the policy, made, and its result recorded, in order.
//!
//! A call that cannot be made is no failure of the run: the model is told why and goes on.

use std::sync::Arc;

use ctx_session::command::Progress;
use ctx_session::record::{BlobRef, ToolStatus};
use ctx_session::{CallId, Code};
use serde_json::Value;
use tokio::time::Instant;

use super::Stopped;
use super::call::cut;
use super::pack::Settled;
use super::report::Voice;
use crate::describe::policy::{Effects, Policy, Verdict};
use crate::model::ToolCall;
use crate::tool::{Plan, Scope, Tool, ToolError, Tools};

/// Settles the calls of one answer. All of them are recorded as started first: they belong to one message.
pub(super) async fn settle(
    calls: &[ToolCall],
    tools: &Tools,
    policy: &Policy,
    scope: &Arc<Scope>,
    voice: &Voice<'_>,
) -> Result<Vec<Settled>, Stopped> {
    let mut started = Vec::with_capacity(calls.len());
    for call in calls {
        let call_id = CallId(voice.new_id());
        let ToolCall { provider_call_id, name, input } = call.clone();
        voice.progress(Progress::ToolStarted { call_id, provider_call_id, name, input }).await?;
        started.push((call_id, call));
    }
    let mut settled = Vec::with_capacity(calls.len());
    for (call_id, call) in started {
        let begin = Instant::now();
        let (status, text) = match make(call, tools, policy, scope).await {
            Ok(text) => (ToolStatus::Ok, text),
            Err(error) => (ToolStatus::Error, error.to_string()),
        };
        let duration_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (output, blob) = fit(text, scope.limits.tool_output_bytes, voice).await?;
        let finished = Progress::ToolFinished {
            call_id,
            status,
            duration_ms,
            output: output.clone(),
            truncated: blob.is_some(),
            blob,
        };
        voice.progress(finished).await?;
        settled.push(Settled { call_id, call: call.clone(), status, output });
    }
    Ok(settled)
}

async fn make(
    call: &ToolCall,
    tools: &Tools,
    policy: &Policy,
    scope: &Arc<Scope>,
) -> Result<String, ToolError> {
    let tool = tools.get(&call.name)?;
    let effects = tool.effects();
    let plan = plan(tool, call.input.clone(), scope).await?;
    permit(policy, &call.name, effects, &plan)?;
    plan.work.await
}

/// Planning looks at the disk, so it is done off the async threads.
async fn plan(tool: Arc<dyn Tool>, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
    let scope = Arc::clone(scope);
    match tokio::task::spawn_blocking(move || tool.plan(input, &scope)).await {
        Ok(plan) => plan,
        Err(error) => Err(ToolError::new(Code::Eio, format!("the tool stopped working: {error}"))),
    }
}

fn permit(policy: &Policy, tool: &str, effects: Effects, plan: &Plan) -> Result<(), ToolError> {
    let on = plan.subjects.first().map(|subject| format!(" on {subject}")).unwrap_or_default();
    match policy.decide(tool, effects, &plan.subjects) {
        Verdict::Allow => Ok(()),
        Verdict::Deny => {
            Err(ToolError::new(Code::Eacces, format!("the policy denies {tool}{on}; do without it")))
        }
        Verdict::Ask => {
            let message = format!(
                "the policy wants an operator's approval for {tool}{on}, and nobody can give one yet; do without it"
            );
            Err(ToolError::new(Code::Eacces, message))
        }
    }
}

/// Output that is too large is kept whole as a blob; the model gets its beginning and is told so.
async fn fit(
    text: String,
    bytes_max: usize,
    voice: &Voice<'_>,
) -> Result<(String, Option<BlobRef>), Stopped> {
    if text.len() <= bytes_max {
        return Ok((text, None));
    }
    let blob = voice.store_blob(text.as_bytes().to_vec()).await?;
    let note = format!("\n[output cut: {} bytes in all, kept as blob {}]", text.len(), blob.sha256);
    let mut preview = cut(&text, bytes_max.saturating_sub(note.len())).to_owned();
    preview.push_str(&note);
    Ok((preview, Some(blob)))
}
