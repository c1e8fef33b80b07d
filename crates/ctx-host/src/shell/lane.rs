//! One of a command's two streams on its way: from the pipe, past the markers, into what is kept and shown.
//!
//! Output is worked on where it is read, which is the shortest way. Where a command prints faster than that,
//! threads of its own work on it (`away`): reading goes on meanwhile, and other shells do not wait for it.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::away::{Away, gone};
use super::keep::Keeper;
use super::late::Late;
use super::scan::{Nonce, Part, Scanner, Stream};
use super::shared::Shared;
use super::text::output::{Finished, OutputStream};

/// The first read of a command; most print less.
pub(super) const READ_BYTES_MIN: usize = 8 << 10;
/// A read of a command that prints much.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// Output that is always worked on in place.
const HERE_BYTES_MIN: u64 = 1 << 20;
/// A read of this size after that says that the command prints faster than we work: only then threads are
/// worth the way there and back.
const FAST_READ_BYTES: usize = 64 << 10;
/// How far a stream is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// Bytes that the command printed.
    pub bytes: u64,
    /// Whether the command has ended on this stream, and its exit code is known where this stream tells it.
    pub answered: bool,
}

/// A stream that has ended, or whose command has.
pub(super) struct LaneEnd {
    pub finished: Finished,
    pub bytes: u64,
    /// Printed before the start marker, where that is anybody's output.
    pub before: Option<Late>,
    /// Printed behind the end marker.
    pub after: Late,
    /// The shell may still be telling its report.
    pub scanner: Option<Scanner>,
    /// Why not all of the output is on disk.
    pub unkept: Option<io::Error>,
    /// For the next command to read into.
    pub buffer: Vec<u8>,
}

/// What is done with the bytes that were read.
pub(super) struct Work {
    scanner: Scanner,
    output: OutputStream,
    bytes: u64,
    before: Option<Late>,
    after: Late,
}

impl Work {
    /// Takes what was read and hands on what is to be stored; no bytes are the end of the stream.
    pub fn take(&mut self, read: &[u8], store: &mut dyn FnMut(&[u8])) -> Seen {
        let Work { scanner, output, bytes, before, after } = self;
        let mut sink = |part: Part<'_>| match part {
            Part::Late(part) => {
                if let Some(before) = before {
                    before.push(part);
                }
            }
            Part::After(part) => {
                after.comes_after(output.is_inside());
                after.push(part);
            }
            Part::Body(part) => {
                if *bytes == 0 && before.as_ref().is_some_and(Late::is_inside) {
                    output.go_on_inside();
                }
                *bytes += part.len() as u64;
                output.push(part, store);
            }
        };
        match read {
            [] => scanner.finish(&mut sink),
            read => scanner.push(read, &mut sink),
        }
        Seen { bytes: self.bytes, answered: self.scanner.answered() }
    }

    fn end(mut self, mut keeper: Keeper, buffer: Vec<u8>) -> LaneEnd {
        self.after.comes_after(self.output.is_inside());
        let finished = self.output.finish();
        keeper.keep(&finished.rest);
        LaneEnd {
            finished,
            bytes: self.bytes,
            before: self.before,
            after: self.after,
            scanner: Some(self.scanner),
            unkept: keeper.unkept,
            buffer,
        }
    }
}

enum Place {
    Here(Box<Work>, Keeper),
    Away(Away),
    /// Between the two.
    Moving,
}

/// What a lane waited for.
pub(super) enum Got {
    Read(usize),
    /// The threads are done with an earlier read.
    Worked,
}

/// One of the two streams of a running command.
pub(super) struct Lane {
    pub stream: Stream,
    pub seen: Seen,
    buffer: Vec<u8>,
    place: Place,
}

impl Lane {
    pub fn new(
        nonce: &Nonce,
        stream: Stream,
        output: OutputStream,
        before: Option<Late>,
        shared: &Arc<Shared>,
        mut buffer: Vec<u8>,
    ) -> Self {
        buffer.resize(READ_BYTES_MIN, 0);
        let work =
            Work { scanner: Scanner::new(nonce, stream), output, bytes: 0, before, after: Late::new(shared) };
        let place = Place::Here(Box::new(work), Keeper::new(stream, Arc::clone(shared)));
        Lane { stream, seen: Seen::default(), buffer, place }
    }

    /// Waits for bytes, or for the threads. Nothing is lost when the wait is given up.
    pub async fn next(&mut self, from: &mut (dyn AsyncRead + Send + Unpin)) -> io::Result<Got> {
        let Place::Away(away) = &mut self.place else {
            return from.read(&mut self.buffer).await.map(Got::Read);
        };
        tokio::select! {
            read = from.read(&mut self.buffer), if !self.buffer.is_empty() => read.map(Got::Read),
            worked = away.worked() => {
                let (buffer, seen) = worked?;
                self.seen = seen;
                if self.buffer.is_empty() {
                    self.buffer = buffer;
                } else {
                    away.spare(buffer);
                }
                Ok(Got::Worked)
            }
        }
    }

    /// Whether bytes that were read are still being worked on.
    pub fn is_behind(&self) -> bool {
        match &self.place {
            Place::Here(..) => false,
            Place::Away(away) => away.is_busy(),
            Place::Moving => true,
        }
    }

    /// Takes what a read has put into the buffer.
    pub fn took(&mut self, count: usize) -> io::Result<()> {
        match &mut self.place {
            Place::Here(work, keeper) => {
                let read = self.buffer.get(..count).unwrap_or_default();
                self.seen = work.take(read, &mut |redacted| keeper.keep(redacted));
                if count == self.buffer.len() {
                    self.buffer.resize(READ_BYTES_MAX, 0);
                }
                let is_fast = self.seen.bytes > HERE_BYTES_MIN && count >= FAST_READ_BYTES;
                if is_fast && !self.seen.answered {
                    self.move_away();
                }
            }
            Place::Away(away) => self.buffer = away.pass(std::mem::take(&mut self.buffer), count)?,
            Place::Moving => {}
        }
        Ok(())
    }

    fn move_away(&mut self) {
        if let Place::Here(work, keeper) = std::mem::replace(&mut self.place, Place::Moving) {
            self.place = match keeper.try_thread() {
                Some(permit) => Place::Away(Away::start(*work, keeper, permit)),
                None => Place::Here(work, keeper),
            };
        }
    }

    /// Ends the stream.
    pub async fn end(self) -> io::Result<LaneEnd> {
        match self.place {
            Place::Here(work, keeper) => Ok(work.end(keeper, self.buffer)),
            Place::Away(away) => {
                let (work, keeper) = away.end().await?;
                Ok(work.end(keeper, Vec::new()))
            }
            Place::Moving => Err(gone()),
        }
    }
}
