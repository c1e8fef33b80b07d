//! The files of one session directory: `messages.jsonl`, `latest.md`, `state`, `cwd`, times and `meta.json`.
//!
//! They are all derived from the log beside them. What has been shown is read off the files themselves (the
//! last whole line of `messages.jsonl`), so there is no second truth to disagree with. Who reads the whole log compares
//! what is before that line too, and a file that says something else is made anew. Nothing here is synced, and no
//! file is held open between two calls but for that. The directory is the journal's: a view never makes it. Only
//! `context/pack.json` is not derived: the agent's loop makes it, and it is put in place here.

mod check;
mod messages;
pub mod meta;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ctx_journal::{Entry, Journal, LogPath, Owner};
use ctx_session::conversation::{self, Change, Part, Role};
use ctx_session::record::Decoded;
use ctx_session::{Body, Record, Session, StateName, Timestamp};

use crate::dir::{Dir, RootDir};
use crate::error::ViewError;
use check::Check;
pub use check::Disagreement;
pub(crate) use check::disagreements;
pub(crate) use messages::{Latest, tail};
use messages::{Messages, Tail};
pub use meta::Meta;

pub const MESSAGES: &str = "messages.jsonl";
pub const LATEST: &str = "latest.md";
pub const STATE: &str = "state";
pub const CWD: &str = "cwd";
pub const CREATED_AT: &str = "created_at";
pub const UPDATED_AT: &str = "updated_at";
pub const META: &str = "meta.json";
/// What was last sent to the model, in a directory of its own.
pub const CONTEXT: &str = "context";
pub const PACK: &str = "pack.json";
/// The answer under way, in the same directory.
pub const ANSWER: &str = "answer.json";

/// The files that every session directory has.
const ALL: [&str; 7] = [MESSAGES, LATEST, STATE, CWD, CREATED_AT, UPDATED_AT, META];
/// Lines that wait in memory while a long log is read.
const CATCH_UP_BYTES: usize = 256 * 1024;

/// Writes the files of one session directory.
#[derive(Debug)]
pub struct SessionFiles {
    root: RootDir,
    dir: PathBuf,
    owner: Owner,
    tail: Tail,
    /// The messages beside what the log says, while the log is read.
    check: Option<Check>,
    /// The small files as they were last written, so that only changes cost something.
    written: [Vec<u8>; 5],
    stale: bool,
}

/// A file of a run: what goes to the model, or the text that comes from it. Not a view of the log, so it is not made
/// again where it is missing, and a fork does not have it. It is written on its own, so that no answer waits for it.
#[derive(Debug, Clone)]
pub struct RunFile {
    root: RootDir,
    dir: PathBuf,
    name: &'static str,
    owner: Owner,
}

impl RunFile {
    /// Puts a text in place of the one that is there.
    pub fn write(&self, json: &[u8]) -> Result<(), ViewError> {
        let dir = self.root.dir(&self.dir)?;
        dir.make_dir(CONTEXT, self.owner)?.swap(self.name, json, self.owner)
    }

    /// The text that is there, if any can be read.
    pub fn read(&self) -> Option<Vec<u8>> {
        self.root.dir(&self.dir.join(CONTEXT)).ok()?.contents(self.name).ok()?
    }
}

impl SessionFiles {
    /// Looks at what the files show. They are stale until [`SessionFiles::catch_up`] has compared them with
    /// the log.
    pub fn open(root: &RootDir, dir: &Path, owner: Owner) -> Result<SessionFiles, ViewError> {
        let mut tail = Tail::default();
        let opened = root.dir(dir)?;
        if let Some(file) = opened.read_ours(MESSAGES)? {
            let path = opened.path_of(MESSAGES);
            tail = messages::tail(&file).map_err(|error| ViewError::io(&path, "read the file", error))?;
        }
        let written = std::array::from_fn(|_| Vec::new());
        Ok(SessionFiles {
            root: root.clone(),
            dir: dir.to_owned(),
            owner,
            tail,
            check: None,
            written,
            stale: true,
        })
    }

    /// Whether a directory has all its files, and the small ones tell this state and this time: a look that costs no
    /// reading of logs or messages. The start of the daemon takes it at ten thousand directories.
    pub fn agree(root: &RootDir, dir: &Path, state: StateName, updated_at: Timestamp) -> bool {
        let Ok(dir) = root.dir(dir) else { return false };
        let tells = |name: &str, value: &str| dir.holds(name, format!("{value}\n").as_bytes());
        dir.has_all(&ALL) && tells(STATE, state.file_word()) && tells(UPDATED_AT, &updated_at.to_string())
    }

