//! Conversations for people and for other programs: in a terminal, as Markdown, as JSON lines.
//!
//! Reads the session's files, so no daemon is needed, and holds one message at a time.

pub mod export;
pub mod markdown;
pub mod pager;
pub mod terminal;

use std::collections::HashSet;

use ctx_session::Ulid;
use ctx_session::conversation::Message;
use ctx_views::read::{Line, Reader, SessionRef, Summary};

use crate::failure::Failure;

/// A conversation and what it is part of.
pub struct Transcript<'a> {
    reader: &'a Reader,
    pub summary: Summary,
    superseded: HashSet<Ulid>,
}

/// A message, and whether it still counts.
pub struct Said {
    pub message: Message,
    pub superseded: bool,
}

impl<'a> Transcript<'a> {
    /// Reads what is said of messages later on: which of them do not count any more.
    pub fn open(reader: &'a Reader, session: &SessionRef) -> Result<Transcript<'a>, Failure> {
        let summary = reader.summary(session)?;
        let mut superseded = HashSet::new();
        for line in reader.messages(session)? {
            let line = line?;
            // Few lines are marks; the others need not be read twice.
            if !line.text.contains(r#""type":"superseded""#) && !line.text.contains(r#""type":"restored""#) {
                continue;
            }
            match line.read() {
                Line::Superseded { ids } => superseded.extend(ids),
                Line::Restored { ids } => superseded.retain(|id| !ids.contains(id)),
                Line::Said(_) | Line::Unknown => {}
            }
        }
        Ok(Transcript { reader, summary, superseded })
    }

    /// The messages, oldest first. Lines of a later version are left out.
    pub fn messages(&self) -> Result<impl Iterator<Item = Result<Said, Failure>> + '_, Failure> {
        let lines = self.reader.messages(&self.summary.session)?;
        Ok(lines.filter_map(|line| match line {
            Ok(line) => match line.read() {
                Line::Said(message) => {
                    let superseded = self.superseded.contains(&message.id);
                    Some(Ok(Said { message, superseded }))
                }
                Line::Superseded { .. } | Line::Restored { .. } | Line::Unknown => None,
            },
            Err(error) => Some(Err(error.into())),
        }))
    }

    /// What a person calls it: its title, or agent and name.
    pub fn heading(&self) -> String {
        self.summary.meta.title.clone().unwrap_or_else(|| self.name())
    }

    /// Agent and name.
    pub fn name(&self) -> String {
        format!("{}/{}", self.summary.session.sessions.object, self.summary.meta.name)
    }
}
