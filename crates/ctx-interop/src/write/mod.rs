//! Handing a session on: a conversation written as another agent keeps its own, under a new id.
//!
//! The conversation comes from our records ([`said`]). What each agent needs in order to resume it is written by its module;
//! text that nobody typed and the model's reasoning stay behind, since providers refuse reasoning that they did not sign.

pub mod claude;
pub mod codex;
pub mod opencode;

use std::collections::{HashMap, HashSet};

use ctx_session::Timestamp;
use ctx_session::conversation::{restored_ids, superseded_ids};
use ctx_session::ids::Ulid;
use ctx_session::record::{
    Body, CheckpointBody, CompactionBody, FinishReason, MessageBody, Record, RunBody, SessionBody, ToolBody,
    ToolStatus,
};
use serde_json::Value;

use crate::event::{Event, Finish, Verdict, What};

/// A session to be handed on.
#[derive(Debug, Clone)]
pub struct Handoff {
    pub cwd: String,
    pub title: Option<String>,
    pub branch: Option<String>,
    pub model: Option<String>,
    pub at: Timestamp,
    /// Makes the new ids unlike all others.
    pub random: u128,
    pub events: Vec<Event>,
}

/// The conversation of a session: messages, calls with their results, compactions and interruptions. What was taken back is
/// not in it. A call that has no result gets one, for no provider takes a call without.
pub fn said(records: &[Record]) -> Vec<Event> {
    let gone = taken_back(records);
    let mut ids: HashMap<Ulid, String> = HashMap::new();
    let mut used: HashSet<String> = HashSet::new();
    let mut open: Vec<(String, Timestamp)> = Vec::new();
    let mut events = Vec::new();
    for record in records {
        let at = Some(record.time);
        let mut push = |key: String, what: What| events.push(Event { key, at, inherited: false, what });
        match &record.body {
            Body::Message(MessageBody::User(user)) if !gone.contains(&user.message_id.0) => {
                for (id, _) in open.drain(..) {
                    push(format!("o:{id}"), unanswered(id));
                }
                let images = user.images.iter().map(|image| format!("\n{}", image.in_words()));
                let text = user.text.clone() + &images.collect::<String>();
                push(user.message_id.to_string(), What::User { text });
            }
            Body::Message(MessageBody::AssistantFinished(done))
                if !done.text.is_empty() && !gone.contains(&done.message_id.0) =>
            {
                let finish = match done.finish_reason {
                    FinishReason::Stop | FinishReason::Error => Finish::Stop,
                    FinishReason::ToolCalls => Finish::ToolCalls,
                    FinishReason::Length => Finish::Length,
                    FinishReason::Cancelled => Finish::Interrupted,
                };
                let (text, model, tokens) = (done.text.clone(), None, None);
                push(done.message_id.to_string(), What::Assistant { text, model, finish, tokens });
            }
            Body::Tool(ToolBody::Started(tool)) if !gone.contains(&tool.call_id.0) => {
                let own = tool.call_id.to_string();
                // Providers use an id again in another answer; here every call has its own.
                let id = tool.provider_call_id.clone().filter(|id| used.insert(id.clone())).unwrap_or(own);
                ids.insert(tool.call_id.0, id.clone());
                open.push((id.clone(), record.time));
                push(
                    format!("c:{id}"),
                    What::ToolCall { id, name: tool.name.clone(), input: tool.input.clone() },
                );
            }
            Body::Tool(ToolBody::Finished(tool)) => {
                let Some(id) = ids.get(&tool.call_id.0).cloned() else { continue };
                if !open.iter().any(|(open, _)| *open == id) {
                    continue;
                }
                open.retain(|(open, _)| *open != id);
                let verdict = match tool.status {
                    ToolStatus::Ok => Verdict::Success,
                    ToolStatus::Error => Verdict::Failure,
                    ToolStatus::Interrupted | ToolStatus::Skipped => Verdict::Interrupted,
                };
                let (output, diff) = (tool.output.clone(), tool.diff.clone());
                push(format!("o:{id}"), What::ToolResult { id, verdict, output, diff });
            }
            Body::Compaction(CompactionBody::Recorded(made)) if !made.proposed => {
                let summary = made.summary.clone().unwrap_or_default();
                push(made.compaction_id.to_string(), What::Compaction { summary });
            }
            Body::Run(RunBody::Cancelled(end)) => push(end.turn_id.to_string(), What::Interrupted),
            _ => {}
        }
    }
    let at = records.last().map(|record| record.time);
    for (id, _) in open {
        events.push(Event { key: format!("o:{id}"), at, inherited: false, what: unanswered(id) });
    }
    events
}

fn unanswered(id: String) -> What {
    What::ToolResult { id, verdict: Verdict::Interrupted, output: "interrupted".to_owned(), diff: None }
}

/// What a rollback or a discard took back. What was compacted was said.
fn taken_back(records: &[Record]) -> HashSet<Ulid> {
    let mut gone = HashSet::new();
    for record in records {
        if matches!(
            record.body,
            Body::Checkpoint(CheckpointBody::RolledBack(_))
                | Body::Run(RunBody::QueuedDiscarded(_))
                | Body::Session(SessionBody::Imported(_) | SessionBody::ImportUndone(_))
        ) {
            gone.extend(superseded_ids(&record.body).iter().copied());
            for id in restored_ids(&record.body) {
                gone.remove(id);
            }
        }
    }
    gone
}

/// A UUID of version 7 (`7`) or 4 (`4`) out of a time and random bits.
pub(crate) fn uuid(version: u128, at: Timestamp, random: u128) -> String {
    let time = if version == 7 { u128::from(at.as_millis()) << 80 } else { random << 80 };
    let bits = (time & (((1u128 << 48) - 1) << 80)) | (version << 76) | (random & (0xfff << 64));
    let bits = bits | (0b10 << 62) | (random & ((1 << 62) - 1));
    let text = format!("{bits:032x}");
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Random bits for the nth id.
pub(crate) fn nth(random: u128, n: usize) -> u128 {
    let mixed = random ^ (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed ^ (mixed >> 61) ^ (mixed << 23)
}

/// A call's input as an object, for agents whose calls always have one.
pub(crate) fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        Value::Null => Value::Object(serde_json::Map::new()),
        other => serde_json::json!({ "input": other }),
    }
}
