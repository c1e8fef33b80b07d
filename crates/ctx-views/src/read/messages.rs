//! Reading a conversation change by change, so that the first ones of a long one cost no more than those of a short one.
//!
//! The log is read, and not `messages.jsonl`: that file is for people and their programs, and may have lost a line or
//! be behind. It answers only where the log cannot.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ctx_journal::{Entry, JournalError, LOST};
use ctx_session::conversation::{self, Change, Gap, Message};
use ctx_session::record::{Body, CancelReason, Failed, RunBody};
use ctx_session::{Code, Record, Timestamp};

use super::{ReadError, Reader, SessionRef};
use crate::error::ViewError;
use crate::files::{self, Latest, record_of};

/// Changes that are read ahead of whoever asks for them.
const AHEAD: usize = 64;
/// Records that are looked back over for the latest text before the file of it is believed.
const LOOK_BACK: usize = 512;

/// What changed in a conversation, oldest first.
pub struct Messages {
    from: Source,
}

/// How a run ended that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Failed { code: Code, reason: String, message: String },
    Cancelled(CancelReason),
}

/// A piece of a conversation.
pub(super) enum Piece {
    /// What changed, and the record that says so, where a record does.
    Change(Change, Option<Arc<Record>>),
    /// Records that are lost, and the time of the one after them.
    Lost(Gap, Timestamp),
    /// A run ended after what was said before.
    Ended(Ended),
}

enum Source {
    /// Read by a thread, which stops when nobody listens any more.
    Log(Receiver<Result<Piece, ReadError>>),
    File {
        path: PathBuf,
        lines: BufReader<File>,
    },
    Done,
}

