//! Conversations for people and for other programs: in a terminal, as Markdown, as JSON lines.
//!
//! Reads the session's log, so no daemon is needed, and holds few messages at a time.

pub mod diff;
pub mod export;
pub mod markdown;
pub mod pager;
pub mod terminal;

use ctx_session::conversation::Part;
use ctx_views::read::{Conversation, Outputs, Reader, SessionRef, Summary};
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

    /// The messages, oldest first, with the output of tools as the model read it. Lines of a later version are left out.
    pub fn messages(&self, wanted: Wanted) -> Result<Told<'_>, Failure> {
        let messages = self.reader.conversation(&self.summary.session, wanted)?;
        Ok(Told { messages, outputs: None })
    }

    /// The same with the output of tools in full.
    pub fn whole(&self, wanted: Wanted) -> Result<Told<'_>, Failure> {
        let outputs = Some(self.reader.outputs(&self.summary.session)?);
        Ok(Told { outputs, ..self.messages(wanted)? })
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

/// The messages of a conversation, read as they are asked for.
pub struct Told<'a> {
    messages: Conversation,
    /// Where long outputs are, if they are wanted in full.
    outputs: Option<Outputs<'a>>,
}

impl Told<'_> {
    /// Says how many messages do not count any more, where there are any.
    pub fn superseded(&self) -> Option<String> {
        match self.messages.superseded() {
            0 => None,
            1 => Some("1 message removed from context".to_owned()),
            many => Some(format!("{many} messages removed from context")),
        }
    }

    fn fill_in(&self, said: &mut Said) {
        let Some(outputs) = &self.outputs else { return };
        for part in &mut said.message.content {
            if let Part::ToolResult { call_id, text, .. } = part {
                match outputs.whole(*call_id) {
                    None => {}
                    Some(Ok(whole)) => *text = whole,
                    // Its beginning is better than nothing.
                    Some(Err(error)) => text.push_str(&format!("\n[the rest cannot be read: {error}]")),
                }
            }
        }
    }
}

impl Iterator for Told<'_> {
    type Item = Result<Said, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.messages.next()? {
            Ok(mut said) => {
                self.fill_in(&mut said);
                Some(Ok(said))
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}
