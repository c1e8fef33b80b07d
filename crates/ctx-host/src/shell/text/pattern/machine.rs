//! Steps through a pattern, one byte after the other, that are worked out once.
//!
//! A state is the set of all places in the pattern that the ways so far have reached. Where it leads with a byte is
//! remembered, so that ordinary text costs a look into a table for each byte, whatever the size of the pattern. The table
//! is bounded; a pattern with too many states is worked out again and again, and the caller says how much of that it may be.

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::look::LookSet;
use regex_automata::util::primitives::StateID;

/// As much as the table may take.
const TABLE_BYTES_MAX: usize = 4 << 20;
/// So many different surroundings of a place are in the table: others are seldom, and worked out each time.
const SURROUNDINGS_MAX: usize = 8;
/// A step that was not worked out yet.
const UNKNOWN: u32 = u32::MAX;

/// The ways so far. The first one has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ways(u32);

impl Ways {
    pub const NONE: Ways = Ways(0);
}

/// What a step found out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The ways behind the byte.
    pub ways: Ways,
    /// Whether a match ends before the byte.
    pub has_ended: bool,
}

/// A pattern, and what is known about its steps.
#[derive(Debug)]
pub(super) struct Machine {
    nfa: NFA,
    first: First,
    /// What stands around a place matters to the pattern in this.
    looks: LookSet,
    surroundings: Vec<LookSet>,
    /// How many surroundings the table has room for.
    wide: usize,
    /// For each state, surrounding and class of bytes.
    steps: Vec<u32>,
    sets: Vec<Arc<[StateID]>>,
    numbers: HashMap<Arc<[StateID]>, u32>,
    set_bytes: usize,
    /// How often the table was emptied.
    forgotten: u64,
    closed: Places,
    next: Places,
    todo: Vec<StateID>,
    /// How many places were looked at to work out steps.
    work: u64,
}

impl Machine {
    pub fn new(nfa: &NFA) -> Machine {
        let (looks, places) = (nfa.look_set_any(), nfa.states().len());
        let wide = u32::try_from(looks.len()).ok().and_then(|looks| 2usize.checked_pow(looks));
        let mut machine = Machine {
            nfa: nfa.clone(),
            first: First { bytes: [false; 256], may_be_empty: false },
            looks,
            surroundings: Vec::new(),
            wide: wide.unwrap_or(SURROUNDINGS_MAX).min(SURROUNDINGS_MAX),
            steps: Vec::new(),
            sets: Vec::new(),
            numbers: HashMap::new(),
            set_bytes: 0,
            forgotten: 0,
            closed: Places::new(places),
            next: Places::new(places),
            todo: Vec::new(),
            work: 0,
        };
        machine.first = machine.first();
        machine.forget();
        machine
    }

    /// How much was worked out so far.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether a match may begin with this byte, whatever stands around it.
    pub fn may_begin(&self, byte: u8) -> bool {
        self.first.may_begin(byte)
    }

    /// Goes over the byte at a place. Nothing where this is not known, and working it out is more than may be done.
    pub fn step(&mut self, ways: Ways, bytes: &[u8], at: usize, work_max: u64) -> Option<Step> {
        let &byte = bytes.get(at)?;
        let looks = self.looks_at(bytes, at);
        let index = self.index(ways, looks, byte);
        let known = index.and_then(|index| self.steps.get(index)).copied().unwrap_or(UNKNOWN);
        if known != UNKNOWN {
            return Some(Step { ways: Ways(known >> 1), has_ended: known & 1 == 1 });
        }
        if self.work >= work_max {
            return None;
        }
        let has_ended = self.close(ways, looks);
        self.next.clear();
        for place in self.closed.iter() {
            if let Some(to) = follow(self.nfa.state(place), byte) {
                self.next.insert(to);
            }
        }
        self.work += self.closed.list.len() as u64;
        let forgotten = self.forgotten;
        let to = self.number();
        // Where all was forgotten, the place in the table is another's.
        if self.forgotten == forgotten
            && let Some(step) = index.and_then(|index| self.steps.get_mut(index))
        {
            *step = to << 1 | u32::from(has_ended);
        }
        Some(Step { ways: Ways(to), has_ended })
    }