impl Iterator for Messages {
    type Item = Result<Change, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_piece()? {
                Ok(Piece::Change(change, _)) => return Some(Ok(change)),
                Ok(Piece::Lost(lost, time)) => return Some(Ok(Change::Said(Message::gap(&lost, time)))),
                Ok(Piece::Ended(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Messages {
    pub(super) fn next_piece(&mut self) -> Option<Result<Piece, ReadError>> {
        let (path, lines) = match &mut self.from {
            Source::Log(pieces) => return pieces.recv().ok(),
            Source::File { path, lines } => (path, lines),
            Source::Done => return None,
        };
        loop {
            let mut line = Vec::new();
            match lines.read_until(b'\n', &mut line) {
                // A last line without its end is one that was not written whole.
                Ok(_) if line.last() != Some(&b'\n') => {
                    self.from = Source::Done;
                    return None;
                }
                Ok(_) => {
                    if let Some(change) = Change::of_line(&line) {
                        return Some(Ok(Piece::Change(change, None)));
                    }
                }
                Err(error) => {
                    let error = ViewError::io(path, "read the file", error);
                    self.from = Source::Done;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

impl Reader {
    /// The conversation of a session, read as it is asked for. Where there is no log to read, what
    /// `messages.jsonl` has.
    pub fn messages(&self, session: &SessionRef) -> Result<Messages, ReadError> {
        let log = session.log()?;
        if let Err(error) = self.journal.head(&log) {
            let dir = self.root.dir(&session.path())?;
            let file = dir.read(files::MESSAGES)?.ok_or_else(|| ViewError::from(error))?;
            let path = dir.path_of(files::MESSAGES);
            return Ok(Messages { from: Source::File { path, lines: BufReader::new(file) } });
        }
        let (journal, (tell, pieces)) = (self.journal.clone(), sync_channel(AHEAD));
        std::thread::spawn(move || {
            let mut due = 0;
            let read = journal.read(&log, 0, &mut |entry| tell_pieces(&entry, &mut due, &tell));
            if let Err(error) = read {
                // Whoever listened may have left.
                let _ = tell.send(Err(ViewError::from(error).into()));
            }
        });
        Ok(Messages { from: Source::Log(pieces) })
    }

    /// The latest assistant text; empty when there is none yet.
    pub fn latest(&self, session: &SessionRef) -> Result<String, ReadError> {
        let file = || -> Result<Option<String>, ReadError> {
            let bytes = self.root.dir(&session.path())?.contents(files::LATEST)?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        match self.look_back(session, LOOK_BACK) {
            Ok(LookedBack::Found(text)) => Ok(text),
            Ok(LookedBack::GaveUp { newest }) => match file()? {
                Some(text) if self.shown(session).is_some_and(|shown| shown >= newest) => Ok(text),
                Some(_) | None => match self.look_back(session, usize::MAX).map_err(ViewError::from)? {
                    LookedBack::Found(text) => Ok(text),
                    LookedBack::GaveUp { .. } => Ok(String::new()),
                },
            },
            Err(error) => file()?.ok_or_else(|| ViewError::from(error).into()),
        }
    }

    /// Looks for the latest text from the end of the log, over at most so many records.
    fn look_back(&self, session: &SessionRef, most: usize) -> Result<LookedBack, JournalError> {
        let Ok(log) = session.log() else { return Ok(LookedBack::Found(String::new())) };
        let (mut latest, mut looked, mut newest) = (Latest::default(), 0, 0);
        let mut found = None;
        self.journal.read_back(&log, &mut |entry| {
            looked += 1;
            for change in changes_of(&entry).into_iter().rev() {
                newest = newest.max(entry.seq);
                found = found.take().or_else(|| latest.meet(change));
            }
            let enough = found.is_some() || looked >= most;
            if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(match found {
            None if looked >= most => LookedBack::GaveUp { newest },
            found => LookedBack::Found(found.unwrap_or_default()),
        })
    }

    /// The last record that `messages.jsonl` shows.
    pub(super) fn shown(&self, session: &SessionRef) -> Option<u64> {
        let file = self.root.dir(&session.path()).ok()?.read(files::MESSAGES).ok()??;
        files::tail(&file).ok()?.seq()
    }
}

enum LookedBack {
    /// Empty when nothing was said.
    Found(String),
    /// The newest record that changed the conversation, of those that were looked at.
    GaveUp { newest: u64 },
}

fn tell_pieces(entry: &Entry, due: &mut u64, tell: &SyncSender<Result<Piece, ReadError>>) -> ControlFlow<()> {
    let next = entry.seq_after();
    // What a repair has put in the place of lost records counts as they would.
    let records = if entry.kind == LOST { *due..next } else { *due..entry.seq };
    let is_repaired = entry.kind == LOST && *due == entry.seq;
    *due = next;
    let lost = (!records.is_empty()).then_some(Piece::Lost(Gap { records, is_repaired }, entry.time));
    let record = changing(entry).map(Arc::new);
    let changes = record.iter().flat_map(|record| conversation::changes(record));
    let changes = changes.map(|change| Piece::Change(change, record.clone()));
    for piece in lost.into_iter().chain(changes).chain(ended(entry).map(Piece::Ended)) {
        if tell.send(Ok(piece)).is_err() {
            return ControlFlow::Break(());
        }
    }
    ControlFlow::Continue(())
}

/// How a run ended, where the line says that it failed or was cancelled.
fn ended(entry: &Entry) -> Option<Ended> {
    // Most lines are not decoded for this.
    if !matches!(entry.kind.as_str(), "failed" | "cancelled") {
        return None;
    }
    match record_of(entry)?.body {
        Body::Run(RunBody::Failed(Failed { code, reason, message, .. })) => {
            Some(Ended::Failed { code, reason, message })
        }
        Body::Run(RunBody::Cancelled(cancelled)) => Some(Ended::Cancelled(cancelled.reason)),
        _ => None,
    }
}

/// What a line of the log changes in the conversation.
pub(super) fn changes_of(entry: &Entry) -> Vec<Change> {
    changing(entry).map(|record| conversation::changes(&record)).unwrap_or_default()
}

/// A record that may change the conversation. Most lines are not decoded for this.
fn changing(entry: &Entry) -> Option<Record> {
    conversation::may_change(&entry.kind).then(|| record_of(entry)).flatten()
}
