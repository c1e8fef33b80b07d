//! The conversation alone: which messages the records of a log amount to.
//!
//! One mapping serves `messages.jsonl`, the API, search and the model's context, so that every door shows the
//! same messages with the same ids.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::estimate::{MESSAGE_TOKENS, call_tokens, tokens};
use crate::ids::{CallId, MessageId, RunId, SubagentId, Ulid};
use crate::image::{IMAGE_TOKENS, Image};
use crate::ledger::Ledger;
use crate::record::{
    Body, Caller, CheckpointBody, CompactionBody, InConversation, MessageBody, MessagePinned, Record,
    RolledBack, RunBody, SessionBody, ToolBody, ToolStatus,
};
use crate::subagent::Invocation;
use crate::time::Timestamp;
use crate::word_enum::word_enum;

word_enum! {
    /// Who speaks.
    Role {
        User = "user",
        Assistant = "assistant",
        Subagent = "subagent",
        System = "system",
        Tool = "tool",
    }
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text {
        text: String,
    },
    Image(Image),
    ToolCall {
        call_id: Ulid,
        name: String,
        input: Value,
        /// What the provider wants to see again with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<Value>,
    },
    ToolResult {
        call_id: Ulid,
        status: ToolStatus,
        text: String,
    },
}

/// Records that say nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub records: Range<u64>,
    /// A repair has put a record in their place: there is nothing more to be done about them.
    pub is_repaired: bool,
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
    /// The subagent whose conversation it is part of; none: it is part of the primary's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

impl Message {
    /// A line in the place of records that cannot be read: whoever reads the conversation is to know that something is
    /// missing.
    pub fn gap(missing: &Gap, time: Timestamp) -> Message {
        let Gap { records: missing, is_repaired } = missing;
        let (what, is, was) = match missing.end.saturating_sub(missing.start) {
            0 | 1 => (format!("record {}", missing.start), "is", "was"),
            _ => (format!("records {} to {}", missing.start, missing.end - 1), "are", "were"),
        };
        let text = match is_repaired {
            true => format!("[{what} {was} lost here; the log is repaired]"),
            false => format!(
                "[{what} {is} damaged or lost here; `ctx doctor` names the place, `ctx repair` saves what it can]"
            ),
        };
        Message {
            seq: missing.start,
            // No message has it: ids begin with a time.
            id: Ulid(u128::from(missing.start)),
            run: RunId(Ulid(0)),
            role: Role::System,
            content: vec![Part::Text { text }],
            time,
            caller: None,
        }
    }

    /// Whether it only says that records are missing where it stands: it belongs to no run.
    pub fn is_gap(&self) -> bool {
        self.run.0 == Ulid(0)
    }

    /// Its text parts, joined.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } => Some(text.as_str()),
            Part::ToolCall { .. } | Part::Image(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// What a message is taken for in a model's window: see [`crate::estimate`].
pub fn message_tokens(message: &Message) -> u64 {
    MESSAGE_TOKENS + message.content.iter().map(part_tokens).sum::<u64>()
}

pub fn part_tokens(part: &Part) -> u64 {
    match part {
        Part::Text { text } | Part::ToolResult { text, .. } => tokens(text),
        Part::ToolCall { name, input, .. } => call_tokens(name, input),
        Part::Image(_) => IMAGE_TOKENS,
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
    /// No compaction takes this message from here on, or one may again.
    Pinned {
        seq: u64,
        id: Ulid,
        pinned: bool,
    },
}

impl Change {
    /// The record that makes it.
    pub fn seq(&self) -> u64 {
        match self {
            Change::Said(message) => message.seq,
            Change::Superseded { seq, .. } | Change::Restored { seq, .. } | Change::Pinned { seq, .. } => {
                *seq
            }
        }
    }

    /// The line of `messages.jsonl` for this change, without its line end.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct MarkLine<'a> {
            seq: u64,
            r#type: &'a str,
            ids: &'a [Ulid],
            #[serde(skip_serializing_if = "Option::is_none")]
            by: Option<Ulid>,
        }
        let mark = |seq: u64, r#type: &str, ids: &[Ulid], by: Option<Ulid>| {
            serde_json::to_string(&MarkLine { seq, r#type, ids, by })
        };
        let line = match self {
            Change::Said(message) => serde_json::to_string(message),
            Change::Superseded { seq, ids, by } => mark(*seq, "superseded", ids, Some(*by)),
            Change::Restored { seq, ids, by } => mark(*seq, "restored", ids, Some(*by)),
            Change::Pinned { seq, id, pinned } => {
                let word = if *pinned { "pinned" } else { "unpinned" };
                mark(*seq, word, std::slice::from_ref(id), None)
            }
        };
        // These types have no map with keys that are not strings: serialising them cannot fail.
        line.unwrap_or_default()
    }

    /// What a line of `messages.jsonl` says; nothing for one of a later version and for one that is damaged.
    pub fn of_line(line: &[u8]) -> Option<Change> {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "lowercase")]
        enum MarkLine {
            Superseded { seq: u64, ids: Vec<Ulid>, by: Ulid },
            Restored { seq: u64, ids: Vec<Ulid>, by: Ulid },
            Pinned { seq: u64, ids: [Ulid; 1] },
            Unpinned { seq: u64, ids: [Ulid; 1] },
        }
        if let Ok(message) = serde_json::from_slice(line) {
            return Some(Change::Said(message));
        }
        Some(match serde_json::from_slice(line).ok()? {
            MarkLine::Superseded { seq, ids, by } => Change::Superseded { seq, ids, by },
            MarkLine::Restored { seq, ids, by } => Change::Restored { seq, ids, by },
            MarkLine::Pinned { seq, ids: [id] } => Change::Pinned { seq, id, pinned: true },
            MarkLine::Unpinned { seq, ids: [id] } => Change::Pinned { seq, id, pinned: false },
        })
    }
}

