//! The relays there are: one for each session that someone listens to, or did a short while ago.
//!
//! Those of one user together hold no more than one bound; over it, the one that has been alone longest goes first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ctx_api::ws::Closing;
use ctx_engine::{Caller, Engine, Follow};
use ctx_session::{Refusal, SessionId, StateName};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::relay::{Bounds, Relay};

/// Every relay. Cloning it is cheap.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    relays: Mutex<HashMap<SessionId, Arc<Relay>>>,
    bytes: AtomicIsize,
    tasks: TaskTracker,
    /// Nobody is let in any more.
    stopping: CancellationToken,
    /// Those who are here go.
    closing: CancellationToken,
}

/// Someone's place at a relay, given back when it is dropped.
pub(super) struct Seat {
    pub relay: Arc<Relay>,
    hub: Hub,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.relay.leave(Instant::now());
    }
}

impl Seat {
    /// Up to where an attached operator has been sent frames; None: they go.
    pub fn sent(&self, at: Option<u64>) {
        let grown = self.relay.sent(at);
        self.hub.inner.bytes.fetch_add(grown, Ordering::Relaxed);
    }
}

impl Hub {
    /// `closing`: the daemon lets its clients go.
    pub fn new(engine: Engine, closing: CancellationToken) -> Hub {
        let (relays, bytes, tasks) = (Mutex::default(), AtomicIsize::new(0), TaskTracker::new());
        let stopping = closing.child_token();
        Hub { inner: Arc::new(Inner { engine, relays, bytes, tasks, stopping, closing }) }
    }

