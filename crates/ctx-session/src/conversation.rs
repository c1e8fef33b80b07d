//! The conversation alone: which messages the records of a log amount to.
//!
//! One mapping serves `messages.jsonl`, the API, search and the model's context, so that every door shows the
//! same messages with the same ids.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{RunId, Ulid};
use crate::record::{Body, Record, ToolStatus};
use crate::time::Timestamp;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
    Subagent,
    System,
    Tool,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text { text: String },
    ToolCall { call_id: Ulid, name: String, input: Value },
    ToolResult { call_id: Ulid, status: ToolStatus, text: String },
}

/// A message; its JSON form is a line of `messages.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub seq: u64,
    /// The message's id, or the call's id for a tool call and its result.
    pub id: Ulid,
    pub run: RunId,
    pub role: Role,
    pub content: Vec<Part>,
    pub time: Timestamp,
}

impl Message {
    /// Its text parts, joined.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } => Some(text.as_str()),
            Part::ToolCall { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// What a record changes in the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Said(Message),
    /// These messages read as superseded from here on.
    Superseded {
        seq: u64,
        ids: Vec<Ulid>,
        by: Ulid,
    },
}

impl Change {
    /// The line of `messages.jsonl` for this change, without its line end.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct SupersededLine<'a> {
            seq: u64,
            r#type: &'a str,
            ids: &'a [Ulid],
            by: Ulid,
        }
        let line = match self {
            Change::Said(message) => serde_json::to_string(message),
            Change::Superseded { seq, ids, by } => {
                serde_json::to_string(&SupersededLine { seq: *seq, r#type: "superseded", ids, by: *by })
            }
        };
        // These types have no map with keys that are not strings: serialising them cannot fail.
        line.unwrap_or_default()
    }
}

/// What a record means for the conversation, if anything.
pub fn change(record: &Record) -> Option<Change> {
    let text = |text: &str| vec![Part::Text { text: text.to_owned() }];
    let said = |id: Ulid, run: RunId, role: Role, content: Vec<Part>| {
        Some(Change::Said(Message { seq: record.seq, id, run, role, content, time: record.time }))
    };
    match &record.body {
        Body::User(user) => said(user.message_id.0, user.turn_id, Role::User, text(&user.text)),
        // A step that only called tools has said nothing; its calls are messages of their own.
        Body::AssistantFinished(done) if done.text.is_empty() => None,
        Body::AssistantFinished(done) => {
            said(done.message_id.0, done.turn_id, Role::Assistant, text(&done.text))
        }
        Body::ToolStarted(tool) => {
            let call_id = tool.call_id.0;
            let part = Part::ToolCall { call_id, name: tool.name.clone(), input: tool.input.clone() };
            said(call_id, tool.turn_id, Role::Assistant, vec![part])
        }
        Body::ToolFinished(tool) => {
            let call_id = tool.call_id.0;
            let part = Part::ToolResult { call_id, status: tool.status, text: tool.output.clone() };
            said(call_id, tool.turn_id, Role::Tool, vec![part])
        }
        Body::QueuedDiscarded(discarded) => Some(Change::Superseded {
            seq: record.seq,
            ids: vec![discarded.message_id.0],
            by: discarded.turn_id.0,
        }),
        Body::SessionMeta(_)
        | Body::Context(_)
        | Body::RunCreated(_)
        | Body::AssistantStarted(_)
        | Body::ReasoningFinished(_)
        | Body::RunFinished(_)
        | Body::Cancelled(_)
        | Body::Failed(_)
        | Body::StateChanged(_)
        | Body::SessionRenamed(_)
        | Body::ModelSet(_)
        | Body::CwdChanged(_)
        | Body::Attached(_)
        | Body::Detached(_)
        | Body::SessionFailed(_)
        | Body::Archived(_)
        | Body::Forked(_) => None,
    }
}

/// The messages that still count, in order: what a model is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    pub fn apply(&mut self, record: &Record) {
        match change(record) {
            Some(Change::Said(message)) => self.messages.push(message),
            Some(Change::Superseded { ids, .. }) => self.messages.retain(|m| !ids.contains(&m.id)),
            None => {}
        }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}
