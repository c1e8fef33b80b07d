//! Logs made out of others, by one rename of a whole directory.
//!
//! A fork is made and synced in a directory beside the tree, where nobody looks for logs, and then takes its place.
//! What a crash leaves of it is there and nowhere else, and [`Journal::sweep`](crate::Journal::sweep) removes it.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use ctx_session::Timestamp;

use crate::Entry;
use crate::blob;
use crate::disk::{DiskFile, OpenMode, Replace, copy_range, write_full};
use crate::error::{AppendError, JournalError};
use crate::file::{FileJournal, scan_from};
use crate::format;
use crate::lines::{LineForm, LineReader};
use crate::path::{EVENTS, LogPath, Owner, join, parent_of};

use crate::recover::io_error;
use crate::{seek, writer};

/// Where forks are made.
pub(crate) const WORKING: &str = ".state/forks";

/// A fork to be made.
#[derive(Debug, Clone, Copy)]
pub struct Fork<'a> {
    pub from: &'a LogPath,
    /// The last record to copy, which must end a command. None: that of the last whole command.
    pub at: Option<u64>,
    pub to: &'a LogPath,
    pub owner: Owner,
    /// The time of the records that it does not copy.
    pub time: Timestamp,
}

/// The bodies of the records that a fork does not copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkEnds {
    /// In place of the source's first record.
    pub first: String,
    /// After the copy.
    pub last: String,
}

/// What of a log is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    /// The last record in it.
    seq: u64,
    /// The seq that is due after it.
    next: u64,
}

