//! Goose: sessions and messages in SQLite, contents as JSON. Rows are in the order of their ids.
//!
//! A tool result stands in a row of the role `user`; its `status` says that the tool ran, `isError` how it ended. Rows that
//! the user does not see are summaries that Goose made for the model.

use ctx_session::Timestamp;
use serde_json::Value;

use crate::event::{Finish, Tokens, Transcript, Verdict, What};
use crate::json::{epoch, image, join, owned, text};
use crate::outcome::by_exit_code;
use std::borrow::Cow;

/// A row of `sessions`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    pub id: String,
    pub name: Option<String>,
    pub working_dir: Option<String>,
    /// `YYYY-MM-DD HH:MM:SS` in UTC.
    pub created_at: Option<String>,
    pub model_config: Option<String>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cost: Option<f64>,
}

/// A row of `messages`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    pub id: i64,
    pub role: String,
    pub content: String,
    pub created: u64,
    pub metadata: Option<String>,
}

/// Reads a session from its rows, which are in the order of their ids.
pub fn read(session: &Session, rows: &[Row], file: &str) -> Transcript {
    let mut found = Transcript::new(&session.id);
    found.title = session.name.clone().filter(|name| !name.is_empty());
    found.cwd = session.working_dir.clone().filter(|dir| !dir.is_empty());
    found.cost = session.cost;
    let config: Value = session
        .model_config
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);
    found.model = owned(&config, "/model_name");
    found.created = session
        .created_at
        .as_deref()
        .and_then(|text| format!("{}Z", text.replacen(' ', "T", 1)).parse().ok());
    for row in rows {
        match serde_json::from_str::<Value>(&row.content) {
            Ok(Value::Array(contents)) => {
                found.intact += 1;
                message(&mut found, row, &contents, file);
            }
            Ok(_) => found.note_damage(file, 0, format!("message {} is not a list", row.id)),
            Err(error) => found.note_damage(file, 0, format!("message {} cannot be read: {error}", row.id)),
        }
    }
    // Tokens are counted for the session as a whole. They stand with the first answer, which a session that grows keeps: with the
    // last they would be counted again with every new one. What they grow by is added to it.
    let spent = Tokens {
        input: session.input_tokens.unwrap_or_default(),
        output: session.output_tokens.unwrap_or_default(),
        ..Tokens::default()
    }
    .costing(session.cost);
    let first = found.events.iter_mut().find_map(|event| match &mut event.what {
        What::Assistant { tokens, .. } => Some(tokens),
        _ => None,
    });
    if let Some(tokens) = first.filter(|_| spent != Tokens::default()) {
        *tokens = Some(spent);
    }
    found
}

fn message(found: &mut Transcript, row: &Row, contents: &[Value], file: &str) {
    let at = Some(epoch(row.created));
    let metadata: Value =
        row.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
    let is_hidden = metadata.get("userVisible") == Some(&Value::Bool(false));
    let mut said = Vec::new();
    for (nth, content) in contents.iter().enumerate() {
        let key = format!("{}/{nth}", row.id);
        match text(content, "/type").unwrap_or_default() {
            "text" => said.push(Cow::Borrowed(text(content, "/text").unwrap_or_default())),
            "image" => said.push(Cow::Owned(image(text(content, "/mimeType"), "", file, 0))),
            "thinking" | "reasoning" => {
                let text = owned(content, "/thinking").or(owned(content, "/text")).unwrap_or_default();
                if !text.is_empty() {
                    found.push(key, at, What::Reasoning { text });
                }
            }
            "toolRequest" | "frontendToolRequest" => {
                // What stood before the call in this row was said before it.
                flush(found, row, at, is_hidden, &mut said, nth);
                let id = owned(content, "/id").unwrap_or_default();
                let name = owned(content, "/toolCall/value/name").unwrap_or_else(|| "unknown".to_owned());
                let input = content.pointer("/toolCall/value/arguments").cloned().unwrap_or(Value::Null);
                found.push(key, at, What::ToolCall { id, name, input });
            }
            "toolResponse" => result(found, key, at, content, file),
            "redactedThinking" | "systemNotification" | "toolConfirmationRequest" | "actionRequired" => {}
            "conversationCompacted" | "summarizationRequested" | "contextLengthExceeded" => {
                let summary = owned(content, "/msg").unwrap_or_default();
                found.push(key, at, What::Compaction { summary });
            }
            other => found.note_unknown(format!("content/{other}")),
        }
    }
    flush(found, row, at, is_hidden, &mut said, contents.len());
}

/// Tells the text gathered so far as one message.
fn flush(
    found: &mut Transcript,
    row: &Row,
    at: Option<Timestamp>,
    is_hidden: bool,
    said: &mut Vec<Cow<'_, str>>,
    nth: usize,
) {
    let text = join(std::mem::take(said).into_iter());
    if text.is_empty() {
        return;
    }
    let what = match row.role.as_str() {
        _ if is_hidden => What::Injected { text },
        "user" => What::User { text },
        "assistant" => {
            let model = found.model.clone();
            What::Assistant { text, model, finish: Finish::Stop, tokens: None }
        }
        _ => What::Injected { text },
    };
    found.push(format!("{}/t{nth}", row.id), at, what);
}

fn result(found: &mut Transcript, key: String, at: Option<Timestamp>, content: &Value, file: &str) {
    let id = owned(content, "/id").unwrap_or_default();
    let value = content.pointer("/toolResult/value");
    let parts = value.and_then(|value| value.get("content").unwrap_or(value).as_array());
    let texts = parts.into_iter().flatten().map(|part| match text(part, "/text") {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(image(text(part, "/mimeType"), "", file, 0)),
    });
    let output = join(texts);
    let exit = value.and_then(|value| value.pointer("/structuredContent/exit_code")).and_then(Value::as_i64);
    let is_error = value.and_then(|value| value.get("isError")).and_then(Value::as_bool);
    let has_run = text(content, "/toolResult/status") == Some("success");
    let verdict = match (has_run, is_error, exit) {
        (false, ..) | (true, Some(true), _) => Verdict::Failure,
        (true, _, Some(code)) => by_exit_code(code),
        (true, ..) => Verdict::Success,
    };
    let output = if has_run { output } else { owned(content, "/toolResult/error").unwrap_or(output) };
    found.push(key, at, What::ToolResult { id, verdict, output, diff: None });
}
