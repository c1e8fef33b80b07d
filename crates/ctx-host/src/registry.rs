//! The shells of a server by their ids: room for new ones, and why those that are gone have ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ctx_session::{IdSource, Timestamp, Ulid};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::ShellError;
use super::exec::driver::{Driver, End, Order};
use super::host::{Inner, ShellSummary};
use super::state::{Running, ShellState};
use super::workspace::ShellWorkspace;
use ctx_text::fence::Fence;

/// How many shells that ended by themselves are remembered.
const ENDED_MAX: usize = 1000;

pub(super) struct Registry {
    pub shells: HashMap<String, Entry>,
    /// Shells that are being made: they count, too.
    making: usize,
    next: u64,
    ids: IdSource,
    pub closed: bool,
    /// Those that ended without being destroyed, oldest first: their callers do not know of it yet.
    ended: VecDeque<(String, End)>,
}

impl Registry {
    pub fn new(seed: u64) -> Registry {
        Registry {
            shells: HashMap::new(),
            making: 0,
            next: 1,
            ids: IdSource::new(seed),
            closed: false,
            ended: VecDeque::new(),
        }
    }

    /// What to say of a shell that is not there.
    pub fn missing(&self, id: &str) -> ShellError {
        let ended = self.ended.iter().find(|(ended, _)| ended == id).map(|(_, end)| end.clone());
        let id = id.chars().take(100).collect();
        match ended {
            Some(End::Reaped { idle }) => ShellError::Reaped { id, idle_secs: idle.as_secs() },
            Some(End::Lost { reason: why }) => ShellError::Closed { id, why },
            Some(End::Destroyed) | None => ShellError::NoShell { id },
        }
    }

    fn gone(&mut self, id: String, end: End) {
        self.shells.remove(&id);
        if !matches!(end, End::Destroyed) {
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back((id, end));
        }
    }
}

#[derive(Clone)]
pub(super) struct Entry {
    pub n: u64,
    pub orders: mpsc::Sender<Order>,
    pub shared: Arc<ShellState>,
    pub fence: Arc<Fence>,
    /// What snapshots are taken of.
    pub workspace: Option<Arc<ShellWorkspace>>,
    pub done: CancellationToken,
}

impl Entry {
    pub fn summary(&self) -> ShellSummary {
        let status = self.shared.status().clone();
        let idle = if status.running.is_some() { Duration::ZERO } else { status.used.elapsed() };
        ShellSummary {
            session_id: self.shared.id.clone(),
            log: self.shared.log,
            transport: self.shared.transport,
            cwd: self.shared.shown_cwd(),
            idle_secs: idle.as_secs(),
            commands: status.commands,
            running: status.running.as_ref().map(Running::shown),
            waiting: status.waiting,
        }
    }

    pub async fn end(&self) {
        self.shared.closing.cancel();
        self.done.cancelled().await;
    }
}

/// A place among the shells, given back when no shell comes of it.
pub(super) struct Slot {
    inner: Arc<Inner>,
    pub n: u64,
    pub log: Ulid,
}

impl Slot {
    pub fn take(inner: &Arc<Inner>, now: Timestamp) -> Result<Slot, ShellError> {
        let mut registry = inner.registry();
        let max = inner.limits.shells_max;
        if registry.closed || registry.shells.len() + registry.making >= max {
            return Err(ShellError::TooMany { max });
        }
        registry.making += 1;
        let n = registry.next;
        registry.next += 1;
        let log = registry.ids.next(now);
        Ok(Slot { inner: Arc::clone(inner), n, log })
    }

    /// Puts a running shell in the place and lets it serve.
    pub fn fill(
        self,
        driver: Driver,
        shared: Arc<ShellState>,
        fence: Fence,
        workspace: Option<Arc<ShellWorkspace>>,
    ) -> Entry {
        let (orders, queue) = mpsc::channel(self.inner.limits.waiting_max.max(1));
        let (fence, done) = (Arc::new(fence), CancellationToken::new());
        let entry = Entry { n: self.n, orders, shared, fence, workspace, done };
        let id = entry.shared.id.clone();
        let mut registry = self.inner.registry();
        if registry.closed {
            entry.shared.closing.cancel();
        }
        registry.shells.insert(id.clone(), entry.clone());
        drop(registry);
        // Whoever waits for the end gets it also where the driver panics.
        let (inner, done) = (Arc::clone(&self.inner), entry.done.clone().drop_guard());
        tokio::spawn(async move {
            let end = driver.serve(queue).await;
            inner.registry().gone(id, end);
            drop(done);
        });
        entry
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.inner.registry().making -= 1;
    }
}