    /// The seq of the last record that has a line. It may have more lines than are shown.
    pub fn shown(&self) -> Option<u64> {
        self.tail.seq()
    }

    /// The seq from which on records are to be handed to [`SessionFiles::catch_up`]. Normally that of
    /// [`SessionFiles::shown`]; all of them when the files show more than the log has, or something else.
    pub fn wants_from(&self, session: &Session) -> u64 {
        let is_wrong = self.check.as_ref().is_some_and(|check| !check.holds(self.tail));
        match self.tail.seq() {
            Some(seq) if seq < session.next_seq && !is_wrong => seq,
            Some(_) | None => 0,
        }
    }

    /// Compares what the files show with a record. To be called with every record of the log, in order, before
    /// [`SessionFiles::catch_up`], or with none.
    pub fn compare(&mut self, record: &Record) {
        if self.check.is_none() {
            self.check = Some(Check::begin(&self.root, &self.dir, self.tail));
        }
        if let Some(check) = &mut self.check {
            conversation::changes(record).iter().for_each(|change| check.compare(change));
        }
    }

    /// Believes the files, whatever was compared: the log has lost what they may still have.
    pub fn believe(&mut self) {
        self.check = None;
    }

    /// Whether the files may have missed something: after opening, and after an error.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The directory was renamed; what is in it has not changed.
    pub fn moved_to(&mut self, dir: &Path) {
        self.dir = dir.to_owned();
    }

    /// A way to write `context/pack.json`, apart from the other files.
    pub fn pack_file(&self) -> RunFile {
        self.run_file(PACK)
    }

    /// The same for the text of the answer that comes just now.
    pub fn answer_file(&self) -> RunFile {
        self.run_file(ANSWER)
    }

    fn run_file(&self, name: &'static str) -> RunFile {
        RunFile { root: self.root.clone(), dir: self.dir.clone(), name, owner: self.owner }
    }

    /// Shows the records of a commit, all of them together. To be called after the commit and before any
    /// client is told. `session` has them applied.
    pub fn show(&mut self, session: &Session, records: &[Record]) -> Result<(), ViewError> {
        if self.stale {
            return Err(ViewError::Stale { dir: self.root.path().join(&self.dir) });
        }
        let shown = self.try_show(session, records);
        self.stale = shown.is_err();
        shown
    }

    fn try_show(&mut self, session: &Session, records: &[Record]) -> Result<(), ViewError> {
        let changes: Vec<Change> = records.iter().flat_map(conversation::changes).collect();
        let dir = self.root.dir(&self.dir)?;
        let marks = changes.iter().any(|change| !matches!(change, Change::Said(_)));
        if marks {
            // A reader who finds there that every message counts looks for no marks.
            self.swap_small(&dir, session, |name| name == META)?;
        }
        if !changes.is_empty() {
            if let Some(text) = latest_of(&changes).filter(|_| !marks) {
                dir.swap(LATEST, &with_line_end(text), self.owner)?;
            }
            let mut file = Messages::open(&dir, self.owner, self.tail)?;
            for change in &changes {
                file.push(change);
            }
            self.tail = file.write()?;
            // Which text is the latest now, the file alone tells.
            if marks {
                put_if_changed(&dir, LATEST, &with_line_end(&file.latest()?), self.owner)?;
            }
        }
        self.swap_small(&dir, session, |_| true)
    }

    /// Writes those of the small files that changed.
    fn swap_small(
        &mut self,
        dir: &Dir,
        session: &Session,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), ViewError> {
        let files = small_files(session).into_iter().enumerate().filter(|(_, (name, _))| wanted(name));
        for (at, (name, bytes)) in files {
            if let Some(written) = self.written.get_mut(at).filter(|written| **written != bytes) {
                dir.swap(name, &bytes, self.owner)?;
                *written = bytes;
            }
        }
        Ok(())
    }

    /// Makes the files show what `session` is, from records already in memory: all that the log has from
    /// [`SessionFiles::wants_from`] on. A torn last line is cut, and any file that is missing is made again.
    pub fn catch_up(&mut self, session: &Session, records: &[Record]) -> Result<(), ViewError> {
        self.catch_up_with(session, |_, file| {
            for record in records {
                file.push_new(record);
            }
            Ok(())
        })
    }