/// Whether a record of this type may change the conversation: others need not be read for it.
pub fn may_change(kind: &str) -> bool {
    Body::kind(kind).is_some_and(|kind| kind.conversation != InConversation::Nothing)
}

/// Whether a record of this type may say that messages no longer count, or count again.
pub fn may_mark(kind: &str) -> bool {
    Body::kind(kind).is_some_and(|kind| kind.conversation == InConversation::Marks)
}

/// What a record means for the conversation, in order.
pub fn changes(record: &Record) -> Vec<Change> {
    let seq = record.seq;
    let mut changes = Vec::new();
    if let Some(Marks { superseded, restored, by, .. }) = marks(&record.body) {
        if !superseded.is_empty() {
            changes.push(Change::Superseded { seq, ids: superseded.to_vec(), by });
        }
        if !restored.is_empty() {
            changes.push(Change::Restored { seq, ids: restored.to_vec(), by });
        }
    }
    if let Body::Message(MessageBody::Pinned(MessagePinned { message_id: id, pinned, .. })) = &record.body {
        changes.push(Change::Pinned { seq, id: *id, pinned: *pinned });
    }
    changes.extend(said(record).map(Change::Said));
    changes
}

/// The message that a record says, if it says one.
pub fn said(record: &Record) -> Option<Message> {
    let Utterance { id, run, role, words } = utterance(&record.body)?;
    let part = match words {
        Words::Text(text) | Words::TextAndImages(text, _) => Part::Text { text: text.to_owned() },
        Words::Call { name, input, provider } => {
            let (name, input, provider) = (name.to_owned(), input.clone(), provider.cloned());
            Part::ToolCall { call_id: id, name, input, provider }
        }
        Words::Result { status, text } => Part::ToolResult { call_id: id, status, text: text.to_owned() },
    };
    let images = match words {
        Words::TextAndImages(_, images) => images,
        Words::Text(_) | Words::Call { .. } | Words::Result { .. } => &[],
    };
    let content = [part].into_iter().chain(images.iter().cloned().map(Part::Image)).collect();
    let caller = record.body.caller().cloned();
    Some(Message { seq: record.seq, id, run, role, content, time: record.time, caller })
}

/// The id of the message that a record says; a tool's result has that of its call.
pub fn said_id(body: &Body) -> Option<Ulid> {
    utterance(body).map(|said| said.id)
}

/// What the ledger keeps of a message.
pub(crate) struct Heard {
    pub id: Ulid,
    /// It is a user's.
    pub begins: bool,
    pub tokens: u64,
    /// Of what a tool gave: its bytes.
    pub output_bytes: Option<usize>,
}

