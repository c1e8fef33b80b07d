//! What waits to be written to the host, and how much of it may: a host that does not read must not make the server
//! grow. When it is full, nothing more is read from the host, no command begins and no page is read. All that goes on
//! when the host reads again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// So many bytes of answers may wait; what is under way then may still come on top.
pub(super) const WAITING_BYTES_MAX: usize = 8 << 20;
/// Pages of output that are read at once.
const PAGES_MAX: usize = 4;
/// Outputs that are searched at once. A search may take long, and no page waits for it.
const SEARCHES_MAX: usize = 4;
/// An answer is on its way to the outbox for no longer than this, also when it is lost.
const HANDED_OVER: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Outbox {
    inner: Arc<Inner>,
}

struct Inner {
    waiting: AtomicUsize,
    /// Bytes that were written since the beginning.
    written: AtomicU64,
    /// Whether so much waits that nothing new may begin; the shells look at it too.
    full: Arc<watch::Sender<bool>>,
    pages: Arc<Semaphore>,
    searches: Arc<Semaphore>,
}

/// What a long answer is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Reading a page.
    Page,
    /// Looking through a whole output.
    Search,
}

/// An answer that waits, until it is dropped.
pub(super) struct Waiting {
    outbox: Outbox,
    bytes: usize,
}

/// The turn to make a long answer.
pub(super) struct Turn(
    #[expect(dead_code, reason = "held, and given back when dropped")] Option<OwnedSemaphorePermit>,
);

impl Outbox {
    /// `full` is set by this outbox, and by nobody else.
    pub fn new(full: Arc<watch::Sender<bool>>) -> Outbox {
        let turns = |count| Arc::new(Semaphore::new(count));
        let inner = Inner {
            waiting: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            full,
            pages: turns(PAGES_MAX),
            searches: turns(SEARCHES_MAX),
        };
        Outbox { inner: Arc::new(inner) }
    }

    /// Notes that so many bytes wait.
    pub fn put(&self, bytes: usize) -> Waiting {
        self.note(|waiting| waiting.fetch_add(bytes, Ordering::Relaxed) + bytes);
        Waiting { outbox: self.clone(), bytes }
    }

    /// Notes that so many bytes were taken by the host.
    pub fn wrote(&self, bytes: usize) {
        self.inner.written.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn written(&self) -> u64 {
        self.inner.written.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.inner.waiting.load(Ordering::Relaxed) == 0
    }

    /// Ready when there is room.
    pub async fn has_room(&self) {
        self.becomes(false).await;
    }

    /// Ready when there is none.
    pub async fn is_full(&self) {
        self.becomes(true).await;
    }

    /// Waits for the turn to make a long answer.
    pub async fn turn(&self, work: Work) -> Turn {
        let turns = match work {
            Work::Page => &self.inner.pages,
            Work::Search => &self.inner.searches,
        };
        let permit = Arc::clone(turns).acquire_owned().await;
        self.has_room().await;
        Turn(permit.ok())
    }

    /// `full` is looked at and set under its lock, so that the last to change the count has the last word.
    fn note(&self, change: impl FnOnce(&AtomicUsize) -> usize) {
        self.inner.full.send_if_modified(|full| {
            let is_full = change(&self.inner.waiting) >= WAITING_BYTES_MAX;
            std::mem::replace(full, is_full) != is_full
        });
    }

    async fn becomes(&self, wanted: bool) {
        // We hold the sender: the channel does not close.
        drop(self.inner.full.subscribe().wait_for(|full| *full == wanted).await);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.outbox.note(|waiting| waiting.fetch_sub(bytes, Ordering::Relaxed) - bytes);
    }
}

impl Turn {
    /// Gives the turn back when the answer is among those that wait: then its request is over.
    pub fn until_answered(self, request: CancellationToken) {
        tokio::spawn(async move {
            drop(tokio::time::timeout(HANDED_OVER, request.cancelled()).await);
            drop(self);
        });
    }
}
