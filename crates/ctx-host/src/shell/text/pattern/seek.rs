//! Looks for a pattern in a line that comes in pieces, without holding it.
//!
//! It follows all ways through the pattern at once, one byte after the other, and a match may be as long as the line. (The
//! regex crate wants the whole text.)

use super::machine::{Machine, Ways};

/// What stands around a place decides `^`, `$` and `\b`: a character on each side.
const AROUND_BYTES: usize = 4;
/// Bytes that are behind are dropped when there are so many of them.
const BEHIND_BYTES_MAX: usize = 64 << 10;

/// A search under way.
#[derive(Debug)]
pub(super) struct Seeker {
    machine: Machine,
    ways: Ways,
    /// The last bytes that were looked at, and those that were not yet.
    bytes: Vec<u8>,
    /// The byte to look at.
    at: usize,
    /// How many bytes were dropped.
    dropped: u64,
    /// How many of all bytes stand before the line.
    before: u64,
    ends: Ends,
    /// What the machine may have worked out in the end.
    work_max: u64,
    /// Whether that was too little to look at the whole line.
    has_given_up: bool,
}

/// Where matches end, in bytes of the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub first: Option<u64>,
    pub last: Option<u64>,
}

/// A search that is over.
#[derive(Debug)]
pub(super) struct Sought {
    pub ends: Ends,
    pub has_given_up: bool,
    /// For the next line.
    pub machine: Machine,
}

impl Seeker {
    /// Begins a line, or goes on within one behind these bytes, and gives up where it is more work than this.
    pub fn new(machine: Machine, before: &[u8], work: u64) -> Seeker {
        Seeker {
            work_max: machine.work().saturating_add(work),
            machine,
            ways: Ways::NONE,
            bytes: before.to_vec(),
            at: before.len(),
            dropped: 0,
            before: before.len() as u64,
            ends: Ends::default(),
            has_given_up: false,
        }
    }

    /// Takes the next bytes of the line.
    pub fn push(&mut self, bytes: &[u8]) -> Ends {
        if self.has_given_up {
            return self.ends;
        }
        self.bytes.extend_from_slice(bytes);
        // What follows a byte may decide whether it ends a match.
        self.advance(self.bytes.len().saturating_sub(AROUND_BYTES));
        if self.at > BEHIND_BYTES_MAX {
            let gone = self.at - AROUND_BYTES;
            self.bytes.drain(..gone);
            self.at -= gone;
            self.dropped += gone as u64;
        }
        self.ends
    }

    /// Ends the line.
    pub fn finish(mut self) -> Sought {
        self.advance(self.bytes.len());
        if !self.has_given_up && self.machine.ends(self.ways, &self.bytes, self.at) {
            self.found();
        }
        Sought { ends: self.ends, has_given_up: self.has_given_up, machine: self.machine }
    }

    fn advance(&mut self, end: usize) {
        while self.at < end && !self.has_given_up {
            let Some(&byte) = self.bytes.get(self.at) else { return };
            if self.ways == Ways::NONE && !self.machine.may_begin(byte) {
                self.at += 1;
                continue;
            }
            match self.machine.step(self.ways, &self.bytes, self.at, self.work_max) {
                Some(step) => {
                    if step.has_ended {
                        self.found();
                    }
                    self.ways = step.ways;
                    self.at += 1;
                }
                None => self.has_given_up = true,
            }
        }
    }

    fn found(&mut self) {
        let end = (self.dropped + self.at as u64).saturating_sub(self.before);
        self.ends = Ends { first: self.ends.first.or(Some(end)), last: Some(end) };
    }
}
