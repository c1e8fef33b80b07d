//! The conversation alone: which messages the records of a log amount to.
//!
//! One mapping serves `messages.jsonl`, the API, search and the model's context, so that every door shows the
//! same messages with the same ids.

use std::collections::HashSet;
use std::sync::Arc;

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
    /// These messages count again.
    Restored {
        seq: u64,
        ids: Vec<Ulid>,
        by: Ulid,
    },
}

impl Change {
    /// The line of `messages.jsonl` for this change, without its line end.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct MarkLine<'a> {
            seq: u64,
            r#type: &'a str,
            ids: &'a [Ulid],
            by: Ulid,
        }
        let mark = |seq: u64, r#type: &str, ids: &[Ulid], by: Ulid| {
            serde_json::to_string(&MarkLine { seq, r#type, ids, by })
        };
        let line = match self {
            Change::Said(message) => serde_json::to_string(message),
            Change::Superseded { seq, ids, by } => mark(*seq, "superseded", ids, *by),
            Change::Restored { seq, ids, by } => mark(*seq, "restored", ids, *by),
        };
        // These types have no map with keys that are not strings: serialising them cannot fail.
        line.unwrap_or_default()
    }
}

/// What a record means for the conversation, in order.
pub fn changes(record: &Record) -> Vec<Change> {
    let seq = record.seq;
    let marks = [(superseded_ids(&record.body), true), (restored_ids(&record.body), false)];
    let marks = marks.into_iter().filter(|(ids, _)| !ids.is_empty()).map(|(ids, superseded)| {
        let (ids, by) = (ids.to_vec(), marked_by(&record.body));
        if superseded { Change::Superseded { seq, ids, by } } else { Change::Restored { seq, ids, by } }
    });
    marks.chain(said(record).map(Change::Said)).collect()
}

/// The message that a record says, if it says one.
pub fn said(record: &Record) -> Option<Message> {
    let text = |text: &str| vec![Part::Text { text: text.to_owned() }];
    let (run, role, content) = match &record.body {
        Body::User(user) => (user.turn_id, Role::User, text(&user.text)),
        Body::AssistantFinished(done) => (done.turn_id, Role::Assistant, text(&done.text)),
        Body::ToolStarted(tool) => {
            let call_id = tool.call_id.0;
            let part = Part::ToolCall { call_id, name: tool.name.clone(), input: tool.input.clone() };
            (tool.turn_id, Role::Assistant, vec![part])
        }
        Body::ToolFinished(tool) => {
            let call_id = tool.call_id.0;
            let part = Part::ToolResult { call_id, status: tool.status, text: tool.output.clone() };
            (tool.turn_id, Role::Tool, vec![part])
        }
        Body::System(note) => (note.turn_id, Role::System, text(&note.text)),
        Body::Compaction(compaction) => {
            (compaction.turn_id, Role::System, text(compaction.summary.as_deref()?))
        }
        Body::CompactionApproved(approved) => {
            (approved.turn_id, Role::System, text(approved.summary.as_deref()?))
        }
        _ => return None,
    };
    let id = said_id(&record.body)?;
    Some(Message { seq: record.seq, id, run, role, content, time: record.time })
}

/// The id of the message that a record says; a tool's result has that of its call.
pub fn said_id(body: &Body) -> Option<Ulid> {
    match body {
        Body::User(user) => Some(user.message_id.0),
        // A step that only called tools has said nothing; its calls are messages of their own.
        Body::AssistantFinished(done) => (!done.text.is_empty()).then_some(done.message_id.0),
        Body::ToolStarted(tool) => Some(tool.call_id.0),
        Body::ToolFinished(tool) => Some(tool.call_id.0),
        Body::System(note) => Some(note.message_id.0),
        Body::Compaction(compaction) if compaction.proposed || compaction.summary.is_none() => None,
        Body::Compaction(compaction) => compaction.summary_message_id.map(|id| id.0),
        Body::CompactionApproved(approved) if approved.summary.is_none() => None,
        Body::CompactionApproved(approved) => approved.summary_message_id.map(|id| id.0),
        Body::QueuedDiscarded(_)
        | Body::SessionMeta(_)
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
        | Body::Forked(_)
        | Body::ToolPending(_)
        | Body::CheckpointCreated(_)
        | Body::PromptEdited(_)
        | Body::CheckpointResumed(_)
        | Body::RolledBack(_)
        | Body::CompactionRejected(_)
        | Body::CompactionFlagged(_)
        | Body::CompactionsAggregated(_)
        | Body::ApprovalRequested(_)
        | Body::ApprovalSettled(_)
        | Body::Bound(_)
        | Body::Unbound(_) => None,
    }
}

