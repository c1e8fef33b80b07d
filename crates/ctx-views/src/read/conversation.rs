//! A conversation as it stands now: which messages count, and where a summary stands.
//!
//! What is said of a message comes after it, so the file is read twice: once for the marks and the summaries, which
//! are few and are kept, and once for the messages, of which one is held at a time. Where `meta.json` says that every
//! message counts, it is read once, and no further than is asked for.

use std::collections::{HashMap, HashSet};

use ctx_session::Ulid;
use ctx_session::conversation::Message;

use super::messages::{Line, Messages};
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
    lines: Messages,
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
    fn read(lines: Messages) -> Result<Marks, ReadError> {
        let mut marks = Marks::default();
        // The messages that the line before has superseded: a summary of them comes right after it.
        let mut just_gone: Option<(u64, Vec<Ulid>)> = None;
        for line in lines {
            let line = line?;
            // Few lines are marks; the others need not be read twice.
            if just_gone.is_none() && !may_be_mark(&line.text) {
                continue;
            }
            let before = just_gone.take();
            match line.read() {
                Line::Superseded { seq, ids } => {
                    marks.supersede(&ids);
                    just_gone = Some((seq, ids));
                }
                Line::Restored { ids, .. } => marks.restore(&ids),
                Line::Said(message) => {
                    if let Some((_, ids)) = before.filter(|(seq, _)| *seq == message.seq) {
                        marks.replaced_by.extend(ids.into_iter().map(|id| (id, message.id)));
                        marks.summaries.insert(message.id, message);
                    }
                }
                Line::Unknown => {}
            }
        }
        Ok(marks)
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

fn may_be_mark(line: &str) -> bool {
    line.contains(r#""type":"superseded""#) || line.contains(r#""type":"restored""#)
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
            let line = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            if let Line::Said(message) = line.read()
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
        let all_count = self.meta_file(session)?.is_some_and(|meta| meta.superseded == Some(0));
        let lines = self.messages(session)?;
        let marks = match all_count && !lines.unshown().any(may_be_mark) {
            true => Marks::default(),
            false => Marks::read(self.messages(session)?)?,
        };
        Ok(Conversation { lines, marks, wanted, placed: HashSet::new() })
    }
}
