//! Reads a file line by line with bounded memory.

use std::io;

use crate::disk::DiskFile;
use crate::format::RECORD_BYTES_MAX;

const CHUNK_BYTES: usize = 256 << 10;
const FIRST_CHUNK_BYTES: usize = 4 << 10;
/// How much of a line that is too long is kept, to show.
const LONG_LINE_KEPT: usize = 256;

/// A line, borrowed from the reader's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// From 1, counted from where the reader began; 0 when it was told not to count.
    pub number: u64,
    pub offset: u64,
    /// Where the next line begins.
    pub end: u64,
    /// Without the LF. Of a line that is too long, the beginning.
    pub bytes: &'a [u8],
    pub form: LineForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineForm {
    Whole,
    /// The end of the file came before an LF.
    Unended,
    /// Longer than a record may be.
    TooLong,
}

pub(crate) struct LineReader<'f> {
    file: &'f dyn DiskFile,
    /// Where reading stops, even if the file goes on.
    limit: u64,
    /// The file offset of the first byte in `buf`.
    base: u64,
    buf: Vec<u8>,
    /// Where in `buf` the next line begins.
    start: usize,
    number: Option<u64>,
    chunk: usize,
}

impl<'f> LineReader<'f> {
    /// Reads `from..limit`; `number` is that of the line before the first, `None` not to count.
    pub fn new(file: &'f dyn DiskFile, from: u64, limit: u64, number: Option<u64>) -> Self {
        LineReader { file, limit, base: from, buf: Vec::new(), start: 0, number, chunk: CHUNK_BYTES }
    }

    /// Reads the first line, which is mostly short.
    pub fn first(file: &'f dyn DiskFile, limit: u64) -> Self {
        LineReader { chunk: FIRST_CHUNK_BYTES, ..LineReader::new(file, 0, limit, Some(0)) }
    }

    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            let unsearched = self.buf.get(searched..).unwrap_or_default();
            if let Some(found) = memchr::memchr(b'\n', unsearched) {
                let lf = searched + found;
                let form =
                    if lf - self.start > RECORD_BYTES_MAX { LineForm::TooLong } else { LineForm::Whole };
                return Ok(Some(self.take(lf, lf + 1, form)));
            }
            if self.buf.len() - self.start > RECORD_BYTES_MAX {
                return self.skip_long().map(Some);
            }
            searched = self.buf.len() - self.start;
            if self.fill()? == 0 {
                let end = self.buf.len();
                return Ok((end > self.start).then(|| self.take(end, end, LineForm::Unended)));
            }
        }
    }

    /// Drops what was handed out and reads another chunk behind what is left; how much came.
    fn fill(&mut self) -> io::Result<usize> {
        self.buf.drain(..self.start);
        self.base += self.start as u64;
        self.start = 0;
        let kept = self.buf.len();
        let at = self.base + kept as u64;
        let want = usize::try_from(self.limit.saturating_sub(at)).unwrap_or(usize::MAX).min(self.chunk);
        self.buf.resize(kept + want, 0);
        let got = match self.buf.get_mut(kept..) {
            Some(room) if want > 0 => self.file.read_at(room, at),
            _ => Ok(0),
        };
        self.chunk = CHUNK_BYTES;
        self.buf.truncate(kept + *got.as_ref().unwrap_or(&0));
        got
    }

    fn take(&mut self, end: usize, next: usize, form: LineForm) -> Line<'_> {
        let begin = std::mem::replace(&mut self.start, next);
        let bytes = self.buf.get(begin..end).unwrap_or_default();
        let kept =
            if form == LineForm::TooLong { bytes.get(..LONG_LINE_KEPT).unwrap_or(bytes) } else { bytes };
        self.number = self.number.map(|number| number + 1);
        Line {
            number: self.number.unwrap_or(0),
            offset: self.base + begin as u64,
            end: self.base + next as u64,
            bytes: kept,
            form,
        }
    }

    /// Reads to the end of a line that is too long without keeping it.
    fn skip_long(&mut self) -> io::Result<Line<'_>> {
        let offset = self.base + self.start as u64;
        let shown: Vec<u8> = self.buf.iter().skip(self.start).take(LONG_LINE_KEPT).copied().collect();
        loop {
            // All that is in the buffer belongs to the line; none of it is needed.
            self.start = self.buf.len();
            if self.fill()? == 0 {
                break;
            }
            if let Some(lf) = memchr::memchr(b'\n', &self.buf) {
                self.start = lf + 1;
                break;
            }
        }
        let end = self.base + self.start as u64;
        // The line's beginning goes in front of what is still to be read, so that it can be lent out.
        let rest = self.buf.split_off(self.start);
        self.buf = shown;
        let kept = self.buf.len();
        self.buf.extend_from_slice(&rest);
        self.base = end.saturating_sub(kept as u64);
        self.start = kept;
        self.number = self.number.map(|number| number + 1);
        let bytes = self.buf.get(..kept).unwrap_or_default();
        Ok(Line { number: self.number.unwrap_or(0), offset, end, bytes, form: LineForm::TooLong })
    }
}

/// How many LFs there are before an offset: the number of the line that begins there, less one.
pub(crate) fn count_lines(file: &dyn DiskFile, to: u64) -> io::Result<u64> {
    let mut buf = vec![0; CHUNK_BYTES];
    let (mut at, mut lines) = (0, 0);
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let got = file.read_at(buf.get_mut(..want).unwrap_or_default(), at)?;
        if got == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', buf.get(..got).unwrap_or_default()).count() as u64;
        at += got as u64;
    }
    Ok(lines)
}
