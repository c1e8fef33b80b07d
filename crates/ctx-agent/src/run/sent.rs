//! `context/pack.json`: what a model was sent, from which records, and how many tokens it is taken for. Every model call
//! waits for it, so nothing is built that is not written.

use ctx_session::conversation::{Part, Role, message_tokens};
use ctx_session::estimate::{share, tokens};
use ctx_session::image::Image;
use ctx_session::record::{PromptRef, ToolStatus};
use ctx_session::{RunId, Ulid};
use serde::Serialize;
use serde_json::Value;

use super::compact::{request_tokens, tools_tokens};
use super::{Desk, Job};
use crate::model::Turn;
use crate::sha256_hex;

#[derive(Serialize)]
struct Pack<'a> {
    /// In the order in which they were sent.
    messages: Vec<Sent>,
    model: &'a str,
    prompt_sha256: String,
    prompts: &'a [PromptRef],
    reminder: &'a [String],
    run: RunId,
    share: Option<f64>,
    step: u32,
    tokens: Tokens,
    tools: Vec<&'a str>,
    turns: usize,
    /// Of the turns as JSON with sorted keys and no spaces.
    turns_sha256: String,
    window: Option<u64>,
}

#[derive(Serialize)]
struct Tokens {
    prompt: u64,
    tools: u64,
    total: u64,
}

#[derive(Serialize)]
struct Sent {
    /// In place of what the tool gave stands how it is read back.
    elided: bool,
    id: Ulid,
    role: Role,
    seq: u64,
    tokens: u64,
}

/// The pack of one model call, as the file has it.
pub(super) fn describe(job: &Job, step: u32, desk: &Desk) -> Vec<u8> {
    let request = &desk.request;
    let total = request_tokens(request);
    let sent = desk.step.messages.iter().map(|message| Sent {
        elided: message.role == Role::Tool && desk.step.elided.contains(&message.id),
        id: message.id,
        role: message.role,
        seq: message.seq,
        tokens: message_tokens(message),
    });
    let window = desk.window();
    let pack = Pack {
        messages: sent.collect(),
        model: &request.model,
        prompt_sha256: sha256_hex(request.prompt.as_bytes()),
        prompts: &desk.prepared.context.prompts,
        reminder: if desk.reminded { &desk.step.todos } else { &[] },
        run: job.run,
        share: window.map(|window| share(total, window)),
        step,
        tokens: Tokens { prompt: tokens(&request.prompt), tools: tools_tokens(request), total },
        tools: request.tools.iter().map(|tool| tool.name.as_str()).collect(),
        turns: request.messages.len(),
        turns_sha256: sha256_hex(&sorted(&request.messages)),
        window,
    };
    let mut json = serde_json::to_vec_pretty(&pack).unwrap_or_default();
    json.push(b'\n');
    json
}

#[derive(Serialize)]
struct SortedTurn<'a> {
    content: Vec<SortedPart<'a>>,
    role: Role,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SortedPart<'a> {
    Text {
        text: &'a str,
        r#type: &'static str,
    },
    Image {
        mime: &'a str,
        sha256: &'a str,
        size: u64,
        r#type: &'static str,
    },
    ToolCall {
        call_id: Ulid,
        input: &'a Value,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<&'a Value>,
        r#type: &'static str,
    },
    ToolResult {
        call_id: Ulid,
        status: ToolStatus,
        text: &'a str,
        r#type: &'static str,
    },
}

/// Turns as JSON with sorted keys, so that anyone can make the same bytes of what `debug/script` dumps.
fn sorted(turns: &[Turn]) -> Vec<u8> {
    let turns = turns
        .iter()
        .map(|turn| SortedTurn { content: turn.content.iter().map(sorted_part).collect(), role: turn.role });
    serde_json::to_vec(&turns.collect::<Vec<_>>()).unwrap_or_default()
}

fn sorted_part(part: &Part) -> SortedPart<'_> {
    match part {
        Part::Text { text } => SortedPart::Text { text, r#type: "text" },
        Part::Image(Image { mime, sha256, size }) => {
            SortedPart::Image { mime, sha256, size: *size, r#type: "image" }
        }
        Part::ToolCall { call_id, name, input, provider } => {
            let provider = provider.as_ref();
            SortedPart::ToolCall { call_id: *call_id, input, name, provider, r#type: "tool_call" }
        }
        Part::ToolResult { call_id, status, text } => {
            SortedPart::ToolResult { call_id: *call_id, status: *status, text, r#type: "tool_result" }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn turns_are_sorted_as_a_value_of_them_is() {
        let text = |role, text: &str| Turn { role, content: vec![Part::Text { text: text.to_owned() }] };
        let input = json!({ "path": "a", "z": [1, { "y": 2, "b": null }], "limit": 1.5 });
        let call = Part::ToolCall {
            call_id: Ulid(7),
            name: "fs.read".to_owned(),
            input,
            provider: Some(json!({ "model": "a/b", "items": [1] })),
        };
        let result =
            Part::ToolResult { call_id: Ulid(7), status: ToolStatus::Ok, text: "\u{1}\n\"é".to_owned() };
        let turns = [
            text(Role::User, "read \"a\""),
            Turn {
                role: Role::User,
                content: vec![Part::Image(Image {
                    mime: "image/png".to_owned(),
                    sha256: "ab".to_owned(),
                    size: 7,
                })],
            },
            Turn { role: Role::Assistant, content: vec![Part::Text { text: String::new() }, call] },
            Turn { role: Role::Tool, content: vec![result] },
        ];
        let value = serde_json::to_value(&turns).unwrap().to_string();
        assert_eq!(String::from_utf8(sorted(&turns)).unwrap(), value);
    }
}
