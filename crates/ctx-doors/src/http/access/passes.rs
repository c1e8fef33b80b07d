//! Passes that are good once and for a short time: login codes and tickets. Kept in memory, by hash.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctx_engine::Caller;
use ctx_session::Ulid;

use super::Hash;

/// Passes of one user that may wait at a time; the oldest goes for a new one.
const WAITING_MAX: usize = 256;

pub(super) struct Passes {
    life: Duration,
    table: Mutex<HashMap<Hash, Pass>>,
}

#[derive(Clone, Copy)]
struct Pass {
    caller: Caller,
    /// The token it was made with.
    token: Option<Ulid>,
    made: Instant,
}

impl Passes {
    pub fn new(life: Duration) -> Passes {
        Passes { life, table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hash, Pass>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pass and drops those that are too old: one that is never shown is dropped nowhere else.
    pub fn add(&self, hash: Hash, caller: Caller, token: Option<Ulid>, now: Instant) {
        let mut table = self.lock();
        table.retain(|_, pass| now.saturating_duration_since(pass.made) < self.life);
        let own = || table.iter().filter(|(_, pass)| pass.caller.uid == caller.uid);
        if own().count() >= WAITING_MAX
            && let Some(oldest) = own().min_by_key(|(_, pass)| pass.made).map(|(hash, _)| *hash)
        {
            table.remove(&oldest);
        }
        table.insert(hash, Pass { caller, token, made: now });
    }

    /// Takes a pass out: the second who shows it has none.
    pub fn take(&self, hash: &Hash, now: Instant) -> Option<(Caller, Option<Ulid>)> {
        let pass = self.lock().remove(hash)?;
        let good = now.saturating_duration_since(pass.made) < self.life;
        good.then_some((pass.caller, pass.token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_once_and_for_its_time() {
        let passes = Passes::new(Duration::from_secs(60));
        let caller = Caller { uid: 1, gid: 1 };
        let start = Instant::now();
        passes.add([1; 32], caller, None, start);
        passes.add([2; 32], caller, None, start);
        let late = start + Duration::from_secs(60);
        assert_eq!(passes.take(&[1; 32], start + Duration::from_secs(59)), Some((caller, None)));
        assert_eq!(passes.take(&[1; 32], start), None);
        assert_eq!(passes.take(&[2; 32], late), None);
        assert_eq!(passes.take(&[3; 32], start), None);
    }

    #[test]
    fn passes_that_nobody_takes_do_not_pile_up() {
        let passes = Passes::new(Duration::from_secs(60));
        let caller = Caller { uid: 1, gid: 1 };
        let start = Instant::now();
        for n in 0..WAITING_MAX + 10 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&n.to_le_bytes());
            passes.add(hash, caller, None, start);
        }
        assert_eq!(passes.lock().len(), WAITING_MAX);
        let other = Caller { uid: 2, gid: 2 };
        passes.add([255; 32], other, None, start);
        assert_eq!(passes.lock().len(), WAITING_MAX + 1, "another user's passes stay");
    }
}
