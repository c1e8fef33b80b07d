//! The ledger: which messages a log has, in order, and whether each still counts.
//!
//! A tool call and its result have one id, so they are one entry here and are never split. What the messages say is
//! in [`crate::conversation`]; this is what rollback and compaction reckon with.

use std::collections::HashSet;
use std::sync::Arc;

use crate::conversation::{Heard, heard, restored_ids, superseded_ids};
use crate::ids::Ulid;
use crate::record::{Body, MessagePinned, Record};

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
    /// What it is taken for in a model's window; of a tool call, with its result.
    pub tokens: u64,
    /// No compaction takes it.
    pub pinned: bool,
    /// The record that superseded it, while it does not count.
    pub superseded_at: Option<u64>,
}

/// Shared until it changes: a look at a session does not copy it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    entries: Arc<Vec<Entry>>,
    /// How many of them do not count.
    superseded: usize,
}

impl Ledger {
    pub(crate) fn apply(&mut self, record: &Record) {
        let replaced = self.mark(record);
        if let Body::MessagePinned(MessagePinned { message_id, pinned, .. }) = &record.body {
            self.pin(*message_id, *pinned);
        }
        let Some(Heard { id, begins, tokens }) = heard(&record.body) else { return };
        match self.place_of(id, &record.body) {
            None => {
                let place = replaced.unwrap_or(record.seq);
                let entry =
                    Entry { id, seq: record.seq, place, begins, tokens, pinned: false, superseded_at: None };
                Arc::make_mut(&mut self.entries).push(entry);
            }
            Some(at) if matches!(record.body, Body::ToolFinished(_)) => {
                if let Some(entry) = Arc::make_mut(&mut self.entries).get_mut(at) {
                    entry.tokens = entry.tokens.saturating_add(tokens);
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
        for entry in Arc::make_mut(&mut self.entries) {
            if restored.contains(&entry.id) {
                entry.superseded_at = None;
            } else if superseded.contains(&entry.id) && entry.superseded_at.is_none() {
                entry.superseded_at = Some(record.seq);
                first = Some(first.map_or(entry.place, |place: u64| place.min(entry.place)));
            }
        }
        self.superseded = self.entries.len() - self.counting().count();
        first
    }

    /// A tool's result is its call's entry, which is one of the last, however many calls an answer made. Anything else
    /// is new, unless a line is repeated.
    fn place_of(&self, id: Ulid, body: &Body) -> Option<usize> {
        let within = if matches!(body, Body::ToolFinished(_)) { usize::MAX } else { REPEATED_WITHIN };
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
        self.counting().filter(|entry| wanted.contains(&entry.id)).map(|entry| entry.tokens).sum()
    }

    /// What going back to the record `seq` takes out of the conversation, and what it brings back.
    pub fn back_to(&self, seq: u64) -> (Vec<Ulid>, Vec<Ulid>) {
        let later = self.counting().filter(|entry| entry.seq > seq);
        let earlier =
            self.entries.iter().filter(|e| e.seq <= seq && e.superseded_at.is_some_and(|at| at > seq));
        (later.map(|entry| entry.id).collect(), earlier.map(|entry| entry.id).collect())
    }
}

/// How far back a line is looked for that damage may have repeated.
const REPEATED_WITHIN: usize = 16;
