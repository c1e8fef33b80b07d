//! Takes a log up: makes sure that what is read is on disk, reads it, cuts a torn tail off and keeps it.
//!
//! A file may hold bytes in memory that are not on disk: a process died between write and sync, or a sync
//! failed, after which the kernel takes the bytes for written. The first is mended by a sync before reading. For
//! the second, see `docs/decisions/journal-after-a-failed-sync.md`: in the process that saw the failure the doubtful
//! bytes are written anew; in another, they are read from the device again.

use std::io;
use std::ops::{ControlFlow, Range};

use ctx_session::Timestamp;

use crate::Entry;
use crate::damage::{Damage, DamageKind};
use crate::disk::{Disk, DiskFile, OpenMode, is_no_space, read_full, too_large, write_full};
use crate::error::JournalError;
use crate::format::{self, COMMAND_BYTES_MAX};
use crate::lines::{LineReader, count_lines};
use crate::path::LogPath;
use crate::scan::{Newer, Scanned, Scanner};
use crate::seek;
use crate::writer::Start;

const COPY_BYTES: usize = 256 << 10;
/// How many torn tails of the same millisecond are told apart.
const TORN_NAMES_MAX: u32 = 1000;

/// Bytes after the last whole command.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    pub start: u64,
    pub end: u64,
    /// When it was found; it goes into the name of the file that keeps it.
    pub found: Timestamp,
}

pub(crate) struct Recovered {
    pub start: Start,
    pub damage: Vec<Damage>,
}

/// What is asked of a recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// The first record to hand out; what stands before it need not be read.
    pub from: u64,
    /// Where bytes begin that a failed writer left.
    pub in_doubt_from: Option<u64>,
    pub now: Timestamp,
}

/// Recovers a locked log.
pub(crate) fn recover(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    log: &LogPath,
    Wish { from, in_doubt_from, now }: Wish,
    on_entry: &mut dyn FnMut(Entry),
) -> Result<Recovered, JournalError> {
    let io = |action| move |error| io_error(log, action, error);
    match in_doubt_from {
        Some(from) => write_anew(file, from).map_err(io("write its end anew"))?,
        None => {
            file.sync().map_err(io("sync"))?;
            let len = file.len().map_err(io("read its length"))?;
            // No more than one write is ever unsynced.
            let doubtful = len.saturating_sub(COMMAND_BYTES_MAX as u64);
            file.forget_cached(doubtful).map_err(io("read"))?;
        }
    }
    let len = file.len().map_err(io("read its length"))?;
    let Scanned { settled, mut damage, newer_tail, .. } =
        scan(file, log, len, from, on_entry).map_err(io("read"))?;
    if let Some(newer) = newer_tail {
        return Err(refuse_newer(file, log, newer));
    }
    let mut uncut = None;
    if settled.end < len {
        let tail = Tail { start: settled.end, end: len, found: now };
        let bytes = tail.end - tail.start;
        let excerpt = tail_excerpt(file, &tail).map_err(io("read"))?;
        let kind = match cut(disk, file, log, &tail) {
            Ok(kept) => DamageKind::TornTail { bytes, kept },
            Err(error) if is_no_space(&error) => {
                uncut = Some(tail);
                DamageKind::TornTailUncut { bytes }
            }
            Err(error) => return Err(io_error(log, "cut off its torn tail", error)),
        };
        // Lines are not counted where reading began in the middle.
        let line = 1 + match settled.lines {
            0 => count_lines(file, settled.end).map_err(io("read"))?,
            lines => lines,
        };
        let offset = settled.end;
        damage.push(Damage { log: log.clone(), line, offset, kind, excerpt });
    }
    Ok(Recovered { start: Start { next: settled.next, len: settled.end, uncut }, damage })
}

/// A log that a newer ctx has written to last is left alone: its end must neither pass for a torn tail nor be
/// written behind. Also when it is one record, which could as well have a damaged digit: who is refused can read
/// the log and fork it, and a record that was cut off is gone from the conversation.
fn refuse_newer(file: &dyn DiskFile, log: &LogPath, newer: Newer) -> JournalError {
    let Newer { offset, version, .. } = newer;
    let line = match newer.line {
        0 => count_lines(file, offset).map(|before| before + 1),
        line => Ok(line),
    };
    match line {
        Ok(line) => JournalError::TooNew { log: log.clone(), line, version },
        Err(error) => io_error(log, "read", error),
    }
}

