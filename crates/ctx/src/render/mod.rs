//! Conversations for people and for other programs: in a terminal, as Markdown, as JSON lines.
//!
//! Reads the session's files, so no daemon is needed, and holds one message at a time.

pub mod export;
pub mod markdown;
pub mod pager;
pub mod terminal;

use ctx_views::read::{Reader, SessionRef, Summary};
pub use ctx_views::read::{Said, Wanted};

use crate::failure::Failure;

/// A conversation and what it is part of.
pub struct Transcript<'a> {
    reader: &'a Reader,
    pub summary: Summary,
}

impl<'a> Transcript<'a> {
    pub fn open(reader: &'a Reader, session: &SessionRef) -> Result<Transcript<'a>, Failure> {
        Ok(Transcript { reader, summary: reader.summary(session)? })
    }

    /// The messages, oldest first. Lines of a later version are left out.
    pub fn messages(
        &self,
        wanted: Wanted,
    ) -> Result<impl Iterator<Item = Result<Said, Failure>> + '_, Failure> {
        let messages = self.reader.conversation(&self.summary.session, wanted)?;
        Ok(messages.map(|said| said.map_err(Failure::from)))
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
