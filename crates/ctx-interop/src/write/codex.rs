//! A session as a rollout of Codex. `codex resume` takes it up.

use serde_json::{Value, json};

use super::{Handoff, uuid};
use crate::event::{Verdict, What};
use crate::outcome::exit_code_in_head;

/// The file below `sessions/`, the id to resume, and the lines.
pub struct Rollout {
    pub id: String,
    pub file: String,
    pub text: String,
}

pub fn write(handoff: &Handoff) -> Rollout {
    let id = uuid(7, handoff.at, handoff.random);
    let mut text = String::new();
    let now = handoff.at;
    let mut line = |time: ctx_session::Timestamp, kind: &str, payload: Value| {
        text.push_str(&json!({ "timestamp": time, "type": kind, "payload": payload }).to_string());
        text.push('\n');
    };
    let git = handoff.branch.as_ref().map(|branch| json!({ "branch": branch }));
    let meta = json!({
        "id": id, "timestamp": now, "cwd": handoff.cwd, "originator": "ctx", "cli_version": "0.98.0", "source": "cli",
        "instructions": null, "git": git,
    });
    line(now, "session_meta", meta);
    for event in &handoff.events {
        let at = event.at.unwrap_or(now);
        match &event.what {
            What::User { text } => {
                let content = json!([{ "type": "input_text", "text": text }]);
                line(at, "response_item", json!({ "type": "message", "role": "user", "content": content }));
                line(at, "event_msg", json!({ "type": "user_message", "message": text, "images": [] }));
            }
            What::Assistant { text, .. } => {
                line(at, "event_msg", json!({ "type": "agent_message", "message": text }));
                let content = json!([{ "type": "output_text", "text": text }]);
                line(
                    at,
                    "response_item",
                    json!({ "type": "message", "role": "assistant", "content": content }),
                );
            }
            What::ToolCall { id, name, input: Value::String(input) } => {
                let call = json!({ "type": "custom_tool_call", "status": "completed", "call_id": id, "name": name, "input": input });
                line(at, "response_item", call);
            }
            What::ToolCall { id, name, input } => {
                let arguments = input.to_string();
                let call =
                    json!({ "type": "function_call", "name": name, "arguments": arguments, "call_id": id });
                line(at, "response_item", call);
            }
            What::ToolResult { id, verdict, output, .. } => {
                let is_custom = handoff.events.iter().any(|event| {
                    matches!(&event.what, What::ToolCall { id: call, input: Value::String(_), .. } if call == id)
                });
                let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
                let output = with_code(*verdict, output);
                line(at, "response_item", json!({ "type": kind, "call_id": id, "output": output }));
            }
            What::Compaction { summary } => {
                let content = json!([{ "type": "input_text", "text": summary }]);
                let replacement = json!([{ "type": "message", "role": "user", "content": content }]);
                line(at, "compacted", json!({ "message": summary, "replacement_history": replacement }));
            }
            What::Interrupted => {
                line(at, "event_msg", json!({ "type": "turn_aborted", "reason": "interrupted" }))
            }
            What::Injected { .. } | What::Reasoning { .. } | What::Step { .. } | What::Failed { .. } => {}
        }
    }
    let date = now.to_string();
    let day = date.get(..10).unwrap_or_default().replace('-', "/");
    let moment = date.get(..19).unwrap_or_default().replace(':', "-");
    Rollout { file: format!("{day}/rollout-{moment}-{id}.jsonl"), id, text }
}

/// An output in the words in which Codex says how a command ended, unless it says so already.
fn with_code(verdict: Verdict, output: &str) -> String {
    let code = match verdict {
        Verdict::Interrupted => return format!("aborted by user\n{output}"),
        Verdict::Success => 0,
        Verdict::Failure => 1,
    };
    match exit_code_in_head(output) {
        Some(said) if (said == 0) == (code == 0) => output.to_owned(),
        _ => format!("Exit code: {code}\nOutput:\n{output}"),
    }
}
