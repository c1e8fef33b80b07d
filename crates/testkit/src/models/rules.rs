//! What the providers demand of a request: tool names that they accept, and for every tool call its result right behind it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Wire;

/// What is wrong with a request, in the provider's manner.
pub fn check(wire: Wire, body: &Value) -> Result<(), String> {
    for name in tool_names(wire, body) {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(format!("tools: name {name:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$"));
        }
    }
    match wire {
        Wire::Responses => responses(body),
        Wire::Chat => chat(body),
        Wire::Messages => messages(body),
        Wire::Gemini => gemini(body),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn tool_names(wire: Wire, body: &Value) -> Vec<String> {
    let tools = list(body, "tools");
    match wire {
        Wire::Responses | Wire::Messages => tools.map(|tool| text(&tool["name"])).collect(),
        Wire::Chat => tools.map(|tool| text(&tool["function"]["name"])).collect(),
        Wire::Gemini => tools
            .flat_map(|tool| list(tool, "functionDeclarations"))
            .map(|tool| text(&tool["name"]))
            .collect(),
    }
}

fn responses(body: &Value) -> Result<(), String> {
    let (mut calls, mut results) = (BTreeSet::new(), BTreeSet::new());
    for item in list(body, "input") {
        match item["type"].as_str() {
            Some("function_call") => drop(calls.insert(text(&item["call_id"]))),
            Some("function_call_output") => {
                let id = text(&item["call_id"]);
                if !calls.contains(&id) {
                    return Err(format!("No tool call found for function call output with call_id {id}."));
                }
                results.insert(id);
            }
            _ => {}
        }
    }
    match calls.difference(&results).next() {
        Some(id) => Err(format!("No tool output found for function call {id}.")),
        None => Ok(()),
    }
}

fn chat(body: &Value) -> Result<(), String> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for message in list(body, "messages") {
        if message["role"] == "tool" {
            if !open.remove(&text(&message["tool_call_id"])) {
                return Err(
                    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                        .to_owned(),
                );
            }
            continue;
        }
        if !open.is_empty() {
            return Err("An assistant message with 'tool_calls' must be followed by tool messages".to_owned());
        }
        open = list(message, "tool_calls").map(|call| text(&call["id"])).collect();
    }
    if open.is_empty() { Ok(()) } else { Err("a tool call at the end has no result".to_owned()) }
}

fn messages(body: &Value) -> Result<(), String> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut last = String::new();
    for message in list(body, "messages") {
        let role = text(&message["role"]);
        if role == last {
            return Err("messages: roles must alternate".to_owned());
        }
        let results: BTreeSet<String> = list(message, "content")
            .filter(|block| block["type"] == "tool_result")
            .map(|block| text(&block["tool_use_id"]))
            .collect();
        if results != open {
            return Err("tool_use ids were found without tool_result blocks immediately after".to_owned());
        }
        let uses = list(message, "content").filter(|block| block["type"] == "tool_use");
        open = uses.map(|block| text(&block["id"])).collect();
        last = role;
    }
    match (open.is_empty(), last.as_str()) {
        (false, _) => Err("a tool_use at the end has no tool_result".to_owned()),
        (true, "user") => Ok(()),
        (true, _) => Err("the conversation must end with a user message".to_owned()),
    }
}

fn gemini(body: &Value) -> Result<(), String> {
    let mut open = 0;
    for content in list(body, "contents") {
        let count = |key: &str| list(content, "parts").filter(|part| part.get(key).is_some()).count();
        if count("functionResponse") != open {
            return Err(
                "the number of function response parts must equal that of the function call parts".to_owned()
            );
        }
        open = count("functionCall");
    }
    if open == 0 { Ok(()) } else { Err("a function call at the end has no response".to_owned()) }
}
