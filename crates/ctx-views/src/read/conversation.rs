//! A conversation as it is now: which messages are in context, and where a summary replaces others.
//!
//! A record that removes a message comes after the message, so the log is read twice: once for removals and summaries,
//! which are few and stay in memory, and once for the messages, of which few are in memory at a time. Where `meta.json`
//! says that no message was removed, the log is read once and only as far as the caller reads.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use ctx_session::conversation::{self, Change, Message};
use ctx_session::{Record, Ulid};

use super::messages::{Ended, Messages, Piece, changes_of};
use super::{ReadError, Reader, SessionRef};
use crate::files::Meta;

/// Which messages of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those that count, as a model reads them: a summary stands where the first message stood that it replaces.
    Counting,
    /// All there are, in the order of the log.
    All,
}

/// A message, and what removed it from the context, if anything did.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub message: Message,
    pub removed: Option<RemovedBy>,
    /// How the run ended after it, where that was not its own end.
    pub ended: Option<Ended>,
    /// The record that says it; None for what stands in another's place, and where there is no log.
    pub record: Option<Arc<Record>>,
    /// No compaction takes it.
    pub pinned: bool,
    /// It is none: it says that these records are lost.
    pub lost: Option<Range<u64>>,
}

impl Said {
    /// Whether the message is no longer in the context.
    pub fn superseded(&self) -> bool {
        self.removed.is_some()
    }
}

/// What removed a message from the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovedBy {
    Rollback,
    Compaction,
    Discard,
    /// The log cannot be read, and `messages.jsonl` does not say.
    Unknown,
}

impl RemovedBy {
    /// What a record of this kind does to the messages that it names.
    fn kind(kind: &str) -> RemovedBy {
        match kind {
            "rolled_back" => RemovedBy::Rollback,
            "compaction" | "compaction_approved" => RemovedBy::Compaction,
            "queued_discarded" => RemovedBy::Discard,
            _ => RemovedBy::Unknown,
        }
    }
}

impl fmt::Display for RemovedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemovedBy::Rollback => "removed from context by a rollback",
            RemovedBy::Compaction => "removed from context by a compaction",
            RemovedBy::Discard => "removed from context: discarded from the queue",
            RemovedBy::Unknown => "removed from context",
        })
    }
}

/// The messages of a session, oldest first. Lines of a later version are left out.
pub struct Conversation {
    changes: Messages,
    marks: Marks,
    wanted: Wanted,
    /// Summaries that were given in the place of what they replace.
    placed: HashSet<Ulid>,
    /// Read, and given when it is known how its run ended.
    next: Option<Said>,
}

/// What the lines of a conversation say of other lines.
#[derive(Default)]
struct Marks {
    superseded: HashMap<Ulid, RemovedBy>,
    /// The summaries that ever took a message's place, which may themselves have been replaced: a summary that a
    /// rollback brings back stands where it stood.
    replaced_by: HashMap<Ulid, Vec<Ulid>>,
    summaries: HashMap<Ulid, Message>,
    pinned: HashMap<Ulid, bool>,
}

impl Marks {
    /// The messages that a record removes or restores, and the summary that replaces the removed ones.
    fn apply(&mut self, changes: Vec<Change>, by: RemovedBy) {
        let mut just_gone = Vec::new();
        for change in changes {
            match change {
                Change::Superseded { ids, .. } => {
                    self.supersede(&ids, by);
                    just_gone = ids;
                }
                Change::Restored { ids, .. } => self.restore(&ids),
                Change::Said(message) if !just_gone.is_empty() => {
                    for id in just_gone.drain(..) {
                        self.replaced_by.entry(id).or_default().push(message.id);
                    }
                    self.summaries.insert(message.id, message);
                }
                Change::Said(_) => {}
                Change::Pinned { id, pinned, .. } => {
                    self.pinned.insert(id, pinned);
                }
            }
        }
    }

    fn supersede(&mut self, ids: &[Ulid], by: RemovedBy) {
        self.superseded.extend(ids.iter().map(|id| (*id, by)));
    }

    fn restore(&mut self, ids: &[Ulid]) {
        for id in ids {
            self.superseded.remove(id);
        }
    }

    /// The summary that counts in the place of a message that does not.
    fn summary_for(&self, id: Ulid) -> Option<&Message> {
        let mut open = vec![id];
        // A file that someone edited may lead in a circle.
        let mut passed = HashSet::new();
        while let Some(id) = open.pop() {
            for by in self.replaced_by.get(&id).into_iter().flatten() {
                if !self.superseded.contains_key(by) {
                    return self.summaries.get(by);
                }
                if passed.insert(*by) {
                    open.push(*by);
                }
            }
        }
        None
    }
}

