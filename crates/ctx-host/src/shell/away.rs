//! Two threads for a command that prints faster than it can be worked on in between: one looks at the text, the
//! other writes to disk. Buffers go round: read, looked at, stored, read into again.

use std::io;
use std::sync::mpsc::sync_channel;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use super::keep::{Keeper, Pieces};
use super::lane::{READ_BYTES_MAX, Seen, Work};

/// Buffers of a stream; when all are full, the command waits.
const BUFFERS_MAX: usize = 5;
/// Pairs of threads of all shells together, so that their buffers are bounded. A stream that gets none is worked
/// on in place.
pub(super) const THREADS_MAX: usize = 16;

/// A buffer that was read into, and how far.
type Read = (Vec<u8>, usize);
/// A buffer that was stored, and how far the stream was after it.
type Stored = (Vec<u8>, Seen);

/// What was looked at, on its way to disk.
struct Looked {
    buffer: Vec<u8>,
    pieces: Pieces,
    seen: Seen,
}

/// The two threads, and the buffers that are not with them.
pub(super) struct Away {
    reads: mpsc::Sender<Read>,
    stored: mpsc::Receiver<Stored>,
    /// Buffers to read into, and how many more there may be.
    spare: Vec<Vec<u8>>,
    unmade: usize,
    /// Buffers that are with the threads.
    passed: usize,
    threads: JoinHandle<(Work, Keeper)>,
    _permit: OwnedSemaphorePermit,
}

impl Away {
    pub fn start(work: Work, keeper: Keeper, permit: OwnedSemaphorePermit) -> Away {
        let (reads, waiting) = mpsc::channel(BUFFERS_MAX);
        let (back, stored) = mpsc::channel(BUFFERS_MAX);
        let threads = tokio::task::spawn_blocking(move || look_and_store(work, keeper, waiting, &back));
        Away {
            reads,
            stored,
            spare: Vec::new(),
            unmade: BUFFERS_MAX - 1,
            passed: 0,
            threads,
            _permit: permit,
        }
    }

    /// Hands a full buffer over and gives the next one, an empty one where none is free.
    pub fn pass(&mut self, buffer: Vec<u8>, count: usize) -> io::Result<Vec<u8>> {
        // There are no more buffers than there is room for.
        self.reads.try_send((buffer, count)).map_err(|_| gone())?;
        self.passed += 1;
        if let Some(spare) = self.spare.pop() {
            return Ok(spare);
        }
        if self.unmade == 0 {
            return Ok(Vec::new());
        }
        self.unmade -= 1;
        Ok(vec![0; READ_BYTES_MAX])
    }

    /// Waits for a buffer that was stored. Nothing is lost when the wait is given up.
    pub async fn worked(&mut self) -> io::Result<Stored> {
        let stored = self.stored.recv().await.ok_or_else(gone)?;
        self.passed = self.passed.saturating_sub(1);
        Ok(stored)
    }

    /// Whether a buffer is with the threads.
    pub fn is_busy(&self) -> bool {
        self.passed > 0
    }

    /// Takes a buffer back that nothing is read into yet.
    pub fn spare(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }

    /// Waits until all that was passed on is stored, but for what is held back of a block.
    pub async fn end(self) -> io::Result<(Work, Keeper)> {
        let Away { reads, mut stored, threads, .. } = self;
        drop(reads);
        while stored.recv().await.is_some() {}
        threads.await.map_err(|_| gone())
    }
}

/// Looks at every read, and has another thread store it meanwhile; the same one, where there is no other.
fn look_and_store(
    mut work: Work,
    mut keeper: Keeper,
    mut waiting: mpsc::Receiver<Read>,
    back: &mpsc::Sender<Stored>,
) -> (Work, Keeper) {
    let (on, looked) = sync_channel::<Looked>(BUFFERS_MAX);
    std::thread::scope(|scope| {
        let disk = &mut keeper;
        let storing = move || looked.iter().for_each(|looked| store(disk, looked, back));
        let other = std::thread::Builder::new().name("shell-output".to_owned()).spawn_scoped(scope, storing);
        while let (true, Some(read)) = (other.is_ok(), waiting.blocking_recv()) {
            if on.send(look(&mut work, read)).is_err() {
                break;
            }
        }
        drop(on);
    });
    // Where there was no other thread, all is still to be done.
    while let Some(read) = waiting.blocking_recv() {
        store(&mut keeper, look(&mut work, read), back);
    }
    (work, keeper)
}

fn look(work: &mut Work, (buffer, count): Read) -> Looked {
    let mut pieces = Pieces::default();
    let read = buffer.get(..count).unwrap_or_default();
    let seen = work.take(read, &mut |piece| pieces.add(&buffer, piece));
    Looked { buffer, pieces, seen }
}

fn store(keeper: &mut Keeper, Looked { buffer, pieces, seen }: Looked, back: &mpsc::Sender<Stored>) {
    keeper.keep_blocks(&pieces, &buffer);
    // Nobody waits for it where the shell is being closed.
    drop(back.blocking_send((buffer, seen)));
}

pub(super) fn gone() -> io::Error {
    io::Error::other("the threads that work on its output have ended")
}
