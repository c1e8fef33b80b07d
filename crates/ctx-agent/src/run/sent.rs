//! `context/pack.json`: what a model was sent, from which records, and how many tokens it is taken for.

use serde_json::{Value, json};

use super::compact::{request_tokens, tools_tokens};
use super::{Desk, Job};
use crate::sha256_hex;
use ctx_session::conversation::Role;
use ctx_session::estimate::{message_tokens, share, tokens};

/// The pack of one model call, as the file has it.
pub(super) fn describe(job: &Job, step: u32, desk: &Desk) -> Vec<u8> {
    let request = &desk.request;
    let total = request_tokens(request);
    let messages: Vec<Value> = desk
        .step
        .messages
        .iter()
        .map(|message| {
            // In place of what the tool gave stands how it is read back.
            let elided = message.role == Role::Tool && desk.step.elided.contains(&message.id);
            json!({
                "id": message.id, "seq": message.seq, "role": message.role, "tokens": message_tokens(message),
                "elided": elided,
            })
        })
        .collect();
    // Through a value, whose keys are sorted, so that anyone can make the same bytes of what `debug/script` dumps.
    let turns = serde_json::to_value(&request.messages).map(|turns| turns.to_string()).unwrap_or_default();
    let pack = json!({
        "run": job.run,
        "step": step,
        "model": request.model,
        "window": desk.model.window(),
        "tokens": {
            "prompt": tokens(&request.prompt),
            "tools": tools_tokens(request),
            "total": total,
        },
        "share": desk.model.window().map(|window| share(total, window)),
        "prompts": desk.step.prepared.context.prompts,
        "prompt_sha256": sha256_hex(request.prompt.as_bytes()),
        "tools": request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
        // In the order in which they were sent.
        "messages": messages,
        "reminder": if desk.reminded { desk.step.todos.as_slice() } else { &[] },
        // Of the turns as JSON with sorted keys and no spaces.
        "turns": request.messages.len(),
        "turns_sha256": sha256_hex(turns.as_bytes()),
    });
    let mut json = serde_json::to_vec_pretty(&pack).unwrap_or_default();
    json.push(b'\n');
    json
}
