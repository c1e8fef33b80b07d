//! Two threads for a command that prints faster than it can be worked on in between: one reads and looks at what it
//! has read while that is near, the other writes to disk and gathers what is shown. The runtime has no part in it: it does not watch the pipe
//! meanwhile, for that alone would wake it whenever the command prints.
//!
//! The threads are given back, and the pipe to the runtime, as soon as the command has ended, is quiet, or is not
//! waited for any more.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pipeline::{Look, Seen, Work};
use super::spool_writer::{Keeper, Pieces};
use super::stream::{FAST_READ_BYTES, READ_BYTES_MAX};

/// Buffers of a stream; when all are full, the command waits.
const BUFFERS_MAX: usize = 4;
/// Pairs of threads of all shells together, so that their buffers are bounded. A stream that gets none is worked
/// on in place.
pub(crate) const THREADS_MAX: usize = 16;
/// A pipe that nothing has come out of for this long is not worth two threads, and neither is one that has been read empty
/// and has not filled a buffer in this time.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const SLOW: Duration = Duration::from_millis(20);
/// How long the output of a command is read whose shell is being closed.
pub(crate) const REST_MAX: Duration = Duration::from_millis(100);

/// A stream that threads work on.
pub(crate) struct Away {
    threads: JoinHandle<Back>,
    /// Dropped when nobody waits for more.
    waits: Option<DropGuard>,
}

/// What the threads give back when they end.
pub(crate) struct Back {
    pub job: Job,
    /// How far the stream is; all of it is stored.
    pub seen: io::Result<Seen>,
}

/// What the threads are given.
pub(crate) struct Job {
    pub pipe: OwnedFd,
    pub work: Box<Work>,
    pub keeper: Keeper,
}

/// What was looked at, on its way to disk.
#[derive(Default)]
struct Looked {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read into, and since when.
    read: usize,
    since: Option<Instant>,
    pieces: Pieces,
}

impl Away {
    pub fn start(mut job: Job, permit: OwnedSemaphorePermit) -> Away {
        let stop = CancellationToken::new();
        let waits = Some(stop.clone().drop_guard());
        let threads = tokio::task::spawn_blocking(move || {
            let seen = read_and_store(&mut job, &stop);
            // What was held back of a block is not held back from whoever reads a quiet command's output.
            job.keeper.keep(&[]);
            drop(permit);
            Back { job, seen }
        });
        Away { threads, waits }
    }

    /// Waits for the threads to end. Nothing is lost when the wait is given up.
    pub async fn back(&mut self) -> io::Result<Back> {
        (&mut self.threads).await.map_err(|_| gone())
    }

    /// Has the threads take what stands in the pipe, and end.
    pub fn stop(&mut self) {
        self.waits = None;
    }
}

/// Has another thread store what this one reads; where there is no other, nothing is read.
fn read_and_store(job: &mut Job, stop: &CancellationToken) -> io::Result<Seen> {
    let Job { pipe, work, keeper } = job;
    let Work { look, shown } = &mut **work;
    let (pass, looked) = sync_channel::<Looked>(BUFFERS_MAX);
    let (back, free) = sync_channel(BUFFERS_MAX);
    std::thread::scope(|scope| {
        let storing = move || {
            for Looked { buffer, pieces, .. } in looked {
                keeper.keep_blocks(&pieces, &buffer);
                pieces.slices(&buffer).for_each(|piece| shown.push(piece));
                // Nobody waits for the last ones.
                drop(back.send(buffer));
            }
        };
        let thread = std::thread::Builder::new().name("shell-output".to_owned());
        match thread.spawn_scoped(scope, storing) {
            Ok(_) => Reader { pipe, look, stop, pass, free, unmade: BUFFERS_MAX }.read(),
            Err(error) => {
                tracing::debug!(%error, "output is worked on in place");
                Ok(look.seen())
            }
        }
    })
}

/// The thread that reads and looks.
struct Reader<'a> {
    pipe: &'a OwnedFd,
    look: &'a mut Look,
    stop: &'a CancellationToken,
    pass: SyncSender<Looked>,
    /// Buffers that were stored, and how many more there may be.
    free: Receiver<Vec<u8>>,
    unmade: usize,
}

impl Reader<'_> {
    fn read(mut self) -> io::Result<Seen> {
        let mut looked = self.fresh()?;
        let mut give_up = None;
        loop {
            let rest = looked.buffer.get_mut(looked.read..).unwrap_or_default();
            let count = match retry_on_intr(|| rustix::io::read(self.pipe, &mut *rest)) {
                Ok(count) => count,
                Err(Errno::AGAIN) if !self.stop.is_cancelled() && !looked.is_slow() && self.comes()? => {
                    continue;
                }
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            let seen = looked.look(self.look, count);
            let over = self.stop.is_cancelled()
                && *give_up.get_or_insert_with(|| Instant::now() + REST_MAX) <= Instant::now();
            if seen.answered || over {
                break;
            }
            // Little is not passed on alone: to wake the other thread costs more than it does.
            if looked.buffer.len() - looked.read < FAST_READ_BYTES {
                self.pass.send(looked).map_err(|_| gone())?;
                looked = self.fresh()?;
            }
        }
        self.pass.send(looked).map_err(|_| gone())?;
        Ok(self.look.seen())
    }

    /// A buffer to read into; waits for the disk where all are full.
    fn fresh(&mut self) -> io::Result<Looked> {
        let buffer = match self.free.try_recv() {
            Ok(buffer) => buffer,
            Err(_) if self.unmade > 0 => {
                self.unmade -= 1;
                vec![0; READ_BYTES_MAX]
            }
            Err(_) => self.free.recv().map_err(|_| gone())?,
        };
        Ok(Looked { buffer, ..Looked::default() })
    }

    /// Waits for something to read, for a while.
    fn comes(&self) -> io::Result<bool> {
        let mut pipe = [PollFd::new(self.pipe, PollFlags::IN)];
        Ok(retry_on_intr(|| poll(&mut pipe, Some(&QUIET)))? > 0)
    }
}

impl Looked {
    fn is_slow(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= SLOW)
    }

    /// Takes what was read behind the rest; no bytes are the end of the stream.
    fn look(&mut self, look: &mut Look, count: usize) -> Seen {
        let Looked { buffer, read, since, pieces } = self;
        since.get_or_insert_with(Instant::now);
        let bytes = buffer.get(*read..*read + count).unwrap_or_default();
        *read += count;
        look.take(bytes, &mut |piece| pieces.add(buffer, piece))
    }
}

pub(crate) fn gone() -> io::Error {
    io::Error::other("the threads that work on its output have ended")
}