    /// Whether a match ends at this place.
    pub fn ends(&mut self, ways: Ways, bytes: &[u8], at: usize) -> bool {
        let looks = self.looks_at(bytes, at);
        self.close(ways, looks)
    }

    /// Which of the pattern's conditions are true at a place.
    fn looks_at(&self, bytes: &[u8], at: usize) -> LookSet {
        let mut looks = LookSet::empty();
        if !self.looks.is_empty() {
            let matcher = self.nfa.look_matcher();
            for look in self.looks.iter().filter(|look| matcher.matches(*look, bytes, at)) {
                looks.set_insert(look);
            }
        }
        looks
    }

    /// The place of a step in the table.
    fn index(&mut self, ways: Ways, looks: LookSet, byte: u8) -> Option<usize> {
        let around = match self.surroundings.iter().position(|known| *known == looks) {
            Some(around) => around,
            None if self.surroundings.len() == self.wide => return None,
            None => {
                self.surroundings.push(looks);
                self.surroundings.len() - 1
            }
        };
        let classes = self.nfa.byte_classes();
        let row = (ways.0 as usize) * self.wide + around;
        Some(row * classes.alphabet_len() + usize::from(classes.get(byte)))
    }

    /// Finds all places that can be reached without another byte, also by a way that begins here; says whether the end is
    /// among them. Ways that go on behind a match are dropped: the next one begins behind it.
    fn close(&mut self, ways: Ways, looks: LookSet) -> bool {
        self.closed.clear();
        let mut has_ended = false;
        if let Some(set) = self.sets.get(ways.0 as usize).cloned() {
            for place in set.iter() {
                has_ended |= self.enter(*place, looks);
            }
        }
        if has_ended {
            self.closed.clear();
        }
        self.enter(self.nfa.start_anchored(), looks) | has_ended
    }

    fn enter(&mut self, place: StateID, looks: LookSet) -> bool {
        let mut has_ended = false;
        self.todo.push(place);
        while let Some(place) = self.todo.pop() {
            self.work += 1;
            if !self.closed.insert(place) {
                continue;
            }
            match self.nfa.state(place) {
                State::Look { look, next } if looks.contains(*look) => self.todo.push(*next),
                State::Match { .. } => has_ended = true,
                state => reach(state, &mut self.todo),
            }
        }
        has_ended
    }

    /// The number of the state that was found.
    fn number(&mut self) -> u32 {
        self.next.list.sort_unstable();
        if let Some(number) = self.numbers.get(self.next.list.as_slice()) {
            return *number;
        }
        let set: Arc<[StateID]> = self.next.list.as_slice().into();
        if self.steps.len() * size_of::<u32>() + self.set_bytes > TABLE_BYTES_MAX {
            self.forget();
        }
        self.add(set)
    }

    fn add(&mut self, set: Arc<[StateID]>) -> u32 {
        let number = u32::try_from(self.sets.len()).unwrap_or(0);
        let row = self.wide * self.nfa.byte_classes().alphabet_len();
        self.steps.resize(self.steps.len() + row, UNKNOWN);
        self.set_bytes += size_of_val(&*set) + 64;
        self.work += (row / 16) as u64;
        self.sets.push(Arc::clone(&set));
        self.numbers.insert(set, number);
        number
    }

    fn forget(&mut self) {
        self.steps.clear();
        self.sets.clear();
        self.numbers.clear();
        self.set_bytes = 0;
        self.forgotten += 1;
        // The first one is that of no ways.
        self.add(Arc::from([]));
    }

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

    fn clear(&mut self) {
        self.list.clear();
    }
}
