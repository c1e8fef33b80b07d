//! The ledger: which messages a log has, in order, and whether each still counts.
//!
//! A tool call and its result have one id, so they are one entry here and are never split. What the messages say is
//! in [`crate::conversation`]; this is what rollback and compaction reckon with.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::conversation::{
    Heard, elided_calls, heard, reference, restored_calls, restored_ids, superseded_ids,
};
use crate::estimate::{MESSAGE_TOKENS, tokens};
use crate::ids::{CallId, Ulid};
use crate::record::{Body, MessageBody, MessagePinned, Record, ToolBody};

/// A message's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub id: Ulid,
    /// The record that said it first.
    pub seq: u64,
    /// Where it stands in the conversation: its own seq, or for a summary that of the first message it stands for.
    pub place: u64,
    /// A user's message: an exchange begins with it.
    pub begins: bool,
    /// What it is taken for in a model's window; of a tool call, with its whole result.
    pub tokens: u64,
    /// What a tool call gave, once it has.
    pub output: Option<Output>,
    /// No compaction takes it.
    pub pinned: bool,
    /// The record that superseded it, while it does not count.
    pub superseded_at: Option<u64>,
}

/// What a tool gave, as far as its size goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// What a reference in its place saves in a model's window.
    pub saves: u64,
    /// The record from which on the model is shown a reference.
    pub elided_at: Option<u64>,
}

impl Output {
    fn new(call: Ulid, bytes: usize, whole: u64) -> Output {
        Output { saves: whole.saturating_sub(tokens(&reference(call, bytes))), elided_at: None }
    }

    pub fn is_elided(&self) -> bool {
        self.elided_at.is_some()
    }
}

impl Entry {
    /// What it is taken for as the model is shown it.
    fn shown_tokens(&self) -> u64 {
        let saved = self.output.filter(Output::is_elided).map_or(0, |output| output.saves);
        self.tokens.saturating_sub(saved)
    }
}

/// Shared until it changes: a look at a session does not copy it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    entries: Arc<Vec<Entry>>,
    /// What became of messages and of output when: what counted at an earlier record is found in it.
    marks: Arc<Vec<Mark>>,
    /// How many of them do not count.
    superseded: usize,
}

/// A change of what counts, or of whose output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    seq: u64,
    id: Ulid,
    kind: MarkKind,
    /// Superseded or elided; otherwise it counts, or is shown, again.
    is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkKind {
    Message,
    Output,
}

impl Ledger {
    pub fn apply(&mut self, record: &Record) {
        let replaced = self.mark(record);
        self.elide(record);
        if let Body::Message(MessageBody::Pinned(MessagePinned { message_id, pinned, .. })) = &record.body {
            self.pin(*message_id, *pinned);
        }
        let Some(Heard { id, begins, tokens, output_bytes }) = heard(&record.body) else { return };
        match self.place_of(id, &record.body) {
            None => {
                let place = replaced.unwrap_or(record.seq);
                let (seq, pinned, superseded_at) = (record.seq, false, None);
                let output = output_bytes.map(|bytes| Output::new(id, bytes, text_tokens(tokens)));
                let entry = Entry { id, seq, place, begins, tokens, output, pinned, superseded_at };
                Arc::make_mut(&mut self.entries).push(entry);
            }
            Some(at) if matches!(record.body, Body::Tool(ToolBody::Finished(_))) => {
                if let Some(entry) = Arc::make_mut(&mut self.entries).get_mut(at) {
                    entry.tokens = entry.tokens.saturating_add(tokens);
                    let bytes = output_bytes.unwrap_or_default();
                    entry.output.get_or_insert_with(|| Output::new(id, bytes, text_tokens(tokens)));
                }
            }
            Some(_) => {}
        }
    }

    /// Supersedes and restores what a record says, and tells where the first of the superseded ones stood.
    fn mark(&mut self, record: &Record) -> Option<u64> {
        let (superseded, restored) = (superseded_ids(&record.body), restored_ids(&record.body));
        if superseded.is_empty() && restored.is_empty() {
            return None;
        }
        let superseded: HashSet<&Ulid> = superseded.iter().collect();
        let restored: HashSet<&Ulid> = restored.iter().collect();
        let mut first = None;
        let marks = Arc::make_mut(&mut self.marks);
        let mark = |id, is_gone| Mark { seq: record.seq, id, kind: MarkKind::Message, is_gone };
        for entry in Arc::make_mut(&mut self.entries) {
            if restored.contains(&entry.id) {
                entry.superseded_at = None;
                marks.push(mark(entry.id, false));
            } else if superseded.contains(&entry.id) && entry.superseded_at.is_none() {
                entry.superseded_at = Some(record.seq);
                marks.push(mark(entry.id, true));
                first = Some(first.map_or(entry.place, |place: u64| place.min(entry.place)));
            }
        }
        self.superseded = self.entries.len() - self.counting().count();
        first
    }

    /// Shows references in place of output, or output again, as a record says.
    fn elide(&mut self, record: &Record) {
        let (elided, restored) = (elided_calls(&record.body), restored_calls(&record.body));
        if elided.is_empty() && restored.is_empty() {
            return;
        }
        let elided: HashSet<Ulid> = elided.iter().map(|call| call.0).collect();
        let restored: HashSet<Ulid> = restored.iter().map(|call| call.0).collect();
        let marks = Arc::make_mut(&mut self.marks);
        let mark = |id, is_gone| Mark { seq: record.seq, id, kind: MarkKind::Output, is_gone };
        for entry in Arc::make_mut(&mut self.entries) {
            let Some(output) = &mut entry.output else { continue };
            if restored.contains(&entry.id) {
                output.elided_at = None;
                marks.push(mark(entry.id, false));
            } else if elided.contains(&entry.id) {
                output.elided_at.get_or_insert(record.seq);
                marks.push(mark(entry.id, true));
            }
        }
    }

