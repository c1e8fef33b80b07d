//! One of a command's two streams on its way: from the pipe, past the markers, into what is kept and shown.
//!
//! Output is worked on where it is read, which is the shortest way. Where a command prints faster than that,
//! a thread of its own works on it: reading goes on meanwhile, and other shells do not wait for it.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use super::driver::Shared;
use super::scan::{Nonce, Part, Scanner, Stream};
use super::text::output::{Finished, OutputStream};

/// The first read of a command; most print less.
pub(super) const READ_BYTES_MIN: usize = 8 << 10;
/// A read of a command that prints much.
const READ_BYTES_MAX: usize = 256 << 10;
/// Output that is always worked on in place.
const HERE_BYTES_MIN: u64 = 1 << 20;
/// A read of this size after that says that the command prints faster than we work: only then a thread is
/// worth its way there and back.
const FAST_READ_BYTES: usize = 64 << 10;
/// Reads that may wait for the thread; then the command waits.
const READS_AHEAD: usize = 4;
/// Threads of all shells together, so that their buffers are bounded. A stream that gets none is worked on
/// in place.
pub(super) const THREADS_MAX: usize = 16;
/// Late output that is kept; of more, the end.
const LATE_BYTES_MAX: usize = 64 << 10;

/// Bytes that no command of ours printed while it ran.
#[derive(Debug, Default)]
pub(super) struct Late(Vec<u8>);

impl Late {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * LATE_BYTES_MAX {
            self.0.drain(..self.0.len() - LATE_BYTES_MAX);
        }
    }

    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.drain(..bytes.len().saturating_sub(LATE_BYTES_MAX));
        bytes
    }
}

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
    /// Printed before the start marker.
    pub before: Late,
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
struct Work {
    stream: Stream,
    shared: Arc<Shared>,
    scanner: Scanner,
    output: OutputStream,
    bytes: u64,
    before: Late,
    after: Late,
    unkept: Option<io::Error>,
}

impl Work {
    /// Takes what was read; no bytes are the end of the stream.
    fn take(&mut self, read: &[u8]) -> Seen {
        let Work { stream, shared, scanner, output, bytes, before, after, unkept } = self;
        let mut sink = |part: Part<'_>| match part {
            Part::Late(part) => before.push(part),
            Part::After(part) => after.push(part),
            Part::Body(part) => {
                *bytes += part.len() as u64;
                output.push(part, &mut |redacted| {
                    // The command goes on: what it prints is shown, but not all of it is kept.
                    if let Err(error) = shared.spool().keep(*stream, redacted) {
                        unkept.get_or_insert(error);
                    }
                });
            }
        };
        match read {
            [] => scanner.finish(&mut sink),
            read => scanner.push(read, &mut sink),
        }
        Seen { bytes: self.bytes, answered: self.scanner.answered() }
    }

    fn end(mut self, buffer: Vec<u8>) -> LaneEnd {
        let finished = self.output.finish();
        if let Err(error) = self.shared.spool().keep(self.stream, &finished.rest) {
            self.unkept.get_or_insert(error);
        }
        LaneEnd {
            finished,
            bytes: self.bytes,
            before: self.before,
            after: self.after,
            scanner: Some(self.scanner),
            unkept: self.unkept,
            buffer,
        }
    }
}

/// A thread that works on what was read.
struct Away {
    reads: mpsc::Sender<(Vec<u8>, usize)>,
    worked: mpsc::Receiver<(Vec<u8>, Seen)>,
    /// Buffers to read into, and how many more there may be.
    spare: Vec<Vec<u8>>,
    unmade: usize,
    thread: JoinHandle<Work>,
    _permit: OwnedSemaphorePermit,
}

impl Away {
    fn start(mut work: Work, permit: OwnedSemaphorePermit) -> Away {
        let (reads, mut waiting) = mpsc::channel::<(Vec<u8>, usize)>(READS_AHEAD);
        let (back, worked) = mpsc::channel(READS_AHEAD);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some((buffer, count)) = waiting.blocking_recv() {
                let seen = work.take(buffer.get(..count).unwrap_or_default());
                // Nobody waits for it where the shell is being closed.
                drop(back.blocking_send((buffer, seen)));
            }
            work
        });
        Away { reads, worked, spare: Vec::new(), unmade: READS_AHEAD - 1, thread, _permit: permit }
    }

    /// Hands a full buffer over and gives the next one, an empty one where none is free.
    fn pass(&mut self, buffer: Vec<u8>, count: usize) -> io::Result<Vec<u8>> {
        // There are no more buffers than there is room for.
        self.reads.try_send((buffer, count)).map_err(|_| gone())?;
        if let Some(spare) = self.spare.pop() {
            return Ok(spare);
        }
        if self.unmade == 0 {
            return Ok(Vec::new());
        }
        self.unmade -= 1;
        Ok(vec![0; READ_BYTES_MAX])
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that works on its output has ended")
}

enum Place {
    Here(Box<Work>),
    Away(Away),
    /// Between the two.
    Moving,
}

/// What a lane waited for.
pub(super) enum Got {
    Read(usize),
    /// The thread has worked on an earlier read.
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
        shared: &Arc<Shared>,
        mut buffer: Vec<u8>,
    ) -> Self {
        buffer.resize(READ_BYTES_MIN, 0);
        let work = Work {
            stream,
            shared: Arc::clone(shared),
            scanner: Scanner::new(nonce, stream),
            output,
            bytes: 0,
            before: Late::default(),
            after: Late::default(),
            unkept: None,
        };
        Lane { stream, seen: Seen::default(), buffer, place: Place::Here(Box::new(work)) }
    }

    /// Waits for bytes, or for the thread. Nothing is lost when the wait is given up.
    pub async fn next(&mut self, from: &mut (dyn AsyncRead + Send + Unpin)) -> io::Result<Got> {
        let Place::Away(away) = &mut self.place else {
            return from.read(&mut self.buffer).await.map(Got::Read);
        };
        tokio::select! {
            read = from.read(&mut self.buffer), if !self.buffer.is_empty() => read.map(Got::Read),
            worked = away.worked.recv() => {
                let (buffer, seen) = worked.ok_or_else(gone)?;
                self.seen = seen;
                if self.buffer.is_empty() {
                    self.buffer = buffer;
                } else {
                    away.spare.push(buffer);
                }
                Ok(Got::Worked)
            }
        }
    }

    /// Takes what a read has put into the buffer.
    pub fn took(&mut self, count: usize) -> io::Result<()> {
        match &mut self.place {
            Place::Here(work) => {
                self.seen = work.take(self.buffer.get(..count).unwrap_or_default());
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
        if let Place::Here(work) = std::mem::replace(&mut self.place, Place::Moving) {
            self.place = match Arc::clone(&work.shared.threads).try_acquire_owned() {
                Ok(permit) => Place::Away(Away::start(*work, permit)),
                Err(_) => Place::Here(work),
            };
        }
    }

    /// Ends the stream.
    pub async fn end(self) -> io::Result<LaneEnd> {
        match self.place {
            Place::Here(work) => Ok(work.end(self.buffer)),
            Place::Away(Away { reads, mut worked, thread, .. }) => {
                drop(reads);
                while worked.recv().await.is_some() {}
                let work = thread.await.map_err(|_| gone())?;
                Ok(work.end(Vec::new()))
            }
            Place::Moving => Err(gone()),
        }
    }
}
