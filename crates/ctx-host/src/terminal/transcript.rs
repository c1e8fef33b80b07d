//! The transcript: every byte that the program wrote, with the time of each chunk, written as it happens.
//!
//! A line that names the format, then chunks: one byte of kind, the microseconds since the start (8 bytes), the length of
//! the payload (4 bytes), both little-endian, and the payload. A chunk that was cut off at the end is not read.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::protocol::Size;

const FORMAT: &[u8] = b"ctx-transcript 1\n";
/// No chunk of ours is larger.
const CHUNK_BYTES_MAX: u32 = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkKind {
    Output(Vec<u8>),
    Resize(Size),
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
}

impl<W: Write> Writer<W> {
    pub fn new(mut file: W, size: Size) -> io::Result<Writer<W>> {
        file.write_all(FORMAT)?;
        let mut writer = Writer { file, buffer: Vec::new() };
        writer.resize(Duration::ZERO, size)?;
        Ok(writer)
    }

    pub fn output(&mut self, at: Duration, bytes: &[u8]) -> io::Result<()> {
        self.chunk(b'o', at, bytes)
    }

    pub fn resize(&mut self, at: Duration, Size { cols, rows }: Size) -> io::Result<()> {
        let [a, b] = cols.to_le_bytes();
        let [c, d] = rows.to_le_bytes();
        self.chunk(b'r', at, &[a, b, c, d])
    }

    fn chunk(&mut self, kind: u8, at: Duration, payload: &[u8]) -> io::Result<()> {
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.buffer.clear();
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&micros.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(payload);
        self.file.write_all(&self.buffer)
    }

    pub fn get_ref(&self) -> &W {
        &self.file
    }
}

/// Reads the chunks of a transcript, also of one that is still written.
pub struct Chunks<R> {
    file: R,
    begun: bool,
}

impl<R: Read> Chunks<R> {
    pub fn new(file: R) -> Chunks<R> {
        Chunks { file, begun: false }
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
        loop {
            let mut head = [0; 13];
            if !fill(&mut self.file, &mut head)? {
                return Ok(None);
            }
            let [kind, a @ .., l0, l1, l2, l3] = head;
            let length = u32::from_le_bytes([l0, l1, l2, l3]);
            if length > CHUNK_BYTES_MAX {
                return Err(io::Error::other("the transcript is damaged"));
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
                // A kind of a later version.
                _ => continue,
            };
            return Ok(Some(Chunk { at, kind }));
        }
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
        let mut writer = Writer::new(Vec::new(), Size::new(80, 24)).unwrap();
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
    fn another_file_is_not_read() {
        assert!(Chunks::new(b"#!/bin/sh\necho 1234567890".as_slice()).next().unwrap().is_err());
    }
}
