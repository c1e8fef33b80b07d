//! Compares a log with what the audit log has of it. Pure.
//!
//! A line of the audit log names a record by its seq and has the time of its commit. So the last line of a log says
//! which record must stand there; what comes after it has not been audited. Where another record stands there, or none,
//! the log was cut short or replaced since, and new records have old seqs: then only all its lines say what has
//! been audited.
//!
//! What cannot be known: of two commits with the same seq, the same event and the same millisecond, the second is
//! taken for the first. And what was cut off stays in the audit log, for it happened.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use ctx_journal::Entry;
use ctx_session::record::Kind;
use ctx_session::{Body, Timestamp};
use serde::{Deserialize, Serialize};

use super::EventName;
use super::map::AuditEvent;
use super::writer::Whose;

/// What has been audited of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Audited {
    /// Every event up to this seq has been.
    pub through: u64,
    /// The last record that has a line, and the time of its commit.
    pub at: u64,
    pub time: Timestamp,
}

/// How a log stands to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is nothing to audit.
    Audited,
    /// It has gone on.
    More,
    /// It is not the log that was audited of.
    Other,
}

/// A log while it is read from its end.
pub(super) struct Look {
    audited: Option<Audited>,
    more: bool,
    fits: bool,
}

impl Look {
    pub fn new(audited: Option<Audited>) -> Look {
        Look { audited, more: false, fits: audited.is_none() }
    }

    /// Takes the next record, from the last backwards.
    pub fn take(&mut self, entry: &Entry) -> ControlFlow<()> {
        let is_audited = Body::kind(&entry.kind).is_some_and(Kind::is_audited);
        let Some(audited) = self.audited else {
            self.more |= is_audited;
            return if self.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        };
        self.more |= is_audited && entry.seq > audited.through;
        if entry.seq > audited.at {
            return ControlFlow::Continue(());
        }
        self.fits = entry.seq == audited.at && entry.time == audited.time;
        ControlFlow::Break(())
    }

    pub fn finish(&self) -> Standing {
        match (self.fits, self.more || self.audited.is_none()) {
            (false, _) => Standing::Other,
            (true, true) => Standing::More,
            (true, false) => Standing::Audited,
        }
    }
}

/// Every line of the audit log, by its record. Gathered only when a log turns out to be another.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_log: HashMap<Whose, HashSet<(u64, u64, EventName)>>,
}

impl Lines {
    pub fn add(&mut self, whose: Whose, seq: u64, time: Timestamp, event: EventName) {
        self.by_log.entry(whose).or_default().insert((seq, time.as_millis(), event));
    }

    pub fn extend(&mut self, more: Lines) {
        for (whose, lines) in more.by_log {
            self.by_log.entry(whose).or_default().extend(lines);
        }
    }

    /// Whether an event of a commit of this time has a line.
    pub fn have(&self, event: &AuditEvent, time: Timestamp) -> bool {
        let (whose, seq) = event.record.place();
        self.by_log.get(&whose).is_some_and(|audited| audited.contains(&(seq, time.as_millis(), event.event)))
    }
}
