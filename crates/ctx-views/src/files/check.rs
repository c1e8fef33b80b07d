//! Whether the files of a session say what its log says.
//!
//! The loading of a session asks it of `messages.jsonl` with the records that it reads anyway; `doctor` asks it of all
//! files. What is only behind the log is no disagreement: it is caught up with.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use ctx_journal::{Journal, LogPath};
use ctx_session::conversation::{self, Change};
use ctx_session::{Session, Timestamp};

use super::messages::{Latest, Tail};
use super::{LATEST, MESSAGES, UPDATED_AT, record_of, small_files, tail, with_line_end};
use crate::dir::{Dir, RootDir};
use crate::error::ViewError;

/// Goes through `messages.jsonl` with what should be in it.
#[derive(Debug)]
pub(crate) struct Check {
    file: Option<BufReader<File>>,
    tail: Tail,
    /// Lines and bytes that were as they should be.
    lines: u64,
    bytes: u64,
}

impl Check {
    /// Of the file up to its last line.
    pub(crate) fn begin(root: &RootDir, dir: &Path, tail: Tail) -> Check {
        let opened = root.dir(dir).and_then(|dir| dir.read_ours(MESSAGES));
        Check { file: opened.ok().flatten().map(BufReader::new), tail, lines: 0, bytes: 0 }
    }

    pub(crate) fn compare(&mut self, change: &Change) {
        let Some(file) = self.file.as_mut().filter(|_| self.tail.shows(change)) else { return };
        let mut line = change.to_line().into_bytes();
        line.push(b'\n');
        let mut found = vec![0; line.len()];
        if file.read_exact(&mut found).is_ok() && found == line {
            self.lines += 1;
            self.bytes += line.len() as u64;
        } else {
            // Nothing behind a wrong line is where it should be.
            self.file = None;
        }
    }

    /// Whether all of it was as it should be.
    pub(crate) fn holds(&self, tail: Tail) -> bool {
        self.bytes == tail.len
    }
}

/// A file that says something else than the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    pub file: &'static str,
    /// Of `messages.jsonl`.
    pub line: Option<u64>,
}

/// Which files of a session say something else than its log. `session` is what the whole log amounts to.
pub(crate) fn disagreements(
    root: &RootDir,
    journal: &dyn Journal,
    log: &LogPath,
    session: &Session,
) -> Result<Vec<Disagreement>, ViewError> {
    let dir = Path::new(log.dir());
    let opened = root.dir(dir)?;
    let mut found = Vec::new();
    let shown = opened.read_ours(MESSAGES)?.map(|file| tail(&file)).transpose();
    let shown = shown.map_err(|error| ViewError::io(&opened.path_of(MESSAGES), "read the file", error))?;
    let mut check = Check::begin(root, dir, shown.unwrap_or_default());
    journal.read(log, 0, &mut |entry| {
        let changes = record_of(&entry).map(|record| conversation::changes(&record)).unwrap_or_default();
        changes.iter().for_each(|change| check.compare(change));
        ControlFlow::Continue(())
    })?;
    let is_link = opened.read(MESSAGES).is_err_and(|error| error.is_link());
    if is_link || !check.holds(shown.unwrap_or_default()) {
        let line = (!is_link).then_some(check.lines + 1);
        found.push(Disagreement { file: MESSAGES, line });
    }
    // The others are written after it, `updated_at` before the last of them.
    if !is_behind(&opened, session) {
        let latest = latest_of_log(journal, log)?;
        let small = small_files(session).into_iter().chain([(LATEST, with_line_end(&latest))]);
        let wrong = small.filter(|(name, bytes)| opened.is_there(name) && !opened.holds(name, bytes));
        found.extend(wrong.map(|(file, _)| Disagreement { file, line: None }));
    }
    Ok(found)
}

/// Whether the small files tell of an earlier time.
fn is_behind(dir: &Dir, session: &Session) -> bool {
    let told = dir.contents(UPDATED_AT).ok().flatten();
    let told = told.and_then(|bytes| String::from_utf8(bytes).ok()?.trim_end().parse::<Timestamp>().ok());
    told.is_some_and(|told| told < session.updated_at)
}

fn latest_of_log(journal: &dyn Journal, log: &LogPath) -> Result<String, ViewError> {
    let (mut latest, mut found) = (Latest::default(), None);
    journal.read_back(log, &mut |entry| {
        let changes = record_of(&entry).map(|record| conversation::changes(&record)).unwrap_or_default();
        found = changes.into_iter().rev().find_map(|change| latest.meet(change));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found.unwrap_or_default())
}
