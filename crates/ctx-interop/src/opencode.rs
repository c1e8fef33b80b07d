//! OpenCode: sessions, messages and parts as JSON, in SQLite (1.18) or in a tree of files (1.1). The rows are the same.
//!
//! Every call of the model is an assistant message of its own. A tool call and its result are one part, and a command that
//! failed is still `completed` there: its exit code says how it ended.

use ctx_session::Timestamp;
use serde_json::Value;

use crate::event::{Finish, Link, Tokens, Transcript, Verdict, What};
use crate::json::{image, number, owned, text, time};
use crate::outcome::by_exit_code;

/// A row of a table, or a file of the tree: an id, the id it belongs to, and its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    pub id: String,
    /// The message of a part; empty for messages.
    pub owner: String,
    pub data: String,
    /// The file, for reports.
    pub file: String,
}

/// What is known of a session besides its messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    pub id: String,
    pub directory: Option<String>,
    pub title: Option<String>,
    pub version: Option<String>,
    pub parent: Option<String>,
    pub created: Option<Timestamp>,
}

impl Session {
    /// From the JSON of a session file.
    pub fn from_json(value: &Value) -> Session {
        Session {
            id: owned(value, "/id").unwrap_or_default(),
            directory: owned(value, "/directory"),
            title: owned(value, "/title"),
            version: owned(value, "/version"),
            parent: owned(value, "/parentID"),
            created: value.pointer("/time/created").and_then(time),
        }
    }
}

/// Parts that say nothing of the conversation.
const IGNORED: [&str; 6] = ["step-start", "step-finish", "patch", "snapshot", "retry", "agent"];

/// How long an answer that is not complete may still be written to.
const OPEN_MILLIS: u64 = 10 * 60 * 1000;

/// Reads a session from its rows. What is being written at this moment is left for the next time: a text is taken over once, when it
/// is whole or will never be.
pub fn read(session: Session, messages: &[Row], parts: &[Row], now: Timestamp) -> Transcript {
    let mut found = Transcript::new(session.id);
    found.cwd = session.directory;
    found.title = session.title;
    found.version = session.version;
    found.created = session.created;
    found.link = session.parent.map(|native_id| Link::SubagentOf { native_id, call: None });
    let mut by_message: std::collections::HashMap<&str, Vec<&Row>> = std::collections::HashMap::new();
    for part in parts {
        by_message.entry(&part.owner).or_default().push(part);
    }
    let mut messages: Vec<(Option<Timestamp>, &Row, Value)> = messages
        .iter()
        .filter_map(|row| {
            let data = parse(&mut found, row)?;
            Some((data.pointer("/time/created").and_then(time), row, data))
        })
        .collect();
    messages.sort_by(|(at, row, _), (other_at, other, _)| (at, &row.id).cmp(&(other_at, &other.id)));
    for (at, row, data) in &messages {
        let mut parts = by_message.remove(row.id.as_str()).unwrap_or_default();
        parts.sort_by(|part, other| part.id.cmp(&other.id));
        let is_recent = at.is_some_and(|at| now.millis_since(at) < OPEN_MILLIS);
        message(&mut found, row, *at, data, &parts, is_recent);
    }
    found
}

fn parse(found: &mut Transcript, row: &Row) -> Option<Value> {
    match serde_json::from_str::<Value>(&row.data) {
        Ok(data) if data.is_object() => {
            found.intact += 1;
            Some(data)
        }
        Ok(_) => {
            found.note_damage(&row.file, 0, format!("{} is not an object", row.id));
            None
        }
        Err(error) => {
            found.note_damage(&row.file, 0, format!("{} cannot be read: {error}", row.id));
            None
        }
    }
}