impl FileJournal {
    pub(crate) fn fork_log(
        &self,
        fork: &Fork<'_>,
        ends: &dyn Fn(u64) -> ForkEnds,
    ) -> Result<u64, JournalError> {
        let Fork { from, to, owner, .. } = *fork;
        let there = || JournalError::AlreadyThere { log: to.clone() };
        let (source, limit) = self.open_to_read(from)?;
        let span = find_span(&*source, from, limit, fork.at)?;
        let ends = ends(span.seq);
        check_ends(to, &ends)?;
        self.make_shared_dirs(parent_of(to.dir()), owner)
            .map_err(|error| io_error(to, "make the directory of", error))?;
        if self.exists(to)? {
            return Err(there());
        }
        let dir = self.make_working_dir(WORKING, owner).map_err(|error| io_error(to, "make", error))?;
        let made = self
            .fill(&dir, &*source, span, fork, &ends)
            .map_err(|error| io_error(to, "make", error))
            .and_then(|()| self.is_still(from, &*source))
            .and_then(|()| match self.disk.rename(&dir, to.dir(), Replace::No) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(there()),
                Err(error) => Err(io_error(to, "make", error)),
            });
        if let Err(error) = made {
            // What cannot be removed now is swept at the next start.
            let _ = self.remove_tree(&dir);
            return Err(error);
        }
        self.registry.clear_doubt(to);
        // A rename is in one piece: that it is durable here means that the working directory is gone.
        let synced = self.disk.sync_dir(parent_of(to.dir()));
        synced.map_err(|error| io_error(to, "sync the directory of", error))?;
        Ok(span.next)
    }

    /// Writes the log and its blobs into the working directory, and makes all of it durable.
    fn fill(
        &self,
        dir: &str,
        source: &dyn DiskFile,
        span: Span,
        fork: &Fork<'_>,
        ends: &ForkEnds,
    ) -> io::Result<()> {
        let line = |seq, body: &String| {
            let mut bytes = Vec::new();
            format::encode(&mut bytes, seq, format::Times::One(fork.time), std::slice::from_ref(body));
            bytes
        };
        let (first, last) = (line(0, &ends.first), line(span.next, &ends.last));
        let (at, len) = (first.len() as u64, span.end - span.start);
        let log = self.disk.open(&join(dir, EVENTS), OpenMode::CreateNew(fork.owner))?;
        write_full(&*log, &first, 0)?;
        copy_range(source, span.start, len, &*log, at)?;
        write_full(&*log, &last, at + len)?;
        // Not before: what was copied is on its way to disk meanwhile.
        self.disk.sync_dir(WORKING)?;
        log.sync()?;
        let blobs = self.blobs_of(fork.from)?;
        let to = join(dir, blob::DIR);
        if !blobs.is_empty() {
            self.disk.make_dir(&to, fork.owner)?;
        }
        self.disk.sync_dir(dir)?;
        if blobs.is_empty() { Ok(()) } else { self.copy_blobs(fork, &blobs, &to) }
    }

    fn blobs_of(&self, log: &LogPath) -> io::Result<Vec<String>> {
        match self.disk.list(&log.beside(blob::DIR)) {
            Ok(entries) => {
                Ok(entries.into_iter().map(|entry| entry.name).filter(|name| blob::is_name(name)).collect())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Copies, not links: who damages one of two forks does not reach into the other.
    fn copy_blobs(&self, fork: &Fork<'_>, blobs: &[String], to: &str) -> io::Result<()> {
        let from = fork.from.beside(blob::DIR);
        for blob in blobs {
            let source = self.disk.open(&join(&from, blob), OpenMode::Read)?;
            let copy = self.disk.open(&join(to, blob), OpenMode::CreateNew(fork.owner))?;
            copy_range(&*source, 0, source.len()?, &*copy, 0)?;
            copy.sync()?;
        }
        self.disk.sync_dir(to)
    }

    /// Fails when the source was moved meanwhile: then its blobs may have been missed. Who asked looks for it again.
    fn is_still(&self, log: &LogPath, file: &dyn DiskFile) -> Result<(), JournalError> {
        let now = self.open_file(log, OpenMode::Read)?;
        let same = now.id().and_then(|now| Ok(now == file.id()?));
        match same.map_err(|error| io_error(log, "look at", error))? {
            true => Ok(()),
            false => Err(JournalError::NotThere { log: log.clone() }),
        }
    }

    /// A new directory that a later start would sweep.
    pub(crate) fn make_working_dir(&self, place: &str, owner: Owner) -> io::Result<String> {
        self.make_shared_dirs(place, Owner::own())?;
        loop {
            let dir = join(place, &self.dirs_made.fetch_add(1, Ordering::Relaxed).to_string());
            if self.disk.make_dir(&dir, owner)? {
                return Ok(dir);
            }
        }
    }
}

fn check_ends(log: &LogPath, ends: &ForkEnds) -> Result<(), JournalError> {
    for (index, body) in [&ends.first, &ends.last].into_iter().enumerate() {
        let body = std::slice::from_ref(body);
        writer::check(body, format::encoded_len_max(body), || log.clone()).map_err(|error| {
            let reason = match error {
                AppendError::BadBody { reason, .. } => reason,
                other => other.to_string(),
            };
            JournalError::BadBody { log: log.clone(), index, reason }
        })?;
    }
    Ok(())
}

fn find_span(file: &dyn DiskFile, log: &LogPath, limit: u64, at: Option<u64>) -> Result<Span, JournalError> {
    let io = |error| io_error(log, "read", error);
    let start = after_first(file, limit).map_err(io)?;
    let last = match at {
        Some(seq) => Some(record_at(file, log, limit, seq)?),
        None => last_record(file, limit).map_err(io)?,
    };
    Ok(match last {
        Some(last) => Span {
            start,
            end: start.max(last.offset + last.text.len() as u64 + 1),
            seq: last.seq,
            next: format::seq_after(&last.kind, last.seq, &last.text),
        },
        // Nothing but damage, which has no end that could be told from a torn one.
        None => Span { start, end: start, seq: 0, next: 1 },
    })
}

/// Where the line after the first record begins. A first line that is no record is taken for a first record that
/// is damaged; one with a later seq is not the first.
fn after_first(file: &dyn DiskFile, limit: u64) -> io::Result<u64> {
    let mut lines = LineReader::first(file, limit);
    let Some(line) = lines.next_line()? else { return Ok(0) };
    let is_later = line.form == LineForm::Whole
        && format::parse(line.bytes).is_ok_and(|(envelope, _, _)| envelope.seq > 0);
    Ok(if is_later { 0 } else { line.end })
}

fn last_record(file: &dyn DiskFile, limit: u64) -> io::Result<Option<Entry>> {
    let mut last = None;
    seek::read_back(file, limit, &mut |entry| {
        last = Some(entry);
        ControlFlow::Break(())
    })?;
    Ok(last)
}

/// The record of a seq, if it ends a command.
fn record_at(file: &dyn DiskFile, log: &LogPath, limit: u64, seq: u64) -> Result<Entry, JournalError> {
    let mut found: Option<Entry> = None;
    let mut end = None;
    let scanned = scan_from(file, log, limit, seq, &mut |entry| {
        let more = entry.more;
        end = Some(entry.seq);
        found.get_or_insert(entry);
        if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    scanned.map_err(|error| io_error(log, "read", error))?;
    let found = found.filter(|entry| entry.seq == seq);
    let found = found.ok_or_else(|| JournalError::NoRecord { log: log.clone(), seq })?;
    match end {
        Some(end) if end != seq => Err(JournalError::InsideCommand { log: log.clone(), seq, end }),
        Some(_) | None => Ok(found),
    }
}
