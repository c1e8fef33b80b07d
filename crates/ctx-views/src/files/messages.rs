//! `messages.jsonl`: appended to, never rewritten, and read from its end to learn what it shows.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use ctx_journal::Owner;
use ctx_session::conversation::{self, Change, Message, Part, Role};
use ctx_session::{Record, Ulid};
use serde::Deserialize;

use super::MESSAGES;
use crate::dir::Dir;
use crate::error::ViewError;

const CHUNK: u64 = 8 * 1024;
/// More than any line of the view: a line shows what one record holds.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// What a line is, in the order in which the lines of one record stand. A record has at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Superseded,
    Restored,
    Pinned,
    Said,
}

/// The place of a line: its record's seq, and which line of that record it is.
pub(crate) type Place = (u64, Kind);

/// Where the file ends, and its last line. A crash may have fallen between two lines of one record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) len: u64,
    pub(crate) last: Option<Place>,
}

impl Tail {
    pub(crate) fn seq(&self) -> Option<u64> {
        self.last.map(|(seq, _)| seq)
    }

    /// Whether the file has this line.
    pub(crate) fn shows(&self, change: &Change) -> bool {
        self.last.is_some_and(|last| place_of(change) <= last)
    }
}

/// The file, open for the time of one call, with the lines that wait to be written.
pub(crate) struct Messages<'a> {
    dir: &'a Dir,
    file: File,
    tail: Tail,
    waiting: Vec<u8>,
    /// The tail once what waits is written.
    next: Tail,
}

impl<'a> Messages<'a> {
    /// The file as it was left. That someone else changed it means the view is stale.
    pub(crate) fn open(dir: &'a Dir, owner: Owner, tail: Tail) -> Result<Messages<'a>, ViewError> {
        let messages = Messages::with(dir, owner, tail)?;
        let len = messages.file.metadata().map_err(|error| messages.wrong("look at the file", error))?.len();
        if len == tail.len { Ok(messages) } else { Err(ViewError::Stale { dir: dir.path_of("") }) }
    }

    /// The file as a crash or anyone else may have left it: what follows the last whole line is cut.
    pub(crate) fn take_up(dir: &'a Dir, owner: Owner) -> Result<Messages<'a>, ViewError> {
        let mut messages = Messages::with(dir, owner, Tail::default())?;
        messages.tail = tail(&messages.file).map_err(|error| messages.wrong("read the file", error))?;
        messages.next = messages.tail;
        messages.cut()?;
        Ok(messages)
    }

    fn with(dir: &'a Dir, owner: Owner, tail: Tail) -> Result<Messages<'a>, ViewError> {
        let file = dir.append(MESSAGES, owner)?;
        Ok(Messages { dir, file, tail, waiting: Vec::new(), next: tail })
    }

    fn wrong(&self, action: &'static str, error: io::Error) -> ViewError {
        ViewError::io(&self.dir.path_of(MESSAGES), action, error)
    }

    fn cut(&self) -> Result<(), ViewError> {
        self.file.set_len(self.tail.len).map_err(|error| self.wrong("cut a torn line off the file", error))
    }

    pub(crate) fn start_over(&mut self) -> Result<(), ViewError> {
        self.tail = Tail::default();
        self.next = self.tail;
        self.waiting.clear();
        self.cut()
    }

    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn push(&mut self, change: &Change) {
        let line = change.to_line();
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
        self.next = Tail { len: self.next.len + line.len() as u64 + 1, last: Some(place_of(change)) };
    }

    /// Takes of what a record changes what is not shown yet.
    pub(crate) fn push_new(&mut self, record: &Record) {
        for change in conversation::changes(record) {
            if !self.next.shows(&change) {
                self.push(&change);
            }
        }
    }

    /// Writes what waits, in one go. Half a line is taken back.
    pub(crate) fn write(&mut self) -> Result<Tail, ViewError> {
        if let Err(error) = self.file.write_all(&self.waiting) {
            // If this fails too, the torn line is cut when the file is taken up.
            let _ = self.cut();
            return Err(self.wrong("append to the file", error));
        }
        self.tail = self.next;
        self.waiting.clear();
        Ok(self.tail)
    }

    /// The latest assistant text that the file shows; empty when there is none.
    pub(crate) fn latest(&self) -> Result<String, ViewError> {
        let mut latest = Latest::default();
        for line in BackLines::new(&self.file, self.tail.len) {
            let line = line.map_err(|error| self.wrong("read the file", error))?;
            if let Some(text) = Change::of_line(&line.bytes).and_then(|change| latest.meet(change)) {
                return Ok(text);
            }
        }
        Ok(String::new())
    }
}

fn place_of(change: &Change) -> Place {
    match change {
        Change::Superseded { seq, .. } => (*seq, Kind::Superseded),
        Change::Restored { seq, .. } => (*seq, Kind::Restored),
        Change::Pinned { seq, .. } => (*seq, Kind::Pinned),
        Change::Said(message) => (message.seq, Kind::Said),
    }
}

/// The place of a line, if it is one of ours.
fn place_of_line(line: &[u8]) -> Option<Place> {
    #[derive(Deserialize)]
    struct Line {
        seq: u64,
        r#type: Option<Mark>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mark {
        Superseded,
        Restored,
        Pinned,
        Unpinned,
        /// Of a later version.
        #[serde(other)]
        Other,
    }
    let line: Line = serde_json::from_slice(line).ok()?;
    let kind = match line.r#type {
        Some(Mark::Superseded) => Kind::Superseded,
        Some(Mark::Restored) => Kind::Restored,
        Some(Mark::Pinned | Mark::Unpinned) => Kind::Pinned,
        Some(Mark::Other) | None => Kind::Said,
    };
    Some((line.seq, kind))
}

/// The last whole line that is one of ours, and where it ends.
pub(crate) fn tail(file: &File) -> io::Result<Tail> {
    for line in BackLines::new(file, file.metadata()?.len()) {
        let line = match line {
            // Not what we wrote: the view begins anew, from the log.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => break,
            line => line?,
        };
        let whole = line.bytes.last() == Some(&b'\n');
        if let Some(last) = place_of_line(&line.bytes).filter(|_| whole) {
            return Ok(Tail { len: line.offset + line.bytes.len() as u64, last: Some(last) });
        }
    }
    Ok(Tail::default())
}

/// Finds the latest assistant text among changes that come newest first: not one that was superseded.
#[derive(Default)]
pub(crate) struct Latest {
    /// What is said last of a message holds, so the first mark met counts.
    superseded: HashMap<Ulid, bool>,
}

impl Latest {
    /// The text, if this is it.
    pub(crate) fn meet(&mut self, change: Change) -> Option<String> {
        let (ids, gone) = match change {
            Change::Said(message) => return self.text_of(message),
            Change::Superseded { ids, .. } => (ids, true),
            Change::Restored { ids, .. } => (ids, false),
            // A pin says nothing of that.
            Change::Pinned { .. } => return None,
        };
        for id in ids {
            self.superseded.entry(id).or_insert(gone);
        }
        None
    }

    fn text_of(&self, message: Message) -> Option<String> {
        let counts = !self.superseded.get(&message.id).copied().unwrap_or(false);
        if message.role != Role::Assistant || !counts {
            return None;
        }
        message.content.into_iter().rev().find_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::ToolCall { .. } | Part::ToolResult { .. } | Part::Image(_) => None,
        })
    }
}

