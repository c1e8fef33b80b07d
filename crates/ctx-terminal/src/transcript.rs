//! The transcript: every byte that the program wrote, with the time of each chunk, written as it happens.
//!
//! A line that names the format, then chunks: one byte of kind, the microseconds since the start (8 bytes), the length of
//! the payload (4 bytes), both little-endian, and the payload. A chunk that was cut off at the end is not read.
//!
//! Output that cannot be written, because the disk is full, is missing from then on. What is left of its chunk is cut off
//! before the next is written, which says how much is missing.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::place::{TRANSCRIPT, private, regular};
use super::protocol::Size;

const FORMAT: &[u8] = b"ctx-transcript 1\n";
/// The part before the newest.
const EARLIER: &str = "transcript.earlier";
/// How often a transcript is looked for whose parts change meanwhile.
const OPEN_TRIES: usize = 10;
/// No chunk of ours is larger.
const CHUNK_BYTES_MAX: u32 = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkKind {
    Output(Vec<u8>),
    Resize(Size),
    /// So many bytes of output before this are gone: the transcript was at its limit.
    Dropped(u64),
    /// So many bytes of output are missing here: they could not be written.
    Missing(u64),
    /// What follows cannot be read.
    Damaged,
}

impl ChunkKind {
    /// What a reader is to know of output that is not there.
    pub fn note(&self) -> Option<String> {
        match self {
            ChunkKind::Output(_) | ChunkKind::Resize(_) => None,
            ChunkKind::Dropped(bytes) => {
                Some(format!("{bytes} bytes of output before this were dropped: limits.transcript_bytes"))
            }
            ChunkKind::Missing(bytes) => {
                Some(format!("{bytes} bytes of output are missing here: they could not be written"))
            }
            ChunkKind::Damaged => {
                Some("output is missing here: the transcript is damaged and cannot be read on".to_owned())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Since the terminal's start.
    pub at: Duration,
    pub kind: ChunkKind,
}

/// Appends chunks. A chunk is one write, so a killed writer leaves whole chunks and at most one that is cut off.
#[derive(Debug)]
pub struct Writer<W> {
    file: W,
    buffer: Vec<u8>,
    /// Output in it.
    written: u64,
    /// Where its last whole chunk ends.
    length: u64,
    size: Size,
}

impl<W: Write> Writer<W> {
    /// `before`: how many bytes of output earlier parts had.
    pub fn new(file: W, before: u64, at: Duration, size: Size) -> io::Result<Writer<W>> {
        let mut writer = Writer { file, buffer: FORMAT.to_vec(), written: 0, length: 0, size };
        if before > 0 {
            writer.add(b'b', at, &before.to_le_bytes());
        }
        writer.resize(at, size)?;
        Ok(writer)
    }

    pub fn output(&mut self, at: Duration, bytes: &[u8]) -> io::Result<()> {
        self.add(b'o', at, bytes);
        self.flush()?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    pub fn resize(&mut self, at: Duration, size: Size) -> io::Result<()> {
        self.size = size;
        self.add_size(at);
        self.flush()
    }

    fn add_size(&mut self, at: Duration) {
        let [a, b] = self.size.cols.to_le_bytes();
        let [c, d] = self.size.rows.to_le_bytes();
        self.add(b'r', at, &[a, b, c, d]);
    }

    /// A chunk for the next write.
    fn add(&mut self, kind: u8, at: Duration, payload: &[u8]) {
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&micros.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(payload);
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        if written.is_ok() {
            self.length += self.buffer.len() as u64;
        }
        self.buffer.clear();
        written
    }

    #[cfg(test)]
    pub fn get_ref(&self) -> &W {
        &self.file
    }
}

impl Writer<File> {
    /// Takes back what a write that failed has left.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }
}

/// A transcript on disk that keeps about so much: when half of that is full, a new part begins, and of the earlier ones
/// only the last is kept.
#[derive(Debug)]
pub(super) struct Kept {
    dir: PathBuf,
    bytes_max: u64,
    writer: Writer<File>,
    /// Output in all parts before this one, and what is missing.
    before: u64,
    /// A write has failed: so many bytes of output are missing here, and the size may have changed.
    gap: Option<u64>,
}

impl Kept {
    pub fn new(dir: &Path, bytes_max: u64, size: Size) -> io::Result<Kept> {
        let writer = Writer::new(private(&dir.join(TRANSCRIPT))?, 0, Duration::ZERO, size)?;
        Ok(Kept { dir: dir.to_owned(), bytes_max, writer, before: 0, gap: None })
    }

    pub fn output(&mut self, at: Duration, bytes: &[u8]) -> io::Result<()> {
        let is_full = self.writer.written.saturating_add(bytes.len() as u64) > self.bytes_max / 2;
        let ready = if is_full && self.writer.written > 0 { self.begin_part(at) } else { Ok(()) };
        let ready = ready.and_then(|()| self.say_gap(at));
        let written = ready.and_then(|()| self.writer.output(at, bytes));
        self.note(written, bytes.len())
    }

    pub fn resize(&mut self, at: Duration, size: Size) -> io::Result<()> {
        self.writer.size = size;
        let written = match self.gap {
            // What says it says the size too.
            Some(_) => self.say_gap(at).and_then(|()| self.writer.flush()),
            None => self.writer.resize(at, size),
        };
        self.note(written, 0)
    }

    /// The next write says what is missing, and begins behind the last whole chunk.
    fn say_gap(&mut self, at: Duration) -> io::Result<()> {
        let Some(missing) = self.gap else { return Ok(()) };
        self.writer.cut()?;
        if missing > 0 {
            self.writer.add(b'm', at, &missing.to_le_bytes());
        }
        self.writer.add_size(at);
        Ok(())
    }

    fn note(&mut self, written: io::Result<()>, bytes: usize) -> io::Result<()> {
        match &written {
            Ok(()) => self.before += self.gap.take().unwrap_or_default(),
            Err(_) => *self.gap.get_or_insert_default() += bytes as u64,
        }
        written
    }

    /// Readers find either part under its name at any moment, or see that they changed.
    fn begin_part(&mut self, at: Duration) -> io::Result<()> {
        let (now, earlier) = (self.dir.join(TRANSCRIPT), self.dir.join(EARLIER));
        let before = self.before + self.writer.written;
        let unfinished = self.dir.join(".transcript");
        let next = Writer::new(private(&unfinished)?, before, at, self.writer.size)?;
        std::fs::rename(&now, earlier)?;
        std::fs::rename(unfinished, now)?;
        (self.before, self.writer) = (before, next);
        Ok(())
    }

    /// Nothing more comes.
    pub fn finish(&mut self, at: Duration) -> io::Result<()> {
        if self.gap.is_some() {
            self.resize(at, self.writer.size)?;
        }
        self.writer.file.sync_data()
    }
}

/// The chunks of a transcript, given its path. An earlier part comes first.
pub fn open_transcript(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Chunk>> + Send + use<>> {
    use std::os::unix::fs::MetadataExt;
    let open = |path: &Path| match regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    };
    let place = |file: &File| file.metadata().map(|data| (data.dev(), data.ino()));
    // A new part may begin between two looks.
    for _ in 0..OPEN_TRIES {
        let (Some(now), earlier) = (open(path)?, open(&path.with_file_name(EARLIER))?) else { continue };
        let is_moved = match &earlier {
            Some(earlier) => place(earlier)? == place(&now)?,
            None => false,
        };
        if !is_moved {
            let parts = earlier.into_iter().chain([now]);
            // What is before the second part is the first.
            let is_told = |first: bool, chunk: &io::Result<Chunk>| {
                first || !matches!(chunk, Ok(Chunk { kind: ChunkKind::Dropped(_), .. }))
            };
            return Ok(parts.enumerate().flat_map(move |(at, part)| {
                Chunks::new(BufReader::new(part)).filter(move |chunk| is_told(at == 0, chunk))
            }));
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the transcript is gone"))
}

/// Reads the chunks of a transcript, also of one that is still written.
pub struct Chunks<R> {
    file: R,
    begun: bool,
    is_damaged: bool,
    last: Duration,
}

impl<R: Read> Chunks<R> {
    pub fn new(file: R) -> Chunks<R> {
        Chunks { file, begun: false, is_damaged: false, last: Duration::ZERO }
    }

    /// None at the end, and at a chunk that is cut off.
    fn read(&mut self) -> io::Result<Option<Chunk>> {
        if !self.begun {
            let mut format = [0; FORMAT.len()];
            if !fill(&mut self.file, &mut format)? {
                return Ok(None);
            }
            if format != FORMAT {
                return Err(io::Error::other("this file is not a transcript of this version of ctx"));
            }
            self.begun = true;
        }
        while !self.is_damaged {
            let mut head = [0; 13];
            if !fill(&mut self.file, &mut head)? {
                return Ok(None);
            }
            let [kind, a @ .., l0, l1, l2, l3] = head;
            let length = u32::from_le_bytes([l0, l1, l2, l3]);
            if length > CHUNK_BYTES_MAX {
                // Earlier versions wrote on behind a chunk that a full disk had cut off.
                self.is_damaged = true;
                return Ok(Some(Chunk { at: self.last, kind: ChunkKind::Damaged }));
            }
            let at = Duration::from_micros(u64::from_le_bytes(a));
            let mut payload = vec![0; length as usize];
            if !fill(&mut self.file, &mut payload)? {
                return Ok(None);
            }
            let kind = match (kind, payload.as_slice()) {
                (b'o', _) => ChunkKind::Output(payload),
                (b'r', &[a, b, c, d]) => ChunkKind::Resize(Size {
                    cols: u16::from_le_bytes([a, b]),
                    rows: u16::from_le_bytes([c, d]),
                }),
                (b'b', bytes) => match <[u8; 8]>::try_from(bytes) {
                    Ok(bytes) => ChunkKind::Dropped(u64::from_le_bytes(bytes)),
                    Err(_) => continue,
                },
                (b'm', bytes) => match <[u8; 8]>::try_from(bytes) {
                    Ok(bytes) => ChunkKind::Missing(u64::from_le_bytes(bytes)),
                    Err(_) => continue,
                },
                // A kind of a later version.
                _ => continue,
            };
            self.last = at;
            return Ok(Some(Chunk { at, kind }));
        }
        Ok(None)
    }
}

impl<R: Read> Iterator for Chunks<R> {
    type Item = io::Result<Chunk>;

    fn next(&mut self) -> Option<io::Result<Chunk>> {
        self.read().transpose()
    }
}

/// False: the file ends before the buffer is full.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_is_read_as_it_was_written_up_to_a_cut() {
        let mut writer = Writer::new(Vec::new(), 0, Duration::ZERO, Size::new(80, 24)).unwrap();
        writer.output(Duration::from_millis(5), b"one\r\n\xff").unwrap();
        writer.resize(Duration::from_millis(6), Size::new(100, 30)).unwrap();
        writer.output(Duration::from_secs(70), b"two").unwrap();
        let file = writer.get_ref().clone();
        let whole: Vec<Chunk> = Chunks::new(file.as_slice()).collect::<io::Result<_>>().unwrap();
        let at = |millis| Duration::from_millis(millis);
        let expected = [
            Chunk { at: at(0), kind: ChunkKind::Resize(Size::new(80, 24)) },
            Chunk { at: at(5), kind: ChunkKind::Output(b"one\r\n\xff".to_vec()) },
            Chunk { at: at(6), kind: ChunkKind::Resize(Size::new(100, 30)) },
            Chunk { at: at(70_000), kind: ChunkKind::Output(b"two".to_vec()) },
        ];
        assert_eq!(whole, expected);
        for cut in 0..file.len() {
            let read: Vec<Chunk> = Chunks::new(&file[..cut]).collect::<io::Result<_>>().unwrap();
            assert!(whole.starts_with(&read) && read.len() < whole.len(), "{cut}");
        }
    }

    #[test]
    fn of_much_output_the_newest_is_kept_and_what_is_gone_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(dir.path(), 2_000, Size::new(80, 24)).unwrap();
        let line = |n: u64| format!("line {n:>4}\n").into_bytes();
        let mut written = Vec::new();
        for n in 0..1_000 {
            kept.output(Duration::from_millis(n), &line(n)).unwrap();
            written.extend(line(n));
            let (mut output, mut dropped) = (Vec::new(), 0);
            for chunk in open_transcript(&dir.path().join(TRANSCRIPT)).unwrap() {
                match chunk.unwrap().kind {
                    ChunkKind::Output(bytes) => output.extend(bytes),
                    ChunkKind::Dropped(bytes) => dropped = bytes,
                    ChunkKind::Resize(size) => assert_eq!(size, Size::new(80, 24)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(output, written[usize::try_from(dropped).unwrap()..], "{n}");
            assert!(output.len() <= 2_000 && (dropped == 0 || output.len() > 900), "{n}: {}", output.len());
        }
    }

    #[test]
    fn after_a_write_that_failed_output_is_kept_again_and_what_is_missing_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TRANSCRIPT);
        let mut kept = Kept::new(dir.path(), 2_000, Size::new(80, 24)).unwrap();
        let at = |millis| Duration::from_millis(millis);
        kept.output(at(1), b"before").unwrap();
        // A full disk takes the beginning of a chunk, and then nothing.
        kept.writer.file.write_all(b"o\x01\0\0\0\0\0\0\0\xff\0\0\0the begin").unwrap();
        let file = std::mem::replace(&mut kept.writer.file, File::open(&path).unwrap());
        kept.output(at(2), b"missing").unwrap_err();
        kept.resize(at(3), Size::new(100, 30)).unwrap_err();
        kept.output(at(4), b"too").unwrap_err();
        kept.writer.file = file;
        kept.output(at(5), b"after").unwrap();
        kept.output(at(6), b"wards").unwrap();
        let read = || {
            let chunks = open_transcript(&path).unwrap();
            chunks.map(|chunk| chunk.unwrap().kind).collect::<Vec<_>>()
        };
        let output = |text: &str| ChunkKind::Output(text.as_bytes().to_vec());
        let mut expected = vec![
            ChunkKind::Resize(Size::new(80, 24)),
            output("before"),
            ChunkKind::Missing(10),
            ChunkKind::Resize(Size::new(100, 30)),
            output("after"),
            output("wards"),
        ];
        assert_eq!(read(), expected);
        // What is missing at the end is said at the end, and a later part knows of it.
        let file = std::mem::replace(&mut kept.writer.file, File::open(&path).unwrap());
        kept.output(at(7), b"last").unwrap_err();
        kept.writer.file = file;
        kept.finish(at(8)).unwrap();
        expected.extend([ChunkKind::Missing(4), ChunkKind::Resize(Size::new(100, 30))]);
        assert_eq!(read(), expected);
        for _ in 0..2 {
            kept.output(at(9), &[b'x'; 1_000]).unwrap();
        }
        assert_eq!(read().first(), Some(&ChunkKind::Dropped(30)));
    }

    #[test]
    fn a_transcript_that_is_damaged_is_read_up_to_there() {
        let mut writer = Writer::new(Vec::new(), 0, Duration::ZERO, Size::new(80, 24)).unwrap();
        writer.output(Duration::from_secs(1), b"one").unwrap();
        let file = [writer.get_ref().as_slice(), b"words of a chunk that was cut off"].concat();
        let read: Vec<Chunk> = Chunks::new(file.as_slice()).map(Result::unwrap).skip(1).collect();
        let at = Duration::from_secs(1);
        let expected = [ChunkKind::Output(b"one".to_vec()), ChunkKind::Damaged];
        assert_eq!(read, expected.map(|kind| Chunk { at, kind }));
    }

    #[test]
    fn another_file_is_not_read() {
        assert!(Chunks::new(b"#!/bin/sh\necho 1234567890".as_slice()).next().unwrap().is_err());
    }
}