/// Scans from a place before `from` on, if there is one from which the rest can be told; else from the start.
fn scan(
    file: &dyn DiskFile,
    log: &LogPath,
    len: u64,
    from: u64,
    on_entry: &mut dyn FnMut(Entry),
) -> io::Result<Scanned> {
    let offset = seek::offset_before(file, len, from)?;
    if offset == 0 {
        return scan_lines(file, Scanner::from_start(log), 0..len, from, on_entry);
    }
    // Nothing is handed out before it is known that this is a place to begin at.
    let mut held = Vec::new();
    let mut scanned = scan_lines(file, Scanner::from_middle(log, offset), offset..len, from, &mut |entry| {
        held.push(entry)
    })?;
    if scanned.settled.end == offset || held.first().is_none_or(|entry: &Entry| entry.seq != from) {
        return scan_lines(file, Scanner::from_start(log), 0..len, from, on_entry);
    }
    held.into_iter().for_each(on_entry);
    for damage in scanned.damage.iter_mut().chain(&mut scanned.tail_damage) {
        damage.line = count_lines(file, damage.offset)? + 1;
    }
    Ok(scanned)
}

fn scan_lines(
    file: &dyn DiskFile,
    mut scanner: Scanner,
    range: Range<u64>,
    from: u64,
    on_entry: &mut dyn FnMut(Entry),
) -> io::Result<Scanned> {
    let mut sink = |entry: Entry| {
        if entry.seq >= from {
            on_entry(entry);
        }
        ControlFlow::Continue(())
    };
    let mut lines = LineReader::new(file, range.start, range.end, (range.start == 0).then_some(0));
    while let Some(line) = lines.next_line()? {
        // This sink never stops.
        let _ = scanner.line(line, &mut sink);
    }
    Ok(scanner.finish(&mut sink))
}

/// Writes the bytes after `from` once more, so that a sync really writes them. None of them was acknowledged
/// as being on disk, so a crash in between takes nothing away.
fn write_anew(file: &dyn DiskFile, from: u64) -> io::Result<()> {
    let len = file.len()?;
    if len < from {
        // Someone else cut it: there is nothing in doubt any more, and it must not grow by zeroes.
        return file.truncate(len).and_then(|()| file.sync());
    }
    let doubtful = len - from;
    // One command was on its way at most.
    if doubtful > 2 * COMMAND_BYTES_MAX as u64 {
        return Err(too_large(doubtful, 2 * COMMAND_BYTES_MAX as u64));
    }
    let mut bytes = vec![0; usize::try_from(doubtful).map_err(io::Error::other)?];
    let got = read_full(file, &mut bytes, from)?;
    bytes.truncate(got);
    file.truncate(from)?;
    file.sync()?;
    match write_full(file, &bytes, from) {
        Ok(()) => (),
        Err(error) if is_no_space(&error) => file.truncate(from)?,
        Err(error) => return Err(error),
    }
    file.sync()
}

/// Keeps the tail in a file beside the log, then cuts it off; the name of the file. A crash in between leaves
/// the log as it was, and perhaps a copy of its tail.
pub(crate) fn cut(disk: &dyn Disk, file: &dyn DiskFile, log: &LogPath, tail: &Tail) -> io::Result<String> {
    let (path, copy) = new_torn_file(disk, file, log, tail.found)?;
    let kept =
        copy_range(file, &*copy, tail).and_then(|()| copy.sync()).and_then(|()| disk.sync_dir(log.dir()));
    if let Err(error) = kept {
        // Half a copy is worth nothing while the whole is still in the log.
        let _ = disk.remove_file(&path);
        return Err(error);
    }
    file.truncate(tail.start)?;
    file.sync()?;
    Ok(path)
}

fn new_torn_file(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    log: &LogPath,
    found: Timestamp,
) -> io::Result<(String, Box<dyn DiskFile>)> {
    let owner = file.owner()?;
    let name = format!("{log}.torn-{}", found.to_file_name());
    for attempt in 1..=TORN_NAMES_MAX {
        let path = if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") };
        match disk.open(&path, OpenMode::CreateNew(owner)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            other => return other.map(|copy| (path, copy)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn copy_range(from: &dyn DiskFile, to: &dyn DiskFile, range: &Tail) -> io::Result<()> {
    let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(COPY_BYTES);
    let mut buf = vec![0; size];
    let mut at = range.start;
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(size);
        let got = read_full(from, buf.get_mut(..want).unwrap_or_default(), at)?;
        if got == 0 {
            break;
        }
        write_full(to, buf.get(..got).unwrap_or_default(), at - range.start)?;
        at += got as u64;
    }
    Ok(())
}

fn tail_excerpt(file: &dyn DiskFile, tail: &Tail) -> io::Result<String> {
    let mut bytes = [0; 120];
    let want = usize::try_from(tail.end - tail.start).unwrap_or(usize::MAX).min(bytes.len());
    let got = read_full(file, bytes.get_mut(..want).unwrap_or_default(), tail.start)?;
    Ok(format::excerpt(bytes.get(..got).unwrap_or_default()))
}

pub(crate) fn io_error(log: &LogPath, action: &'static str, error: io::Error) -> JournalError {
    if is_no_space(&error) {
        JournalError::NoSpace { log: log.clone() }
    } else {
        JournalError::Io { path: log.to_string(), action, error }
    }
}