/// What a record says, without its words.
pub(crate) fn heard(body: &Body) -> Option<Heard> {
    let Utterance { id, role, words, .. } = utterance(body)?;
    let (tokens, output_bytes) = match words {
        Words::Text(text) => (tokens(text), None),
        Words::TextAndImages(text, images) => (tokens(text) + IMAGE_TOKENS * images.len() as u64, None),
        Words::Result { text, .. } => (tokens(text), Some(text.len())),
        Words::Call { name, input, .. } => (call_tokens(name, input), None),
    };
    Some(Heard { id, begins: role == Role::User, tokens: MESSAGE_TOKENS + tokens, output_bytes })
}

/// What a model is shown in place of a tool's output that was elided: how much stood there, and how it is read back.
pub fn reference(call: Ulid, bytes: usize) -> String {
    format!("[{bytes} bytes of output stood here; read them again with output.read, call_id {call}]")
}

/// What a record says, not yet copied.
struct Utterance<'a> {
    id: Ulid,
    run: RunId,
    role: Role,
    words: Words<'a>,
}

#[derive(Clone, Copy)]
enum Words<'a> {
    Text(&'a str),
    TextAndImages(&'a str, &'a [Image]),
    Call { name: &'a str, input: &'a Value, provider: Option<&'a Value> },
    Result { status: ToolStatus, text: &'a str },
}

fn utterance(body: &Body) -> Option<Utterance<'_>> {
    let text = |id: MessageId, run, role, text| {
        let (id, words) = (id.0, Words::Text(text));
        Some(Utterance { id, run, role, words })
    };
    match body {
        Body::Message(MessageBody::User(user)) => {
            let (id, run, words) =
                (user.message_id.0, user.turn_id, Words::TextAndImages(&user.text, &user.images));
            Some(Utterance { id, run, role: Role::User, words })
        }
        // A step that only called tools has said nothing; its calls are messages of their own.
        Body::Message(MessageBody::AssistantFinished(done)) if done.text.is_empty() => None,
        Body::Message(MessageBody::AssistantFinished(done)) => {
            text(done.message_id, done.turn_id, speaker(body), &done.text)
        }
        Body::Tool(ToolBody::Started(tool)) => {
            let provider = tool.provider.as_ref();
            let words = Words::Call { name: &tool.name, input: &tool.input, provider };
            Some(Utterance { id: tool.call_id.0, run: tool.turn_id, role: speaker(body), words })
        }
        // The model has not been told of a call that was never made.
        Body::Tool(ToolBody::Finished(tool)) if tool.status == ToolStatus::Skipped => None,
        Body::Tool(ToolBody::Finished(tool)) => {
            let words = Words::Result { status: tool.status, text: &tool.output };
            Some(Utterance { id: tool.call_id.0, run: tool.turn_id, role: Role::Tool, words })
        }
        Body::Message(MessageBody::System(note)) => {
            text(note.message_id, note.turn_id, Role::System, &note.text)
        }
        // What is only proposed is not said.
        Body::Compaction(CompactionBody::Recorded(made)) if made.proposed => None,
        Body::Compaction(CompactionBody::Recorded(made)) => {
            text(made.summary_message_id?, made.turn_id, Role::System, made.summary.as_deref()?)
        }
        Body::Compaction(CompactionBody::Approved(made)) => {
            text(made.summary_message_id?, made.turn_id, Role::System, made.summary.as_deref()?)
        }
        Body::Run(_)
        | Body::Session(_)
        | Body::Checkpoint(_)
        | Body::Approval(_)
        | Body::Terminal(_)
        | Body::Message(_)
        | Body::Tool(_)
        | Body::Subagent(_)
        | Body::Compaction(_) => None,
    }
}

fn speaker(body: &Body) -> Role {
    if body.caller().is_some() { Role::Subagent } else { Role::Assistant }
}

/// The messages that no longer count after this record.
pub fn superseded_ids(body: &Body) -> &[Ulid] {
    marks(body).map_or(&[], |marks| marks.superseded)
}

/// The messages that count again after this record.
pub fn restored_ids(body: &Body) -> &[Ulid] {
    marks(body).map_or(&[], |marks| marks.restored)
}

/// The tool calls whose output is shown as a reference after this record.
pub fn elided_calls(body: &Body) -> &[CallId] {
    marks(body).map_or(&[], |marks| marks.elided)
}

/// The tool calls whose output is shown again after this record.
pub fn restored_calls(body: &Body) -> &[CallId] {
    marks(body).map_or(&[], |marks| marks.restored_calls)
}

/// Which messages a record takes out of the conversation, and which it brings back; and of which tool calls it elides
/// the output, or shows it again.
struct Marks<'a> {
    superseded: &'a [Ulid],
    restored: &'a [Ulid],
    elided: &'a [CallId],
    restored_calls: &'a [CallId],
    /// A run, a checkpoint, a compaction or an import.
    by: Ulid,
}

