//! How much output a client of a door gets: a token bucket. Pure; the time comes in.

use std::time::{Duration, Instant};

/// What was said of some output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    Send,
    /// Drop it; the client is told when this begins.
    Drop {
        begins: bool,
    },
}

/// The bucket of one client: a second's worth, filled steadily.
#[derive(Debug, Clone)]
pub struct Rate {
    per_second: u64,
    left: u64,
    filled: Instant,
    throttled: bool,
}

impl Rate {
    pub fn new(per_second: u64, now: Instant) -> Rate {
        Rate { per_second, left: per_second, filled: now, throttled: false }
    }

    /// Whether so many bytes may be sent now. Once one piece is dropped all are, until [`Rate::caught_up`].
    pub fn allow(&mut self, bytes: u64, now: Instant) -> Allowed {
        self.fill(now);
        if self.throttled || self.left < bytes.min(self.per_second) {
            return Allowed::Drop { begins: !std::mem::replace(&mut self.throttled, true) };
        }
        self.left = self.left.saturating_sub(bytes);
        Allowed::Send
    }

    /// When a throttled client gets its fresh screen: when half of the bucket is full again. None: it is not throttled.
    pub fn due(&self) -> Option<Instant> {
        let missing = (self.per_second / 2).saturating_sub(self.left);
        let wait = Duration::from_micros(missing * 1_000_000 / self.per_second.max(1));
        self.throttled.then(|| self.filled + wait)
    }

    /// The fresh screen is on its way.
    pub fn caught_up(&mut self, now: Instant) {
        self.fill(now);
        self.throttled = false;
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        let gained =
            u64::try_from(passed.as_micros()).unwrap_or(u64::MAX).saturating_mul(self.per_second) / 1_000_000;
        if gained > 0 {
            self.left = self.left.saturating_add(gained).min(self.per_second);
            self.filled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_rate_is_dropped_until_a_fresh_screen_is_due() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut rate = Rate::new(1_000, start);
        assert_eq!(rate.allow(900, at(0)), Allowed::Send);
        assert_eq!(rate.due(), None);
        assert_eq!(rate.allow(200, at(10)), Allowed::Drop { begins: true });
        assert_eq!(rate.allow(1, at(20)), Allowed::Drop { begins: false });
        assert_eq!(rate.due(), Some(at(400)));
        rate.caught_up(at(400));
        assert_eq!(rate.allow(500, at(400)), Allowed::Send);
        // One frame may be larger than the bucket; it takes all of it.
        assert_eq!(rate.allow(5_000, at(5_000)), Allowed::Send);
        assert_eq!(rate.allow(1, at(5_000)), Allowed::Drop { begins: true });
    }
}
