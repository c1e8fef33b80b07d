//! Looks for a pattern in a line that comes in pieces, without holding it.
//!
//! It follows all ways through the pattern at once, one byte after the other: the time is the length of the line times
//! the size of the pattern, and a match may be as long as the line. (The regex crate wants the whole text.)

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

/// What stands around a place decides `^`, `$` and `\b`: a character on each side.
const AROUND_BYTES: usize = 4;
/// Bytes that are behind are dropped when there are so many of them.
const BEHIND_BYTES_MAX: usize = 64 << 10;

/// A search under way.
#[derive(Debug)]
pub(super) struct Seeker {
    nfa: NFA,
    first: First,
    /// Where the ways are that began before this byte.
    now: Places,
    next: Places,
    todo: Vec<StateID>,
    /// The last bytes that were looked at, and those that were not yet.
    bytes: Vec<u8>,
    /// The byte to look at.
    at: usize,
    /// How many bytes were dropped.
    dropped: u64,
    /// How many of all bytes stand before the line.
    before: u64,
    ends: Ends,
}

/// Where matches end, in bytes of the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub first: Option<u64>,
    pub last: Option<u64>,
}

impl Seeker {
    /// Begins a line, or goes on within one behind these bytes.
    pub fn new(nfa: &NFA, before: &[u8]) -> Seeker {
        let states = nfa.states().len();
        let mut seeker = Seeker {
            nfa: nfa.clone(),
            first: First { bytes: [false; 256], may_be_empty: false },
            now: Places::new(states),
            next: Places::new(states),
            todo: Vec::new(),
            bytes: before.to_vec(),
            at: before.len(),
            dropped: 0,
            before: before.len() as u64,
            ends: Ends::default(),
        };
        seeker.first = seeker.first();
        seeker
    }

    /// Takes the next bytes of the line.
    pub fn push(&mut self, bytes: &[u8]) -> Ends {
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
    pub fn finish(mut self) -> Ends {
        self.advance(self.bytes.len());
        let mut now = std::mem::take(&mut self.now);
        if self.enter(self.nfa.start_anchored(), &mut now) {
            self.found();
        }
        self.ends
    }

    fn advance(&mut self, end: usize) {
        while self.at < end {
            let Some(&byte) = self.bytes.get(self.at) else { return };
            if self.now.is_empty() && !self.first.may_begin(byte) {
                self.at += 1;
                continue;
            }
            self.step(byte);
        }
    }

    /// Goes over one byte.
    fn step(&mut self, byte: u8) {
        let (mut now, mut next) = (std::mem::take(&mut self.now), std::mem::take(&mut self.next));
        if self.enter(self.nfa.start_anchored(), &mut now) {
            self.found();
        }
        self.at += 1;
        let mut has_ended = false;
        for place in now.iter() {
            if let Some(to) = follow(self.nfa.state(place), byte) {
                has_ended |= self.enter(to, &mut next);
            }
        }
        if has_ended {
            self.found();
            next.clear();
        }
        now.clear();
        (self.now, self.next) = (next, now);
    }

    /// Adds a place and all that can be reached from it without another byte; says whether the end is among them.
    fn enter(&mut self, place: StateID, places: &mut Places) -> bool {
        let mut has_ended = false;
        self.todo.push(place);
        while let Some(place) = self.todo.pop() {
            if !places.insert(place) {
                continue;
            }
            match self.nfa.state(place) {
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, &self.bytes, self.at) {
                        self.todo.push(*next);
                    }
                }
                State::Match { .. } => has_ended = true,
                state => reach(state, &mut self.todo),
            }
        }
        has_ended
    }

    fn found(&mut self) {
        let end = (self.dropped + self.at as u64).saturating_sub(self.before);
        self.ends = Ends { first: self.ends.first.or(Some(end)), last: Some(end) };
    }

    /// What a match may begin with, whatever stands around it.
    fn first(&mut self) -> First {
        let mut first = First { bytes: [false; 256], may_be_empty: false };
        let mut seen = Places::new(self.nfa.states().len());
        self.todo.push(self.nfa.start_anchored());
        while let Some(place) = self.todo.pop() {
            if !seen.insert(place) {
                continue;
            }
            match self.nfa.state(place) {
                State::Look { next, .. } => self.todo.push(*next),
                State::Match { .. } => first.may_be_empty = true,
                state => {
                    for (byte, may) in (0..=u8::MAX).zip(first.bytes.iter_mut()) {
                        *may |= follow(state, byte).is_some();
                    }
                    reach(state, &mut self.todo);
                }
            }
        }
        first
    }
}

/// Where a byte leads.
fn follow(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(sparse) => sparse.matches_byte(byte),
        State::Dense(dense) => dense.matches_byte(byte),
        _ => None,
    }
}

/// Where a place leads without a byte and a condition.
fn reach(state: &State, todo: &mut Vec<StateID>) {
    match state {
        State::Union { alternates } => todo.extend_from_slice(alternates),
        State::BinaryUnion { alt1, alt2 } => todo.extend([*alt1, *alt2]),
        State::Capture { next, .. } => todo.push(*next),
        _ => {}
    }
}

/// The bytes that a match may begin with: others are passed over quickly.
#[derive(Debug)]
struct First {
    bytes: [bool; 256],
    may_be_empty: bool,
}

impl First {
    fn may_begin(&self, byte: u8) -> bool {
        self.may_be_empty || self.bytes.get(usize::from(byte)).copied().unwrap_or(true)
    }
}

/// A set of places in the pattern, which is emptied in no time.
#[derive(Debug, Default)]
struct Places {
    list: Vec<StateID>,
    /// Where in the list a place stands, if it is in it: what is here may be old.
    index: Vec<usize>,
}

impl Places {
    fn new(states: usize) -> Places {
        Places { list: Vec::new(), index: vec![0; states] }
    }

    /// Whether it is new.
    fn insert(&mut self, place: StateID) -> bool {
        let Some(index) = self.index.get_mut(place.as_usize()) else { return false };
        if self.list.get(*index) == Some(&place) {
            return false;
        }
        *index = self.list.len();
        self.list.push(place);
        true
    }

    fn iter(&self) -> impl Iterator<Item = StateID> {
        self.list.iter().copied()
    }

    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn clear(&mut self) {
        self.list.clear();
    }
}
