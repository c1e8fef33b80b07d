//! Finds places in a log without reading all of it: a seq by bisection, the last records from the end.

use std::io;
use std::ops::ControlFlow;

use crate::Entry;
use crate::disk::{DiskFile, read_full};
use crate::format::{self, NotARecord, RECORD_BYTES_MAX};
use crate::lines::{LineForm, LineReader};
use crate::scan::Sink;

/// Below this, reading is cheaper than seeking.
const BISECT_BYTES_MIN: u64 = 128 << 10;
/// The first block that is read from the end; each further one is twice as large, up to `BLOCK_BYTES_MAX`.
const BLOCK_BYTES: usize = 16 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// How many lines that are no records a probe looks past.
const PROBE_LINES_MAX: u32 = 16;

/// The offset of a line from which reading forward meets every record from `from` on; 0 when in doubt.
pub(crate) fn offset_before(file: &dyn DiskFile, limit: u64, from: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, limit);
    while from > 0 && high - low > BISECT_BYTES_MIN {
        let middle = low + (high - low) / 2;
        match probe(file, middle, high)?.first() {
            Some(&(seq, offset)) if seq <= from => low = offset,
            Some(_) => high = middle,
            None => break,
        }
    }
    // One damaged seq could have led astray; the record after it tells.
    let plausible = low == 0
        || matches!(probe(file, low - 1, limit)?.as_slice(), [(a, at), (b, _), ..] if *at == low && *a <= from && *b == a + 1);
    Ok(if plausible { low } else { 0 })
}

/// The seqs and offsets of the first two records on lines that begin after `after`.
fn probe(file: &dyn DiskFile, after: u64, limit: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut lines = LineReader::new(file, after, limit, None);
    let mut found = Vec::new();
    // What is left of the line that `after` is in.
    if lines.next_line()?.is_none() {
        return Ok(found);
    }
    for _ in 0..PROBE_LINES_MAX {
        let Some(line) = lines.next_line()? else { break };
        if line.form == LineForm::Whole
            && let Ok((envelope, _, _)) = format::parse(line.bytes)
        {
            found.push((envelope.seq, line.offset));
            if found.len() == 2 {
                break;
            }
        }
    }
    Ok(found)
}

/// Lines from the end of a file backwards. What stands after the last LF is passed over.
struct BackLines<'f> {
    file: &'f dyn DiskFile,
    /// The file offset of `buf`.
    base: u64,
    /// What was read and not handed out; ends after an LF once the first line was looked for.
    buf: Vec<u8>,
    block: usize,
    /// A line that was looked at before its turn.
    peeked: Option<(u64, Vec<u8>)>,
}

impl<'f> BackLines<'f> {
    fn new(file: &'f dyn DiskFile, limit: u64) -> io::Result<Self> {
        let mut lines = BackLines { file, base: limit, buf: Vec::new(), block: BLOCK_BYTES, peeked: None };
        lines.drop_to_lf()?;
        Ok(lines)
    }

    /// Reads the block before what is in the buffer; `false` at the start of the file.
    fn fill(&mut self) -> io::Result<bool> {
        let size = usize::try_from(self.base).unwrap_or(usize::MAX).min(self.block);
        let mut bytes = vec![0; size];
        let start = self.base - size as u64;
        if read_full(self.file, &mut bytes, start)? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.append(&mut self.buf);
        (self.buf, self.base) = (bytes, start);
        self.block = (self.block * 2).min(BLOCK_BYTES_MAX);
        Ok(size > 0)
    }

    /// Drops bytes from the end until there is an LF, keeping none of them.
    fn drop_to_lf(&mut self) -> io::Result<()> {
        loop {
            if let Some(lf) = memchr::memrchr(b'\n', &self.buf) {
                self.buf.truncate(lf + 1);
                return Ok(());
            }
            self.buf.clear();
            if !self.fill()? {
                return Ok(());
            }
        }
    }

    /// The line before the last one handed out, with its offset; longer ones than a record may be are left out.
    fn next_line(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        if let Some(line) = self.peeked.take() {
            return Ok(Some(line));
        }
        loop {
            if self.buf.is_empty() && !self.fill()? {
                return Ok(None);
            }
            let body = self.buf.len().saturating_sub(1);
            if let Some(lf) = memchr::memrchr(b'\n', self.buf.get(..body).unwrap_or_default()) {
                let mut line = self.buf.split_off(lf + 1);
                line.pop();
                return Ok(Some((self.base + lf as u64 + 1, line)));
            }
            if self.buf.len() > RECORD_BYTES_MAX + 1 {
                // Leave out its LF too, so that the search goes on to the one before it.
                self.buf.clear();
                self.drop_to_lf()?;
            } else if !self.fill()? {
                let mut line = std::mem::take(&mut self.buf);
                line.pop();
                return Ok(Some((0, line)));
            }
        }
    }

