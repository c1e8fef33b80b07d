//! The ledger: which messages a log has, in order, and whether each still counts.
//!
//! A tool call and its result have one id, so they are one entry here and are never split. What the messages say is
//! in [`crate::conversation`]; this is what rollback and compaction reckon with.

use std::collections::HashSet;
use std::sync::Arc;

use crate::conversation::{restored_ids, said_id, superseded_ids};
use crate::ids::Ulid;
use crate::record::Record;

/// A message's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub id: Ulid,
    /// The record that said it first.
    pub seq: u64,
    /// The record that superseded it, while it does not count.
    pub superseded_at: Option<u64>,
}

/// Shared until it changes: a look at a session does not copy it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    entries: Arc<Vec<Entry>>,
}

impl Ledger {
    pub(crate) fn apply(&mut self, record: &Record) {
        let (superseded, restored) = (superseded_ids(&record.body), restored_ids(&record.body));
        if !superseded.is_empty() || !restored.is_empty() {
            let superseded: HashSet<&Ulid> = superseded.iter().collect();
            let restored: HashSet<&Ulid> = restored.iter().collect();
            for entry in Arc::make_mut(&mut self.entries) {
                if restored.contains(&entry.id) {
                    entry.superseded_at = None;
                } else if superseded.contains(&entry.id) && entry.superseded_at.is_none() {
                    entry.superseded_at = Some(record.seq);
                }
            }
        }
        if let Some(id) = said_id(&record.body)
            && !self.is_result_of_recent(id)
        {
            let entry = Entry { id, seq: record.seq, superseded_at: None };
            Arc::make_mut(&mut self.entries).push(entry);
        }
    }

    /// A result comes soon after its call: the entry is among the last ones.
    fn is_result_of_recent(&self, id: Ulid) -> bool {
        self.entries.iter().rev().take(RECENT).any(|entry| entry.id == id)
    }

    /// Every message, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn counts(&self, id: Ulid) -> bool {
        self.entries.iter().rev().any(|entry| entry.id == id && entry.superseded_at.is_none())
    }

    /// The newest message that counts.
    pub fn newest(&self) -> Option<Ulid> {
        self.entries.iter().rev().find(|entry| entry.superseded_at.is_none()).map(|entry| entry.id)
    }

    /// What going back to the record `seq` takes out of the conversation, and what it brings back.
    pub fn back_to(&self, seq: u64) -> (Vec<Ulid>, Vec<Ulid>) {
        let later = self.entries.iter().filter(|e| e.seq > seq && e.superseded_at.is_none());
        let earlier =
            self.entries.iter().filter(|e| e.seq <= seq && e.superseded_at.is_some_and(|at| at > seq));
        (later.map(|entry| entry.id).collect(), earlier.map(|entry| entry.id).collect())
    }
}

/// Tool calls of one answer start together and are settled in order; more than this in one answer is not seen.
const RECENT: usize = 256;
