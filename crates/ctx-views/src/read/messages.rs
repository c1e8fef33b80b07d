//! Reading a conversation line by line, so that the first lines of a long one cost no more than those of a
//! short one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;

use ctx_session::Ulid;
use ctx_session::conversation::{self, Change, Message};
use serde::Deserialize;

use super::{ReadError, Reader, SessionRef};
use crate::error::ViewError;
use crate::files::{self, BackLines, Tail, latest_text, record_of, tail};

/// A line of `messages.jsonl`, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLine {
    /// Without its line end.
    pub text: String,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Said(Message),
    /// These messages do not count any more.
    Superseded {
        seq: u64,
        ids: Vec<Ulid>,
    },
    /// They do again.
    Restored {
        seq: u64,
        ids: Vec<Ulid>,
    },
    /// Of a later version, or damaged.
    Unknown,
}

impl MessageLine {
    pub fn read(&self) -> Line {
        #[derive(Deserialize)]
        struct Mark {
            seq: u64,
            r#type: String,
            ids: Vec<Ulid>,
        }
        if let Ok(message) = serde_json::from_str(&self.text) {
            return Line::Said(message);
        }
        match serde_json::from_str::<Mark>(&self.text) {
            Ok(mark) if mark.r#type == "superseded" => Line::Superseded { seq: mark.seq, ids: mark.ids },
            Ok(mark) if mark.r#type == "restored" => Line::Restored { seq: mark.seq, ids: mark.ids },
            Ok(_) | Err(_) => Line::Unknown,
        }
    }
}

/// The lines of a conversation, oldest first.
pub struct Messages {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// What the file does not show yet.
    rest: VecDeque<String>,
}

impl Messages {
    /// The lines that the file does not show yet.
    pub(super) fn unshown(&self) -> impl Iterator<Item = &str> {
        self.rest.iter().map(String::as_str)
    }
}

impl Iterator for Messages {
    type Item = Result<MessageLine, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(file) = &mut self.file {
            let mut bytes = Vec::new();
            match file.read_until(b'\n', &mut bytes) {
                // A last line without its end is one that was not written whole; the log has it.
                Ok(_) if bytes.last() == Some(&b'\n') => {
                    bytes.pop();
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    return Some(Ok(MessageLine { text }));
                }
                Ok(_) => self.file = None,
                Err(error) => {
                    self.file = None;
                    return Some(Err(ViewError::io(&self.path, "read the file", error).into()));
                }
            }
        }
        self.rest.pop_front().map(|text| Ok(MessageLine { text }))
    }
}

impl Reader {
    /// The conversation of a session, read as it is asked for. What `messages.jsonl` does not show yet comes
    /// from the log.
    pub fn messages(&self, session: &SessionRef) -> Result<Messages, ReadError> {
        let dir = self.root.dir(&session.path())?;
        let path = dir.path_of(files::MESSAGES);
        let file = dir.read(files::MESSAGES)?;
        let wrong = |error| ReadError::from(ViewError::io(&path, "read the file", error));
        let shown = file.as_ref().map(tail).transpose().map_err(wrong)?.unwrap_or_default();
        let rest = self.lines_after(session, shown, file.is_some())?;
        Ok(Messages { path, file: file.map(BufReader::new), rest: rest.into() })
    }

    /// The latest assistant text; empty when there is none yet.
    pub fn latest(&self, session: &SessionRef) -> Result<String, ReadError> {
        let dir = self.root.dir(&session.path())?;
        let path = dir.path_of(files::MESSAGES);
        let wrong = |error| ReadError::from(ViewError::io(&path, "read the file", error));
        let file = dir.read(files::MESSAGES)?;
        let shown = file.as_ref().map(tail).transpose().map_err(wrong)?.unwrap_or_default();
        let rest = self.lines_after(session, shown, file.is_some())?;
        if let (true, Some(bytes)) = (rest.is_empty(), dir.contents(files::LATEST)?) {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        let newest_first = rest.into_iter().rev().map(|line| Ok(line.into_bytes()));
        let len =
            file.as_ref().map(|file| file.metadata()).transpose().map_err(wrong)?.map_or(0, |m| m.len());
        let of_file = file.iter().flat_map(|file| BackLines::new(file, len).map(|line| Ok(line?.bytes)));
        let text = latest_text(newest_first.chain(of_file)).map_err(wrong)?;
        Ok(text.unwrap_or_default())
    }

    /// The lines for what the log has beyond the file, oldest first. A log that cannot be read is no reason to
    /// hide what the file has.
    fn lines_after(
        &self,
        session: &SessionRef,
        shown: Tail,
        has_file: bool,
    ) -> Result<Vec<String>, ReadError> {
        let mut lines = Vec::new();
        let read = self.journal.read_back(&session.log()?, &mut |entry| {
            if shown.seq().is_some_and(|last| entry.seq < last) {
                return ControlFlow::Break(());
            }
            let changes = record_of(&entry).map(|record| conversation::changes(&record)).unwrap_or_default();
            let new = changes.iter().filter(|change| !shown.shows(change));
            lines.extend(new.rev().map(Change::to_line));
            ControlFlow::Continue(())
        });
        match read {
            Ok(()) => {}
            Err(_) if has_file => return Ok(Vec::new()),
            Err(error) => return Err(ViewError::from(error).into()),
        }
        lines.reverse();
        Ok(lines)
    }
}