    /// The same from the log, for a session of which only the state is in memory. Reads no more of the log
    /// than is missing, and holds little of it.
    pub fn catch_up_from(
        &mut self,
        journal: &dyn Journal,
        log: &LogPath,
        session: &Session,
    ) -> Result<(), ViewError> {
        self.catch_up_with(session, |from, file| {
            let mut wrong = None;
            journal.read(log, from, &mut |entry| {
                if entry.seq >= session.next_seq {
                    return ControlFlow::Break(());
                }
                if let Some(record) = record_of(&entry) {
                    file.push_new(&record);
                }
                if file.waiting() >= CATCH_UP_BYTES {
                    wrong = file.write().err();
                }
                if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            wrong.map_or(Ok(()), Err)
        })
    }

    fn catch_up_with(
        &mut self,
        session: &Session,
        feed: impl FnOnce(u64, &mut Messages<'_>) -> Result<(), ViewError>,
    ) -> Result<(), ViewError> {
        self.stale = true;
        let dir = self.root.dir(&self.dir)?;
        let promised = self.tail.seq();
        let mut file = Messages::take_up(&dir, self.owner)?;
        self.tail = file.tail();
        // The file has shrunk since the caller was told what to hand over.
        if self.tail.seq() < promised {
            return Err(ViewError::Stale { dir: self.root.path().join(&self.dir) });
        }
        // More is shown than the log has, or something else: the log is the truth.
        let from = self.wants_from(session);
        self.check = None;
        if from == 0 {
            file.start_over()?;
        }
        // Before the marks it counts, as always.
        put_if_changed(&dir, META, Meta::of(session).to_file().as_bytes(), self.owner)?;
        feed(from, &mut file)?;
        self.tail = file.write()?;
        put_if_changed(&dir, LATEST, &with_line_end(&file.latest()?), self.owner)?;
        for (at, (name, bytes)) in small_files(session).into_iter().enumerate() {
            put_if_changed(&dir, name, &bytes, self.owner)?;
            if let Some(written) = self.written.get_mut(at) {
                *written = bytes;
            }
        }
        self.stale = false;
        Ok(())
    }
}

/// An idle session leaves nothing beside its files.
impl Drop for SessionFiles {
    fn drop(&mut self) {
        let Ok(dir) = self.root.dir(&self.dir) else { return };
        for name in [LATEST, CREATED_AT, CWD, UPDATED_AT, META, STATE] {
            // What stays behind is used again when the session is.
            let _ = dir.remove_spare(name);
        }
        if let Ok(context) = dir.dir(CONTEXT) {
            for name in [PACK, ANSWER] {
                let _ = context.remove_spare(name);
            }
        }
    }
}

/// A record of ours, or nothing for one of a later version and for one whose fields do not fit.
pub(crate) fn record_of(entry: &Entry) -> Option<Record> {
    match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(body) => Some(Record { seq: entry.seq, time: entry.time, body }),
        Decoded::Unknown | Decoded::Malformed(_) => None,
    }
}

/// The files of one value. `state` comes last: who sees it change finds the rest in place.
fn small_files(session: &Session) -> [(&'static str, Vec<u8>); 5] {
    let line = |value: &str| format!("{value}\n").into_bytes();
    [
        (CREATED_AT, line(&session.created_at.to_string())),
        (CWD, line(&session.cwd)),
        (UPDATED_AT, line(&session.updated_at.to_string())),
        (META, Meta::of(session).to_file().into_bytes()),
        (STATE, line(session.state.name().file_word())),
    ]
}

/// The last assistant text among changes that are all messages.
fn latest_of(changes: &[Change]) -> Option<&str> {
    changes.iter().rev().find_map(|change| match change {
        Change::Said(message) if message.role == Role::Assistant => {
            message.content.iter().rev().find_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                Part::ToolCall { .. } | Part::ToolResult { .. } | Part::Image(_) => None,
            })
        }
        Change::Said(_) | Change::Superseded { .. } | Change::Restored { .. } | Change::Pinned { .. } => None,
    })
}

/// A text as a file: it ends with a line end, unless there is no text.
fn with_line_end(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    if !text.is_empty() && !text.ends_with('\n') {
        bytes.push(b'\n');
    }
    bytes
}

fn put_if_changed(dir: &Dir, name: &str, bytes: &[u8], owner: Owner) -> Result<(), ViewError> {
    if dir.holds(name, bytes) { Ok(()) } else { dir.replace(name, bytes, owner) }
}
