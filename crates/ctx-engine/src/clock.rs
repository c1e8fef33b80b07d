//! Time and fresh ids, handed in so that tests can hold them still.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ctx_session::{IdSource, Timestamp, Ulid};

/// Tells the time. The only place in ctx's libraries that asks the system for it is [`SystemClock`].
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock and the daemon's one source of ids.
pub struct Fresh {
    clock: Box<dyn Clock>,
    ids: Mutex<IdSource>,
}

impl Fresh {
    pub fn new(clock: impl Clock, seed: u64) -> Fresh {
        Fresh { clock: Box::new(clock), ids: Mutex::new(IdSource::new(seed)) }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn ids(&self) -> MutexGuard<'_, IdSource> {
        // A source that a panic interrupted still only grows.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn id(&self) -> Ulid {
        let now = self.now();
        self.ids().next(now)
    }
}