    /// The record before the last one handed out, and the size of the write that it ends.
    fn next_record(&mut self) -> io::Result<Option<(Entry, u64)>> {
        while let Some((offset, line)) = self.next_line()? {
            let line = match format::parse(&line) {
                Err(NotARecord::NewerVersion(_)) => self.ended_as_ours(&line)?.unwrap_or(line),
                Ok(_) | Err(NotARecord::Bad(_)) => line,
            };
            if let Ok((envelope, time, text)) = format::parse(&line) {
                let (seq, kind, more) = (envelope.seq, envelope.kind.to_string(), envelope.more);
                let entry = Entry { seq, time, kind, more, line: 0, offset, text: text.to_owned() };
                return Ok(Some((entry, envelope.batch())));
            }
        }
        Ok(None)
    }
}

impl BackLines<'_> {
    /// A line of another version as the record of ours that it is, if the line before it says that its command goes on.
    fn ended_as_ours(&mut self, line: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.peeked = self.next_line()?;
        let before = self.peeked.as_ref().and_then(|(_, before)| format::parse(before).ok());
        Ok(before.filter(|(envelope, _, _)| envelope.more).and_then(|(envelope, _, text)| {
            format::as_record_of_ours(line, format::seq_after(&envelope.kind, envelope.seq, text))
        }))
    }
}

/// Hands out records from the last backwards, beginning with the last whole command. Their seqs only fall.
pub(crate) fn read_back(file: &dyn DiskFile, limit: u64, sink: Sink<'_>) -> io::Result<()> {
    let mut lines = BackLines::new(file, limit)?;
    let mut falling = Falling::default();
    for entry in last_whole(&mut lines)? {
        if falling.record(entry, sink).is_break() {
            return Ok(());
        }
    }
    while let Some((entry, _)) = lines.next_record()? {
        if falling.record(entry, sink).is_break() {
            return Ok(());
        }
    }
    falling.finish(sink);
    Ok(())
}

/// Tells seqs that are out of line from the others, as the scanner does, but from the end.
#[derive(Default)]
struct Falling {
    /// The seq handed out last.
    lowest: Option<u64>,
    /// Good so far; handed out when the record before it in the file has been seen.
    held: Option<Entry>,
    /// A record before the held one that has a higher seq: one of the two is out of line, the next one tells.
    higher: Option<Entry>,
}

impl Falling {
    fn record(&mut self, entry: Entry, sink: Sink<'_>) -> ControlFlow<()> {
        if let Some(higher) = self.higher.take()
            && self.held.as_ref().is_some_and(|held| entry.seq >= held.seq)
        {
            self.held = Some(higher);
        }
        match self.held.take() {
            Some(held) if entry.seq < held.seq => {
                self.held = Some(entry);
                self.hand_out(held, sink)
            }
            Some(held) if entry.seq > held.seq => {
                (self.held, self.higher) = (Some(held), Some(entry));
                ControlFlow::Continue(())
            }
            // Of two with the same seq the first in the file wins, which comes last here.
            Some(_) | None => {
                self.held = Some(entry);
                ControlFlow::Continue(())
            }
        }
    }

    fn hand_out(&mut self, entry: Entry, sink: Sink<'_>) -> ControlFlow<()> {
        if self.lowest.is_some_and(|lowest| entry.seq >= lowest) {
            return ControlFlow::Continue(());
        }
        self.lowest = Some(entry.seq);
        sink(entry)
    }

    fn finish(mut self, sink: Sink<'_>) {
        if let Some(held) = self.held.take() {
            // There is no more to stop.
            let _ = self.hand_out(held, sink);
        }
    }
}

/// The records of the last write that is whole, last first.
fn last_whole(lines: &mut BackLines<'_>) -> io::Result<Vec<Entry>> {
    let mut candidate = lines.next_record()?;
    'candidate: while let Some((last, batch)) = candidate.take() {
        if last.more {
            candidate = lines.next_record()?;
            continue;
        }
        let mut due = last.seq;
        let began = (last.seq + 1).saturating_sub(batch);
        let mut write = vec![last];
        while due > began {
            match lines.next_record()? {
                Some((entry, _)) if format::seq_after(&entry.kind, entry.seq, &entry.text) == due => {
                    due = entry.seq;
                    write.push(entry);
                }
                // A repeat hides nothing.
                Some((entry, _)) if entry.seq >= due => write.push(entry),
                Some(other) => {
                    candidate = Some(other);
                    continue 'candidate;
                }
                None => return Ok(Vec::new()),
            }
        }
        return Ok(write);
    }
    Ok(Vec::new())
}
