//! Two threads for a command that prints faster than its output can be worked on in between: one reads, finds the
//! markers and redacts, the other writes to disk and gathers what is shown. The runtime does not watch the pipe
//! meanwhile, because that alone would wake it whenever the command prints.
//!
//! The threads end, and the pipe goes back to the runtime, as soon as the command has ended, is quiet, or is not
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

use super::pipeline::{Intake, Pipeline, StreamProgress};

/// A read of a command that prints much.
pub(crate) const READ_BYTES_MAX: usize = 256 << 10;
/// What one thread hands to the other at once, at least: to wake it costs more than the work on less.
const BATCH_BYTES: usize = 192 << 10;
/// Batches of a stream that wait for the disk; when there are more, the command waits.
const BATCHES_MAX: usize = 4;
/// Pairs of threads of all shells together, so that their buffers are bounded. A stream that gets none is worked
/// on in place.
pub(crate) const THREADS_MAX: usize = 16;
/// A pipe that nothing has come out of for this long is not worth two threads, and neither is one that has been read
/// empty and has not filled a batch in this time.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const SLOW: Duration = Duration::from_millis(20);
/// How long the output of a command is read whose shell is being closed.
pub(crate) const REST_MAX: Duration = Duration::from_millis(100);

/// A stream that threads work on.
pub(crate) struct BulkReader {
    threads: JoinHandle<BulkEnd>,
    /// Dropped when nobody waits for more.
    waits: Option<DropGuard>,
}

/// What the threads give back when they end.
pub(crate) struct BulkEnd {
    pub job: BulkJob,
    /// How far the stream is; all of it is stored.
    pub progress: io::Result<StreamProgress>,
}

/// What the threads are given.
pub(crate) struct BulkJob {
    pub pipe: OwnedFd,
    pub pipeline: Box<Pipeline>,
}

impl BulkReader {
    pub fn start(mut job: BulkJob, permit: OwnedSemaphorePermit) -> BulkReader {
        let stop = CancellationToken::new();
        let waits = Some(stop.clone().drop_guard());
        let threads = tokio::task::spawn_blocking(move || {
            let progress = read_and_store(&mut job, &stop);
            drop(permit);
            BulkEnd { job, progress }
        });
        BulkReader { threads, waits }
    }

    /// Waits for the threads to end. Nothing is lost when the wait is given up.
    pub async fn end(&mut self) -> io::Result<BulkEnd> {
        (&mut self.threads).await.map_err(|_| threads_gone())
    }

    /// Has the threads take what is in the pipe, and end.
    pub fn stop(&mut self) {
        self.waits = None;
    }
}

/// Has another thread store what this one reads; where there is no other, nothing is read.
fn read_and_store(job: &mut BulkJob, stop: &CancellationToken) -> io::Result<StreamProgress> {
    let BulkJob { pipe, pipeline } = job;
    let Pipeline { intake, storage } = &mut **pipeline;
    let (batches, to_store) = sync_channel::<Vec<u8>>(BATCHES_MAX);
    let (back, empty) = sync_channel(BATCHES_MAX);
    std::thread::scope(|scope| {
        let storing = move || {
            for mut batch in to_store {
                storage.write(&batch);
                batch.clear();
                // Where enough are on their way back, this one is dropped.
                drop(back.try_send(batch));
            }
        };
        let thread = std::thread::Builder::new().name("shell-output".to_owned());
        match thread.spawn_scoped(scope, storing) {
            Ok(_) => Reader { pipe, intake, stop, batches, empty }.read(),
            Err(error) => {
                tracing::debug!(%error, "output is worked on in place");
                Ok(intake.progress())
            }
        }
    })
}

/// The thread that reads and redacts.
struct Reader<'a> {
    pipe: &'a OwnedFd,
    intake: &'a mut Intake,
    stop: &'a CancellationToken,
    batches: SyncSender<Vec<u8>>,
    /// Batches that were stored, to be filled again.
    empty: Receiver<Vec<u8>>,
}

impl Reader<'_> {
    #[expect(clippy::indexing_slicing, reason = "a read returns at most as many bytes as its buffer has")]
    fn read(self) -> io::Result<StreamProgress> {
        let mut buffer = vec![0; READ_BYTES_MAX];
        let (mut batch, mut since) = (Vec::new(), Instant::now());
        let mut give_up = None;
        loop {
            let count = match retry_on_intr(|| rustix::io::read(self.pipe, &mut *buffer)) {
                Ok(count) => count,
                Err(Errno::AGAIN) if self.goes_on(&batch, since)? => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            if batch.is_empty() {
                since = Instant::now();
            }
            let progress = self.intake.take(&buffer[..count], &mut |piece| batch.extend_from_slice(piece));
            let is_over = self.stop.is_cancelled()
                && *give_up.get_or_insert_with(|| Instant::now() + REST_MAX) <= Instant::now();
            if progress.answered || is_over {
                break;
            }
            if batch.len() >= BATCH_BYTES {
                let empty = self.empty.try_recv().unwrap_or_default();
                self.send(std::mem::replace(&mut batch, empty))?;
            }
        }
        self.send(batch)?;
        Ok(self.intake.progress())
    }

    fn send(&self, batch: Vec<u8>) -> io::Result<()> {
        self.batches.send(batch).map_err(|_| threads_gone())
    }

    /// Whether an empty pipe is worth the wait for more: the command is waited for, has filled batches so far, and
    /// prints something soon.
    fn goes_on(&self, batch: &[u8], since: Instant) -> io::Result<bool> {
        if self.stop.is_cancelled() || !batch.is_empty() && since.elapsed() >= SLOW {
            return Ok(false);
        }
        let mut pipe = [PollFd::new(self.pipe, PollFlags::IN)];
        Ok(retry_on_intr(|| poll(&mut pipe, Some(&QUIET)))? > 0)
    }
}

pub(crate) fn threads_gone() -> io::Error {
    io::Error::other("the threads that work on its output have ended")
}