/// A line with its line end, if it has one, and where it begins.
pub(crate) struct Line {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The lines of a file from the last to the first, reading no more than is asked for.
pub(crate) struct BackLines<'a> {
    file: &'a File,
    /// Where the bytes in hand begin.
    start: u64,
    /// Bytes read and not handed out.
    hand: Vec<u8>,
    chunk: u64,
}

impl<'a> BackLines<'a> {
    pub(crate) fn new(file: &'a File, len: u64) -> BackLines<'a> {
        BackLines { file, start: len, hand: Vec::new(), chunk: CHUNK }
    }

    /// Reads the bytes before those in hand. A long line makes the steps grow.
    fn load(&mut self) -> io::Result<()> {
        // No line of ours is longer; a hole in the file would be read into memory.
        if self.hand.len() as u64 > LINE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let step = self.chunk.min(self.start);
        let mut bytes = vec![0; step as usize];
        self.file.read_exact_at(&mut bytes, self.start - step)?;
        bytes.append(&mut self.hand);
        self.hand = bytes;
        self.start -= step;
        self.chunk *= 2;
        Ok(())
    }

    /// Where the last line in hand begins, if its beginning is in hand.
    fn last_begin(&self) -> Option<usize> {
        let (_, before) = self.hand.split_last()?;
        match memchr::memrchr(b'\n', before) {
            Some(end) => Some(end + 1),
            None if self.start == 0 => Some(0),
            None => None,
        }
    }
}

impl Iterator for BackLines<'_> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<io::Result<Line>> {
        loop {
            if let Some(begin) = self.last_begin() {
                self.chunk = CHUNK;
                let bytes = self.hand.split_off(begin);
                return Some(Ok(Line { offset: self.start + begin as u64, bytes }));
            }
            if self.start == 0 {
                return None;
            }
            if let Err(error) = self.load() {
                self.start = 0;
                self.hand.clear();
                return Some(Err(error));
            }
        }
    }
}
