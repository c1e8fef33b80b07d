//! Replies as events of each wire format, in the shapes that the providers send.

use serde_json::{Value, json};

use super::Part;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Responses,
    Chat,
    Messages,
    Gemini,
}

impl Wire {
    pub const ALL: [Wire; 4] = [Wire::Responses, Wire::Chat, Wire::Messages, Wire::Gemini];

    /// Which one a path asks for.
    pub fn of(path: &str) -> Option<Wire> {
        let path = path.split('?').next().unwrap_or_default();
        match () {
            () if path.ends_with("/responses") => Some(Wire::Responses),
            () if path.ends_with("/chat/completions") => Some(Wire::Chat),
            () if path.ends_with("/messages") => Some(Wire::Messages),
            () if path.ends_with(":streamGenerateContent") => Some(Wire::Gemini),
            () => None,
        }
    }
}

/// Longest piece of a text in one event.
const PIECE: usize = 12;

fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

fn event(name: Option<&str>, data: &Value) -> String {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {data}\n\n")
}

/// The events of a whole answer. Every answer counts 1000 tokens in, 400 of them cached, and 50 out.
pub fn events(wire: Wire, parts: &[Part]) -> Vec<String> {
    match wire {
        Wire::Responses => responses(parts),
        Wire::Chat => chat(parts),
        Wire::Messages => messages(parts),
        Wire::Gemini => gemini(parts),
    }
}

fn responses(parts: &[Part]) -> Vec<String> {
    let named = |mut data: Value, name: &str| {
        data["type"] = name.into();
        event(Some(name), &data)
    };
    let mut events =
        vec![named(json!({ "response": { "id": "resp_1", "status": "in_progress" } }), "response.created")];
    let mut output = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let item = match part {
            Part::Text(text) => {
                for delta in pieces(text) {
                    events.push(named(
                        json!({ "output_index": at, "delta": delta }),
                        "response.output_text.delta",
                    ));
                }
                json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] })
            }
            Part::Reasoning(text) => {
                for delta in pieces(text) {
                    let data = json!({ "output_index": at, "summary_index": 0, "delta": delta });
                    events.push(named(data, "response.reasoning_summary_text.delta"));
                }
                let summary = json!([{ "type": "summary_text", "text": text }]);
                json!({ "type": "reasoning", "id": format!("rs_{at}"), "summary": summary, "encrypted_content": "gAAAsealed" })
            }
            Part::Call { name, input } => {
                json!({ "type": "function_call", "id": format!("fc_{at}"), "call_id": format!("call_{at}"), "name": name, "arguments": input })
            }
        };
        events.push(named(json!({ "output_index": at, "item": item }), "response.output_item.done"));
        output.push(item);
    }
    let usage = json!({
        "input_tokens": 1000, "input_tokens_details": { "cached_tokens": 400 }, "output_tokens": 50,
    });
    let response = json!({ "id": "resp_1", "status": "completed", "output": output, "usage": usage });
    events.push(named(json!({ "response": response }), "response.completed"));
    events
}

fn chat(parts: &[Part]) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        event(
            None,
            &json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }),
        )
    };
    let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    let mut calls = 0;
    for part in parts {
        match part {
            Part::Text(text) => {
                events.extend(
                    pieces(text).into_iter().map(|piece| chunk(json!({ "content": piece }), Value::Null)),
                );
            }
            Part::Reasoning(text) => events.extend(
                pieces(text)
                    .into_iter()
                    .map(|piece| chunk(json!({ "reasoning_content": piece }), Value::Null)),
            ),
            Part::Call { name, input } => {
                let begin = json!({ "index": calls, "id": format!("call_{calls}"), "type": "function", "function": { "name": name, "arguments": "" } });
                events.push(chunk(json!({ "tool_calls": [begin] }), Value::Null));
                for piece in pieces(input) {
                    let more = json!({ "index": calls, "function": { "arguments": piece } });
                    events.push(chunk(json!({ "tool_calls": [more] }), Value::Null));
                }
                calls += 1;
            }
        }
    }
    events.push(chunk(json!({}), if calls > 0 { "tool_calls".into() } else { "stop".into() }));
    let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": { "cached_tokens": 400 } });
    events.push(event(None, &json!({ "choices": [], "usage": usage })));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn messages(parts: &[Part]) -> Vec<String> {
    let named = |name: &str, mut data: Value| {
        data["type"] = name.into();
        event(Some(name), &data)
    };
    let usage = json!({ "input_tokens": 600, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 0, "output_tokens": 1 });
    let start = json!({ "message": { "id": "msg_1", "role": "assistant", "content": [], "usage": usage } });
    let mut events = vec![named("message_start", start), named("ping", json!({}))];
    let has_calls = parts.iter().any(|part| matches!(part, Part::Call { .. }));
    for (index, part) in parts.iter().enumerate() {
        let delta = |delta: Value| named("content_block_delta", json!({ "index": index, "delta": delta }));
        let begin =
            |block: Value| named("content_block_start", json!({ "index": index, "content_block": block }));
        match part {
            Part::Text(text) => {
                events.push(begin(json!({ "type": "text", "text": "" })));
                events.extend(
                    pieces(text).iter().map(|piece| delta(json!({ "type": "text_delta", "text": piece }))),
                );
            }
            Part::Reasoning(text) => {
                events.push(begin(json!({ "type": "thinking", "thinking": "", "signature": "" })));
                let thought = |piece: &String| delta(json!({ "type": "thinking_delta", "thinking": piece }));
                events.extend(pieces(text).iter().map(thought));
                events.push(delta(json!({ "type": "signature_delta", "signature": "EqQBsigned" })));
            }
            Part::Call { name, input } => {
                events.push(begin(
                    json!({ "type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {} }),
                ));
                let more =
                    |piece: &String| delta(json!({ "type": "input_json_delta", "partial_json": piece }));
                events.extend(pieces(input).iter().map(more));
            }
        }
        events.push(named("content_block_stop", json!({ "index": index })));
    }
    let stop = if has_calls { "tool_use" } else { "end_turn" };
    events.push(named(
        "message_delta",
        json!({ "delta": { "stop_reason": stop }, "usage": { "output_tokens": 50 } }),
    ));
    events.push(named("message_stop", json!({})));
    events
}

fn gemini(parts: &[Part]) -> Vec<String> {
    let usage = json!({ "promptTokenCount": 1000, "cachedContentTokenCount": 400, "candidatesTokenCount": 40, "thoughtsTokenCount": 10 });
    let chunk = |parts: Value, finish: Option<&str>| {
        let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        event(None, &json!({ "candidates": [candidate], "usageMetadata": usage }))
    };
    let mut events = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => {
                events.extend(pieces(text).iter().map(|piece| chunk(json!([{ "text": piece }]), None)));
            }
            Part::Reasoning(text) => events.push(chunk(json!([{ "text": text, "thought": true }]), None)),
            Part::Call { name, input } => {
                // Here arguments are JSON, so text that is none cannot come.
                let args: Value =
                    serde_json::from_str(input).unwrap_or_else(|_| json!({ "malformed": input }));
                let call =
                    json!({ "functionCall": { "name": name, "args": args }, "thoughtSignature": "CsigQ" });
                events.push(chunk(json!([call]), None));
            }
        }
    }
    events.push(chunk(json!([{ "text": "" }]), Some("STOP")));
    events
}