    /// From here on nobody is let in: a session that is left already would be taken up again for each who comes.
    pub fn let_nobody_in(&self) {
        self.inner.stopping.cancel();
    }

    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    /// Connections that are being served; the daemon lets them say goodbye.
    pub fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    fn relays(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Relay>>> {
        self.inner.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at a session's relay, which begins now if there is none.
    pub(super) async fn enter(&self, caller: Caller, id: SessionId) -> Result<Seat, Refusal> {
        let summary = self.inner.engine.find(caller, id)?;
        if let Some(seat) = self.seat(id) {
            return Ok(seat);
        }
        let over = closing_of(summary.state).filter(|_| summary.state.is_over());
        let follow = match over {
            Some(_) => None,
            None => Some(self.inner.engine.follow_from_now(caller, id).await?),
        };
        let limits = self.inner.engine.limits();
        let bounds = Bounds { bytes: limits.reattach_bytes, tail_bytes: limits.live_ring_bytes };
        let relay = Arc::new(Relay::new((id, summary.meta.owner), self.inner.engine.new_id(), bounds, over));
        let mut relays = self.relays();
        // Someone else may have been faster: theirs has the frames since then.
        if let Some(there) = relays.get(&id).filter(|there| there.enter()).cloned() {
            return Ok(Seat { relay: there, hub: self.clone() });
        }
        relay.enter();
        relays.insert(id, relay.clone());
        drop(relays);
        let owner = Caller { uid: summary.meta.owner, gid: caller.gid };
        tokio::spawn(pump(Arc::downgrade(&self.inner), relay.clone(), follow, owner));
        Ok(Seat { relay, hub: self.clone() })
    }

    fn seat(&self, id: SessionId) -> Option<Seat> {
        let relay = self.relays().get(&id).filter(|relay| relay.enter()).cloned()?;
        Some(Seat { relay, hub: self.clone() })
    }

    /// Takes a relay out if nobody listens to it.
    fn remove(&self, relay: &Arc<Relay>) {
        let mut relays = self.relays();
        if let Some(held) = relay.let_go() {
            self.inner.bytes.fetch_sub(held.cast_signed(), Ordering::Relaxed);
        }
        if relay.is_gone() && relays.get(&relay.session).is_some_and(|there| Arc::ptr_eq(there, relay)) {
            relays.remove(&relay.session);
        }
    }

    /// Whoever comes next begins anew; those who listen still hear the end.
    fn replace(&self, relay: &Arc<Relay>) {
        let mut relays = self.relays();
        if relays.get(&relay.session).is_some_and(|there| Arc::ptr_eq(there, relay)) {
            relays.remove(&relay.session);
        }
    }

    /// While a user's relays together hold too much, the one that has been alone longest is let go.
    fn make_room(&self, owner: u32) {
        let max = self.inner.engine.limits().reattach_bytes_total;
        // Nobody can hold too much while all together do not.
        while usize::try_from(self.inner.bytes.load(Ordering::Relaxed)).unwrap_or(0) > max {
            let relays = self.relays();
            let own = || relays.values().filter(|relay| relay.owner == owner);
            if own().map(|relay| relay.bytes()).sum::<usize>() <= max {
                return;
            }
            let alone = own().filter_map(|relay| Some((relay.alone_since()?, relay)));
            let oldest = alone.min_by_key(|(since, _)| *since).map(|(_, relay)| relay.clone());
            drop(relays);
            match oldest {
                Some(relay) => self.remove(&relay),
                // Everyone who is left listens, and each is bounded.
                None => return,
            }
        }
    }
}

/// What those who listen are told when a session's events come to an end in this state.
fn closing_of(state: StateName) -> Option<Closing> {
    match state {
        StateName::Ended => Some(Closing::SessionEnded),
        StateName::Failed => Some(Closing::SessionFailed),
        StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => {
            Some(Closing::Shutdown)
        }
    }
}

/// Carries a session's events to its relay, until nobody has listened for too long.
async fn pump(hub: Weak<Inner>, relay: Arc<Relay>, mut follow: Option<Follow>, owner: Caller) {
    let Some(kept) = hub.upgrade().map(|inner| inner.engine.limits().reattach_ms) else { return };
    let kept = Duration::from_millis(kept);
    loop {
        let next = async {
            match &mut follow {
                Some(follow) => follow.next().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = next => event,
            () = forgotten(&relay, kept) => break,
        };
        let Some(inner) = hub.upgrade() else { return };
        let hub = Hub { inner };
        match event {
            // Frames that were never numbered would be missing in silence.
            Ok(Some(_)) if follow.as_ref().is_some_and(Follow::has_skipped) => {
                relay.end(Closing::ResumeFailed);
                hub.replace(&relay);
                follow = None;
            }
            Ok(Some(event)) => {
                let grown = relay.push(&event);
                hub.inner.bytes.fetch_add(grown.bytes, Ordering::Relaxed);
                if grown.overflowed {
                    break;
                }
                hub.make_room(relay.owner);
            }
            Ok(None) => {
                let state = hub.inner.engine.find(owner, relay.session).map(|summary| summary.state);
                relay.end(state.ok().and_then(closing_of).unwrap_or(Closing::SessionEnded));
                follow = None;
            }
            Err(refusal) => {
                tracing::warn!(session = %relay.session, %refusal, "a session's events cannot be followed");
                relay.end(Closing::ResumeFailed);
                hub.replace(&relay);
                follow = None;
            }
        }
    }
    if let Some(inner) = hub.upgrade() {
        Hub { inner }.remove(&relay);
    }
}

/// Returns when nobody has listened for that long, or the relay is out of use.
async fn forgotten(relay: &Relay, kept: Duration) {
    let mut changes = relay.changes();
    loop {
        changes.mark_unchanged();
        if relay.is_gone() {
            return;
        }
        match relay.alone_since() {
            None => {
                if changes.changed().await.is_err() {
                    return;
                }
            }
            Some(since) => tokio::select! {
                () = tokio::time::sleep_until(since + kept) => {
                    if relay.alone_since() == Some(since) {
                        return;
                    }
                }
                _ = changes.changed() => {}
            },
        }
    }
}
