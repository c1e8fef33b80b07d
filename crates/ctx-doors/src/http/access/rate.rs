//! How often one token may ask: a bucket that fills evenly and holds a second's worth.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ctx_session::Ulid;

/// Buckets that are remembered before full ones are forgotten.
const BUCKETS_MAX: usize = 4_096;

pub(super) struct Rate {
    per_second: f64,
    buckets: Mutex<HashMap<Ulid, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    pub fn new(per_second: u32) -> Rate {
        Rate { per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// Takes one; false: there is none left at this moment.
    pub fn take(&self, id: Ulid, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX {
            // One that has filled up is as good as a new one.
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < Duration::from_secs(1));
        }
        let bucket = buckets.entry(id).or_insert(Bucket { left: self.per_second, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.per_second).min(self.per_second);
        bucket.at = now;
        let may = bucket.left >= 1.0;
        if may {
            bucket.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_seconds_worth_and_then_its_rate() {
        let rate = Rate::new(10);
        let start = Instant::now();
        assert_eq!((0..20).filter(|_| rate.take(Ulid(1), start)).count(), 10);
        assert!(rate.take(Ulid(2), start), "another token has its own");
        let later = start + Duration::from_millis(300);
        assert_eq!((0..20).filter(|_| rate.take(Ulid(1), later)).count(), 3);
    }
}
