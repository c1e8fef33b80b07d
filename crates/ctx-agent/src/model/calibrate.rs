//! How a model's provider counts tokens beside our estimate, learned from its answers. In memory alone: it is learned again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Requests that are taken for fewer tokens say little: what a provider adds to each is too large a part of them.
const TOKENS_MIN: u64 = 500;
/// How far a count can be from our estimate and be believed.
const BOUNDS: (f64, f64) = (0.5, 3.0);
/// How much a new answer counts beside all before it.
const WEIGHT: f64 = 0.5;
/// Models that count as we do, or as a test tells them to.
const OWN: &str = "debug/";

/// Tokens that a provider counts for one of our estimate, by model.
#[derive(Debug, Default)]
pub struct Calibration(Mutex<HashMap<String, f64>>);

impl Calibration {
    /// The provider counted so many tokens for a request that we took for `estimated`.
    pub fn learn(&self, model: &str, estimated: u64, counted: u64) {
        if model.starts_with(OWN) || estimated < TOKENS_MIN || counted == 0 {
            return;
        }
        let seen = (counted as f64 / estimated as f64).clamp(BOUNDS.0, BOUNDS.1);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let factor = known.entry(model.to_owned()).or_insert(seen);
        *factor += (seen - *factor) * WEIGHT;
    }

    /// A window in tokens as we estimate them.
    pub fn in_ours(&self, model: &str, window: u64) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).map_or(window, |factor| (window as f64 / factor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_as_large_as_the_provider_counts() {
        let learned = Calibration::default();
        assert_eq!(learned.in_ours("a/b", 8000), 8000, "nothing is known yet");
        learned.learn("a/b", 1000, 2000);
        assert_eq!(learned.in_ours("a/b", 8000), 4000);
        learned.learn("a/b", 1000, 1000);
        assert_eq!(learned.in_ours("a/b", 9000), 6000, "between the two");
        assert_eq!(learned.in_ours("a/c", 8000), 8000, "another model counts in its own way");
        learned.learn("a/c", 1000, 1_000_000);
        assert_eq!(learned.in_ours("a/c", 9000), 3000, "no further than is believed");
        for (estimated, counted) in [(10, 1000), (1000, 0)] {
            learned.learn("a/d", estimated, counted);
        }
        learned.learn("debug/script", 1000, 5000);
        assert_eq!((learned.in_ours("a/d", 10), learned.in_ours("debug/script", 10)), (10, 10));
    }
}