/// The messages that no longer count after this record.
pub fn superseded_ids(body: &Body) -> &[Ulid] {
    match body {
        Body::QueuedDiscarded(discarded) => std::slice::from_ref(&discarded.message_id.0),
        Body::RolledBack(back) => &back.superseded,
        Body::Compaction(compaction) if !compaction.proposed => &compaction.superseded_message_ids,
        Body::CompactionApproved(approved) => &approved.superseded_message_ids,
        _ => &[],
    }
}

/// The messages that count again after this record.
pub fn restored_ids(body: &Body) -> &[Ulid] {
    match body {
        Body::RolledBack(back) => &back.restored,
        _ => &[],
    }
}

/// What superseded or restored messages: a run, a checkpoint or a compaction.
fn marked_by(body: &Body) -> Ulid {
    match body {
        Body::QueuedDiscarded(discarded) => discarded.turn_id.0,
        Body::RolledBack(back) => back.checkpoint_id.0,
        Body::Compaction(compaction) => compaction.compaction_id.0,
        Body::CompactionApproved(approved) => approved.compaction_id.0,
        _ => Ulid(0),
    }
}

/// The messages that still count, in order: what a model is shown.
///
/// A summary stands where the first of the messages stood that it replaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    counting: Vec<Placed>,
    /// What no longer counts, so that a rollback can bring it back.
    superseded: Vec<Placed>,
}

#[derive(Debug, Clone, PartialEq)]
struct Placed {
    /// The seq it is sorted by: its own, or that of the first message it stands for.
    order: u64,
    message: Arc<Message>,
}

impl Conversation {
    pub fn apply(&mut self, record: &Record) {
        let replaced = self.supersede(superseded_ids(&record.body));
        self.restore(restored_ids(&record.body));
        if let Some(message) = said(record).map(Arc::new) {
            self.say(Placed { order: replaced.unwrap_or(record.seq), message });
        }
    }

    /// Takes messages out, and tells where the first of them stood.
    fn supersede(&mut self, ids: &[Ulid]) -> Option<u64> {
        if ids.is_empty() {
            return None;
        }
        let gone: HashSet<&Ulid> = ids.iter().collect();
        let all = std::mem::take(&mut self.counting);
        let (taken, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|m| gone.contains(&m.message.id));
        let first = taken.first().map(|placed| placed.order);
        self.counting = kept;
        self.superseded.extend(taken);
        first
    }

    fn restore(&mut self, ids: &[Ulid]) {
        if ids.is_empty() {
            return;
        }
        let back: HashSet<&Ulid> = ids.iter().collect();
        let all = std::mem::take(&mut self.superseded);
        let (taken, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|m| back.contains(&m.message.id));
        self.superseded = kept;
        self.counting.extend(taken);
        self.counting.sort_by_key(|placed| (placed.order, placed.message.seq));
    }

    fn say(&mut self, placed: Placed) {
        // The result of a call that no longer counts does not count either.
        let is_gone = placed.message.role == Role::Tool
            && self.superseded.iter().any(|gone| gone.message.id == placed.message.id);
        if is_gone {
            self.superseded.push(placed);
            return;
        }
        let at = self.counting.iter().rposition(|other| other.order <= placed.order).map_or(0, |at| at + 1);
        self.counting.insert(at, placed);
    }

    /// Those that count.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.counting.iter().map(|placed| &placed.message)
    }
}