fn message(
    found: &mut Transcript,
    row: &Row,
    at: Option<Timestamp>,
    data: &Value,
    parts: &[&Row],
    is_recent: bool,
) {
    let is_assistant = text(data, "/role") == Some("assistant");
    if is_assistant {
        found.model = owned(data, "/modelID").or(found.model.take());
        found.cwd = found.cwd.take().or(owned(data, "/path/cwd"));
    }
    let is_summary = data.get("summary") == Some(&Value::Bool(true));
    let is_complete = data.pointer("/time/completed").is_some();
    let error = data.get("error").filter(|error| !error.is_null());
    let finish = finish(data);
    let first = found.events.len();
    for part in parts {
        let Some(data) = parse(found, part) else { continue };
        let is_cut = data.pointer("/time/end").is_none() && (!is_complete || error.is_some());
        let is_text = matches!(text(&data, "/type"), Some("text" | "reasoning"));
        if is_assistant && is_text && is_cut && error.is_none() && is_recent {
            continue;
        }
        match text(&data, "/type").unwrap_or_default() {
            "text" => {
                let said = owned(&data, "/text").unwrap_or_default();
                if said.is_empty() || data.get("ignored") == Some(&Value::Bool(true)) {
                    continue;
                }
                let is_synthetic = data.get("synthetic") == Some(&Value::Bool(true));
                let what = match (is_assistant, is_synthetic) {
                    (true, _) if is_summary => What::Compaction { summary: said },
                    (true, _) => {
                        let finish = if is_cut { Finish::Interrupted } else { finish };
                        What::Assistant { text: said, model: found.model.clone(), finish, tokens: None }
                    }
                    (false, true) => What::Injected { text: said },
                    (false, false) => What::User { text: said },
                };
                found.push(&part.id, data.pointer("/time/start").and_then(time).or(at), what);
            }
            "reasoning" => {
                let text = owned(&data, "/text").unwrap_or_default();
                if !text.is_empty() {
                    let at = data.pointer("/time/start").and_then(time).or(at);
                    found.push(&part.id, at, What::Reasoning { text });
                }
            }
            "tool" => tool(found, part, at, &data),
            "file" => {
                let place = text(&data, "/filename").or(text(&data, "/url")).unwrap_or_default();
                let text = image(text(&data, "/mime"), place, &part.file, 0);
                found.push(&part.id, at, What::Injected { text });
            }
            // The summary follows as a message of its own.
            "compaction" | "subtask" => {}
            kind if IGNORED.contains(&kind) => {}
            other => found.note_unknown(format!("part/{other}")),
        }
    }
    if let Some(error) = error {
        fail(found, row, data.pointer("/time/completed").and_then(time).or(at), error);
    }
    if is_assistant {
        spend(found, row, at, data, first);
    }
}

fn finish(data: &Value) -> Finish {
    match text(data, "/finish") {
        Some("tool-calls") => Finish::ToolCalls,
        Some("length") => Finish::Length,
        _ => Finish::Stop,
    }
}

fn fail(found: &mut Transcript, row: &Row, at: Option<Timestamp>, error: &Value) {
    let key = format!("{}/error", row.id);
    match text(error, "/name") {
        Some("MessageAbortedError") => found.interrupt(key, at),
        name => {
            let message = owned(error, "/data/message").or(name.map(str::to_owned)).unwrap_or_default();
            found.push(key, at, What::Failed { message });
        }
    }
}

fn spend(found: &mut Transcript, row: &Row, at: Option<Timestamp>, data: &Value, first: usize) {
    let cached = number(data, "/tokens/cache/read");
    let cache = cached.saturating_add(number(data, "/tokens/cache/write"));
    let cost = data.get("cost").and_then(Value::as_f64).filter(|cost| *cost > 0.0);
    let spent = Tokens {
        input: number(data, "/tokens/input").saturating_add(cache),
        output: number(data, "/tokens/output").saturating_add(number(data, "/tokens/reasoning")),
        cached,
        cost_nano_usd: 0,
    }
    .costing(cost);
    if let Some(cost) = cost {
        *found.cost.get_or_insert(0.0) += cost;
    }
    if spent == Tokens::default() {
        return;
    }
    let model = found.model.clone();
    let texts = found.events.iter_mut().skip(first).rev();
    for event in texts {
        if let What::Assistant { tokens, .. } = &mut event.what {
            *tokens = Some(spent);
            return;
        }
    }
    found.push(format!("{}/usage", row.id), at, What::Step { model, tokens: spent });
}

fn tool(found: &mut Transcript, part: &Row, at: Option<Timestamp>, data: &Value) {
    let id = owned(data, "/callID").unwrap_or_else(|| part.id.clone());
    let name = owned(data, "/tool").unwrap_or_default();
    let input = data.pointer("/state/input").cloned().unwrap_or(Value::Null);
    let started = data.pointer("/state/time/start").and_then(time).or(at);
    found.push(&part.id, started, What::ToolCall { id: id.clone(), name, input });
    let exit = data.pointer("/state/metadata/exit").and_then(Value::as_i64);
    let error = owned(data, "/state/error");
    let (verdict, output) = match text(data, "/state/status") {
        Some("completed") => {
            let verdict = exit.map_or(Verdict::Success, by_exit_code);
            (verdict, owned(data, "/state/output").unwrap_or_default())
        }
        Some("error") if error.as_deref().is_some_and(|error| error.contains("abort")) => {
            (Verdict::Interrupted, error.unwrap_or_default())
        }
        Some("error") => (Verdict::Failure, error.unwrap_or_default()),
        _ => return,
    };
    let diff = owned(data, "/state/metadata/diff");
    let ended = data.pointer("/state/time/end").and_then(time).or(started);
    found.push(format!("{}/o", part.id), ended, What::ToolResult { id, verdict, output, diff });
}
