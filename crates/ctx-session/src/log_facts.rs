//! What a session's log tells about itself, besides the session: records that are missing, and how often clients came.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Records that a damaged log has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// And so many between two messages, so that a log grows by what is said and not by who looks on.
pub(crate) const ATTACHES_BETWEEN_MAX: usize = 5_000;

/// When clients attached last, oldest first; and how many have since the newest message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attaches {
    times: VecDeque<Timestamp>,
    since_message: usize,
}

impl Attaches {
    pub fn add(&mut self, time: Timestamp) {
        self.since_message = self.since_message.saturating_add(1);
        self.times.push_back(time);
        if self.times.len() > ATTACHES_MAX {
            self.times.pop_front();
        }
    }

    /// A message was posted.
    pub fn message(&mut self) {
        self.since_message = 0;
    }

    pub fn since_message(&self) -> usize {
        self.since_message
    }

    /// How many there were within the last minute.
    pub fn lately(&self, now: Timestamp) -> usize {
        self.times.iter().rev().take_while(|time| now.millis_since(**time) < 60_000).count()
    }
}