impl Conversation {
    /// How many messages do not count any more; a tool call and its result are one.
    pub fn superseded(&self) -> usize {
        self.marks.superseded.len()
    }

    /// What is shown where a message stands in the file.
    fn at(&mut self, message: Message, record: Option<Arc<Record>>) -> Option<Said> {
        let removed = self.marks.superseded.get(&message.id).copied();
        let pinned = self.marks.pinned.get(&message.id).copied().unwrap_or(false);
        let said = Said { message, removed, ended: None, record, pinned, lost: None };
        match self.wanted {
            Wanted::All => Some(said),
            Wanted::Counting if said.superseded() => {
                let summary = self.marks.summary_for(said.message.id)?;
                self.placed.insert(summary.id).then(|| Said {
                    message: summary.clone(),
                    removed: None,
                    record: None,
                    ..said
                })
            }
            Wanted::Counting if self.placed.contains(&said.message.id) => None,
            Wanted::Counting => Some(said),
        }
    }
}

impl Iterator for Conversation {
    type Item = Result<Said, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(piece) = self.changes.next_piece() else { return self.next.take().map(Ok) };
            match piece {
                Ok(Piece::Change(Change::Said(message), record)) => {
                    if let Some(said) = self.at(message, record)
                        && let Some(before) = self.next.replace(said)
                    {
                        return Some(Ok(before));
                    }
                }
                Ok(Piece::Lost(lost, time)) => {
                    if let Some(said) = self.at(Message::gap(&lost, time), None)
                        && let Some(before) = self.next.replace(Said { lost: Some(lost.records), ..said })
                    {
                        return Some(Ok(before));
                    }
                }
                Ok(Piece::Change(..)) => {}
                Ok(Piece::Ended(ended)) => {
                    // A run whose messages are not shown has no end to show.
                    if let Some(said) = self.next.as_mut() {
                        said.ended = Some(ended);
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Whether a record of this type may say something of other messages.
fn marks(kind: &str) -> bool {
    conversation::may_mark(kind) || kind == PINNED
}

/// The type of the record that pins a message.
const PINNED: &str = "message_pinned";

impl Reader {
    /// The messages of a session as they stand now.
    pub fn conversation(&self, session: &SessionRef, wanted: Wanted) -> Result<Conversation, ReadError> {
        let marks = if self.all_count(session)? { Marks::default() } else { self.marks(session)? };
        Ok(Conversation {
            changes: self.messages(session)?,
            marks,
            wanted,
            placed: HashSet::new(),
            next: None,
        })
    }

    /// Whether every message counts, without reading the history: `meta.json` says so, and the log has said nothing
    /// else since.
    fn all_count(&self, session: &SessionRef) -> Result<bool, ReadError> {
        let is_plain = |meta: Meta| meta.superseded == Some(0) && meta.pinned == Some(0);
        let none_gone = self.meta_file(session)?.is_some_and(is_plain);
        let (true, Some(shown)) = (none_gone, self.shown(session)) else { return Ok(false) };
        let mut all = true;
        let read = self.journal.read_back(&session.log()?, &mut |entry| {
            all &= entry.seq <= shown || !marks(&entry.kind);
            if all && entry.seq > shown { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // Without a log the file is all there is, and it is read for its marks.
        Ok(all && read.is_ok())
    }

    fn marks(&self, session: &SessionRef) -> Result<Marks, ReadError> {
        let mut marks = Marks::default();
        let read = self.journal.read(&session.log()?, 0, &mut |entry| {
            if self::marks(&entry.kind) {
                marks.apply(changes_of(&entry), RemovedBy::kind(&entry.kind));
            }
            ControlFlow::Continue(())
        });
        if read.is_ok() {
            return Ok(marks);
        }
        let mut marks = Marks::default();
        // The changes of one record stand together.
        let mut record: Vec<Change> = Vec::new();
        for change in self.messages(session)? {
            let change = change?;
            if record.first().is_some_and(|first| first.seq() != change.seq()) {
                marks.apply(std::mem::take(&mut record), RemovedBy::Unknown);
            }
            record.push(change);
        }
        marks.apply(record, RemovedBy::Unknown);
        Ok(marks)
    }
}