    /// A tool's result is its call's entry, which is one of the last, however many calls an answer made. Anything else
    /// is new, unless a line is repeated.
    fn place_of(&self, id: Ulid, body: &Body) -> Option<usize> {
        let within =
            if matches!(body, Body::Tool(ToolBody::Finished(_))) { usize::MAX } else { REPEATED_WITHIN };
        let from_end = self.entries.iter().rev().take(within).position(|entry| entry.id == id)?;
        self.entries.len().checked_sub(from_end + 1)
    }

    /// Every message, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The messages that count.
    pub fn counting(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.superseded_at.is_none())
    }

    /// The messages that count, each with its place where that is another than its place in the log: a summary stands
    /// where the first of the messages stood that it replaces.
    pub(crate) fn places(&self) -> HashMap<Ulid, Option<u64>> {
        let place = |entry: &Entry| (entry.id, (entry.place != entry.seq).then_some(entry.place));
        self.counting().map(place).collect()
    }

    /// How many messages do not count any more.
    pub fn superseded(&self) -> usize {
        self.superseded
    }

    pub fn counts(&self, id: Ulid) -> bool {
        self.counting().rev().any(|entry| entry.id == id)
    }

    /// The newest message that counts.
    pub fn newest(&self) -> Option<Ulid> {
        self.counting().next_back().map(|entry| entry.id)
    }

    fn pin(&mut self, id: Ulid, pinned: bool) {
        if let Some(at) = self.entries.iter().rposition(|entry| entry.id == id)
            && let Some(entry) = Arc::make_mut(&mut self.entries).get_mut(at)
        {
            entry.pinned = pinned;
        }
    }

    /// The messages that count and that no compaction takes.
    pub fn pinned(&self) -> impl Iterator<Item = Ulid> + '_ {
        self.counting().filter(|entry| entry.pinned).map(|entry| entry.id)
    }

    /// The last exchange, which always stays: the newest user's message that counts, and everything that stands after it.
    /// A summary stands where the first of the messages stood that it replaces, and so before it. Empty where no user's
    /// message counts.
    pub fn last_exchange(&self) -> impl Iterator<Item = &Entry> {
        let begin = self.counting().filter(|entry| entry.begins).map(|entry| entry.place).max();
        self.counting().filter(move |entry| begin.is_some_and(|begin| entry.place >= begin))
    }

    /// What these messages are taken for in a model's window.
    pub fn tokens_of(&self, ids: &[Ulid]) -> u64 {
        let wanted: HashSet<&Ulid> = ids.iter().collect();
        self.counting().filter(|entry| wanted.contains(&entry.id)).map(Entry::shown_tokens).sum()
    }

    /// The tool calls that count and whose output the model is shown as a reference.
    pub fn elided(&self) -> impl Iterator<Item = Ulid> + '_ {
        let is_elided = |entry: &&Entry| entry.output.is_some_and(|output| output.is_elided());
        self.counting().filter(is_elided).map(|entry| entry.id)
    }

    /// What references in place of these calls' output save in a model's window.
    pub fn saved_by(&self, calls: &[CallId]) -> u64 {
        let wanted: HashSet<Ulid> = calls.iter().map(|call| call.0).collect();
        let outputs = self.counting().filter(|entry| wanted.contains(&entry.id)).filter_map(|e| e.output);
        outputs.filter(|output| !output.is_elided()).map(|output| output.saves).sum()
    }

    /// What going back to the record `seq` changes: what counted and was shown then, counts and is shown again, and nothing
    /// else.
    pub fn back_to(&self, seq: u64) -> Back {
        let gone = |kind: MarkKind| -> HashSet<Ulid> {
            let before = self.marks.iter().filter(|mark| mark.kind == kind && mark.seq <= seq);
            let newest: HashMap<Ulid, bool> = before.map(|mark| (mark.id, mark.is_gone)).collect();
            newest.into_iter().filter(|(_, is_gone)| *is_gone).map(|(id, _)| id).collect()
        };
        let (superseded, elided) = (gone(MarkKind::Message), gone(MarkKind::Output));
        let counted = |entry: &&Entry| entry.seq <= seq && !superseded.contains(&entry.id);
        let earlier = self.entries.iter().filter(|entry| entry.seq <= seq);
        let is_elided = |entry: &&Entry| entry.output.is_some_and(|output| output.is_elided());
        let ids = |calls: Vec<&Entry>| calls.into_iter().map(|entry| CallId(entry.id)).collect();
        Back {
            superseded: self.counting().filter(|entry| !counted(entry)).map(|entry| entry.id).collect(),
            restored: self
                .entries
                .iter()
                .filter(|entry| entry.superseded_at.is_some() && counted(entry))
                .map(|entry| entry.id)
                .collect(),
            restored_calls: ids(earlier
                .clone()
                .filter(|entry| is_elided(entry) && !elided.contains(&entry.id))
                .collect()),
            elided_calls: ids(earlier
                .filter(|entry| entry.output.is_some() && !is_elided(entry) && elided.contains(&entry.id))
                .collect()),
        }
    }
}

/// What a rollback takes out of the conversation, and what it brings back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Back {
    pub superseded: Vec<Ulid>,
    pub restored: Vec<Ulid>,
    /// Tool calls whose output is shown again.
    pub restored_calls: Vec<CallId>,
    /// Tool calls whose output is elided again.
    pub elided_calls: Vec<CallId>,
}

/// Of what a message is taken for, its text.
fn text_tokens(message: u64) -> u64 {
    message.saturating_sub(MESSAGE_TOKENS)
}

/// How far back a line is looked for that damage may have repeated.
const REPEATED_WITHIN: usize = 16;