fn marks(body: &Body) -> Option<Marks<'_>> {
    let gone =
        |superseded, elided, by| Some(Marks { superseded, restored: &[], elided, restored_calls: &[], by });
    match body {
        Body::Run(RunBody::QueuedDiscarded(discarded)) => {
            gone(std::slice::from_ref(&discarded.message_id.0), &[], discarded.turn_id.0)
        }
        Body::Checkpoint(CheckpointBody::RolledBack(RolledBack {
            checkpoint_id,
            superseded,
            restored,
            restored_call_ids,
            elided_call_ids: elided,
            by: _,
            files: _,
        })) => {
            let by = checkpoint_id.0;
            Some(Marks { superseded, restored, elided, restored_calls: restored_call_ids, by })
        }
        Body::Session(SessionBody::Imported(import)) => {
            Some(marked(&import.superseded, &import.restored, import.import_id))
        }
        Body::Session(SessionBody::ImportUndone(undone)) => {
            Some(marked(&undone.superseded, &undone.restored, undone.import_id))
        }
        Body::Compaction(CompactionBody::Recorded(made)) if made.proposed => None,
        Body::Compaction(CompactionBody::Recorded(made)) => {
            gone(&made.superseded_message_ids, &made.elided_call_ids, made.compaction_id.0)
        }
        Body::Compaction(CompactionBody::Approved(made)) => {
            gone(&made.superseded_message_ids, &made.elided_call_ids, made.compaction_id.0)
        }
        Body::Message(_)
        | Body::Tool(_)
        | Body::Subagent(_)
        | Body::Session(_)
        | Body::Approval(_)
        | Body::Terminal(_)
        | Body::Run(_)
        | Body::Checkpoint(_)
        | Body::Compaction(_) => None,
    }
}

fn marked<'a>(superseded: &'a [Ulid], restored: &'a [Ulid], by: Ulid) -> Marks<'a> {
    Marks { superseded, restored, elided: &[], restored_calls: &[], by }
}

/// Everything that was said. What of it still counts, and where it stands, is for the [`Ledger`] to say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    said: Vec<Arc<Message>>,
}

impl Conversation {
    pub fn apply(&mut self, record: &Record) {
        self.said.extend(said(record).map(Arc::new));
    }

    /// Whether this message was said.
    pub fn has(&self, id: Ulid) -> bool {
        self.said.iter().any(|message| message.id == id)
    }

    /// The messages that still count, in order: what the primary's model is shown.
    pub fn messages(&self, ledger: &Ledger) -> Vec<Arc<Message>> {
        self.counting(ledger, None)
    }

    /// The same for a subagent: what it was given to do, and then what it said and did. In its own conversation it is
    /// the assistant.
    pub fn messages_of(&self, ledger: &Ledger, subagent: &Invocation) -> Vec<Arc<Message>> {
        let asked = Message {
            seq: 0,
            id: subagent.id().0,
            run: subagent.run(),
            role: Role::User,
            content: vec![Part::Text { text: subagent.spawned.prompt.clone() }],
            time: subagent.spawned_at,
            caller: Some(subagent.caller()),
        };
        let as_assistant = |message: Arc<Message>| match message.role {
            Role::Subagent => Arc::new(Message { role: Role::Assistant, ..Message::clone(&message) }),
            Role::User | Role::Assistant | Role::System | Role::Tool => message,
        };
        let said = self.counting(ledger, Some(subagent.id())).into_iter().map(as_assistant);
        std::iter::once(Arc::new(asked)).chain(said).collect()
    }

    fn counting(&self, ledger: &Ledger, caller: Option<SubagentId>) -> Vec<Arc<Message>> {
        let places = ledger.places();
        let is_part =
            |message: &&Arc<Message>| message.caller.as_ref().map(|caller| caller.invocation_id) == caller;
        let counting = self.said.iter().filter(is_part).filter_map(|message| {
            let place = places.get(&message.id)?;
            Some((place.unwrap_or(message.seq), message))
        });
        let mut counting: Vec<_> = counting.collect();
        // Nearly sorted already: only summaries stand elsewhere than in the log.
        counting.sort_by_key(|(place, message)| (*place, message.seq));
        counting.into_iter().map(|(_, message)| message.clone()).collect()
    }
}
