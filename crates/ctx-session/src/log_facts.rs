//! What a session's log tells about itself, besides the session: records that are missing, and how often clients came.

use std::collections::VecDeque;

use crate::time::Timestamp;

/// Records that a damaged log has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    pub records: u64,
    pub since_seq: u64,
}

impl Missing {
    /// A record of this seq has come where another was due.
    pub(crate) fn note(missing: &mut Option<Missing>, due: u64, seq: u64) {
        if let Some(gap) = seq.checked_sub(due).filter(|gap| *gap > 0) {
            let missing = missing.get_or_insert(Missing { records: 0, since_seq: due });
            missing.records = missing.records.saturating_add(gap);
        }
    }
}

/// So many clients may attach within a minute: each is two records in the log, for ever, and a client that cannot stay
/// comes again at once.
pub(crate) const ATTACHES_MAX: usize = 600;

/// When clients attached last, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attaches(VecDeque<Timestamp>);

impl Attaches {
    pub fn add(&mut self, time: Timestamp) {
        self.0.push_back(time);
        if self.0.len() > ATTACHES_MAX {
            self.0.pop_front();
        }
    }

    /// How many there were within the last minute.
    pub fn lately(&self, now: Timestamp) -> usize {
        self.0.iter().rev().take_while(|time| now.millis_since(**time) < 60_000).count()
    }
}
