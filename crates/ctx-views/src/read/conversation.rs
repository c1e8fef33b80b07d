//! A conversation as it stands now: which messages count, and where a summary stands.
//!
//! What is said of a message comes after it, so the log is read twice: once for the marks and the summaries, which
//! are few and are kept, and once for the messages, of which few are held at a time. Where `meta.json` says that every
//! message counts, it is read once, and no further than is asked for.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use ctx_session::Ulid;
use ctx_session::conversation::{self, Change, Message};

use super::messages::{Messages, changes_of};
use super::{ReadError, Reader, SessionRef};

/// Which messages of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those that count, as a model reads them: a summary stands where the first message stood that it replaces.
    Counting,
    /// All there are, in the order of the log.
    All,
}

/// A message, and whether it still counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub message: Message,
    pub superseded: bool,
}

/// The messages of a session, oldest first. Lines of a later version are left out.
pub struct Conversation {
    changes: Messages,
    marks: Marks,
    wanted: Wanted,
    /// Summaries that were given in the place of what they replace.
    placed: HashSet<Ulid>,
}

/// What the lines of a conversation say of other lines.
#[derive(Default)]
struct Marks {
    superseded: HashSet<Ulid>,
    /// The summary that took a message's place, which may itself have been replaced.
    replaced_by: HashMap<Ulid, Ulid>,
    summaries: HashMap<Ulid, Message>,
}

impl Marks {
    /// What a record says of other messages, and the summary that stands for those it takes out.
    fn apply(&mut self, changes: Vec<Change>) {
        let mut just_gone = Vec::new();
        for change in changes {
            match change {
                Change::Superseded { ids, .. } => {
                    self.supersede(&ids);
                    just_gone = ids;
                }
                Change::Restored { ids, .. } => self.restore(&ids),
                Change::Said(message) if !just_gone.is_empty() => {
                    self.replaced_by.extend(just_gone.drain(..).map(|id| (id, message.id)));
                    self.summaries.insert(message.id, message);
                }
                Change::Said(_) => {}
                Change::Pinned { .. } => {}
            }
        }
    }

    fn supersede(&mut self, ids: &[Ulid]) {
        self.superseded.extend(ids);
        for id in ids {
            self.replaced_by.remove(id);
        }
    }

    fn restore(&mut self, ids: &[Ulid]) {
        for id in ids {
            self.superseded.remove(id);
            self.replaced_by.remove(id);
        }
    }

    /// The summary that counts in the place of a message that does not.
    fn summary_for(&self, id: Ulid) -> Option<&Message> {
        // No more steps than there are summaries: a file that someone edited may lead in a circle.
        let steps = std::iter::successors(self.replaced_by.get(&id), |id| self.replaced_by.get(id));
        let mut steps = steps.take(self.summaries.len());
        steps.find(|id| !self.superseded.contains(id)).and_then(|id| self.summaries.get(id))
    }
}

impl Conversation {
    /// How many messages do not count any more; a tool call and its result are one.
    pub fn superseded(&self) -> usize {
        self.marks.superseded.len()
    }

    /// What is shown where a message stands in the file.
    fn at(&mut self, message: Message) -> Option<Said> {
        let superseded = self.marks.superseded.contains(&message.id);
        match self.wanted {
            Wanted::All => Some(Said { message, superseded }),
            Wanted::Counting if superseded => {
                let summary = self.marks.summary_for(message.id)?;
                self.placed.insert(summary.id).then(|| Said { message: summary.clone(), superseded: false })
            }
            Wanted::Counting if self.placed.contains(&message.id) => None,
            Wanted::Counting => Some(Said { message, superseded }),
        }
    }
}

impl Iterator for Conversation {
    type Item = Result<Said, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let change = match self.changes.next()? {
                Ok(change) => change,
                Err(error) => return Some(Err(error)),
            };
            if let Change::Said(message) = change
                && let Some(said) = self.at(message)
            {
                return Some(Ok(said));
            }
        }
    }
}

impl Reader {
    /// The messages of a session as they stand now.
    pub fn conversation(&self, session: &SessionRef, wanted: Wanted) -> Result<Conversation, ReadError> {
        let marks = if self.all_count(session)? { Marks::default() } else { self.marks(session)? };
        Ok(Conversation { changes: self.messages(session)?, marks, wanted, placed: HashSet::new() })
    }

    /// Whether every message counts, without reading the history: `meta.json` says so, and the log has said nothing
    /// else since.
    fn all_count(&self, session: &SessionRef) -> Result<bool, ReadError> {
        let none_gone = self.meta_file(session)?.is_some_and(|meta| meta.superseded == Some(0));
        let (true, Some(shown)) = (none_gone, self.shown(session)) else { return Ok(false) };
        let mut all = true;
        let read = self.journal.read_back(&session.log()?, &mut |entry| {
            all &= entry.seq <= shown || !conversation::may_mark(&entry.kind);
            if all && entry.seq > shown { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // Without a log the file is all there is, and it is read for its marks.
        Ok(all && read.is_ok())
    }

    fn marks(&self, session: &SessionRef) -> Result<Marks, ReadError> {
        let mut marks = Marks::default();
        let read = self.journal.read(&session.log()?, 0, &mut |entry| {
            if conversation::may_mark(&entry.kind) {
                marks.apply(changes_of(&entry));
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
                marks.apply(std::mem::take(&mut record));
            }
            record.push(change);
        }
        marks.apply(record);
        Ok(marks)
    }
}
