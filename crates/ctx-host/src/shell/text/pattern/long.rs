//! A line that is too long to be held: the piece of it where the pattern matches, and how long it is.

use super::seek::{Ends, Seeker, Sought};
use super::{PIECE_BYTES, Pattern};

/// How much is held on each side of a match: what may be shown, and so much more that a secret which a piece would cut is
/// seen in it.
const HELD_BYTES: usize = PIECE_BYTES + (16 << 10);
/// The line is looked at in steps of this size.
const STEP_BYTES: usize = 16 << 10;

/// A line that is being read.
#[derive(Debug)]
pub struct LongLine {
    pattern: Pattern,
    seeker: Seeker,
    ends: Ends,
    /// The beginning of the line.
    begin: String,
    /// What stands around the match, or the last that was read while there is none.
    near: Piece,
    bytes: u64,
    chars: u64,
    work_before: u64,
}

/// A part of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    /// Where it begins in the line.
    pub bytes_before: u64,
    pub chars_before: u64,
    /// Where in the text the match ends.
    pub place: usize,
}

/// A line that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Around the first match; nothing where there is none.
    pub near: Option<Piece>,
    pub begin: Piece,
    /// Where the last match ends in the line.
    pub last_end: Option<u64>,
    pub bytes: u64,
    pub chars: u64,
    /// How much work it was.
    pub work: u64,
    /// Whether that was too much, and the rest of the line was not looked at.
    pub has_given_up: bool,
}

impl LongLine {
    /// A line that begins here, or goes on behind these bytes. Where looking through it is more work than this, it is
    /// looked at in part.
    pub fn new(pattern: &Pattern, before: &[u8], work: u64) -> LongLine {
        let machine = pattern.take_machine();
        LongLine {
            pattern: pattern.clone(),
            work_before: machine.work(),
            seeker: Seeker::new(machine, before, work),
            ends: Ends::default(),
            begin: String::new(),
            near: Piece::default(),
            bytes: 0,
            chars: 0,
        }
    }

    /// Whether the pattern was found.
    pub fn is_found(&self) -> bool {
        self.ends.first.is_some()
    }

    /// Takes the next piece of the line.
    pub fn push(&mut self, mut text: &str) {
        while !text.is_empty() {
            let at = text.ceil_char_boundary(STEP_BYTES);
            let (step, rest) = text.split_at_checked(at).unwrap_or((text, ""));
            self.step(step);
            text = rest;
        }
    }

    fn step(&mut self, text: &str) {
        if self.begin.len() < HELD_BYTES {
            let len = text.ceil_char_boundary(HELD_BYTES - self.begin.len());
            self.begin.push_str(text.get(..len).unwrap_or(text));
        }
        self.bytes += text.len() as u64;
        self.chars += text.chars().count() as u64;
        if !self.is_enough() {
            self.near.text.push_str(text);
        }
        self.ends = self.seeker.push(text.as_bytes());
        if self.ends.first.is_none() {
            let old = self.near.text.len().saturating_sub(HELD_BYTES);
            // Seldom, so that each byte is moved once in a few steps.
            if old > STEP_BYTES {
                self.drop_front(old);
            }
        }
    }

    /// Whether all that may be shown behind the match was read.
    fn is_enough(&self) -> bool {
        let read = self.near.bytes_before + self.near.text.len() as u64;
        self.ends.first.is_some_and(|end| read >= end + HELD_BYTES as u64)
    }

    fn drop_front(&mut self, bytes: usize) {
        let len = self.near.text.floor_char_boundary(bytes);
        let gone = self.near.text.drain(..len);
        self.near.chars_before += gone.as_str().chars().count() as u64;
        self.near.bytes_before += len as u64;
    }

    /// Ends the line.
    pub fn finish(self) -> Found {
        let LongLine { pattern, seeker, begin, mut near, bytes, chars, work_before, .. } = self;
        let Sought { ends, has_given_up, machine } = seeker.finish();
        let work = machine.work().saturating_sub(work_before);
        pattern.keep_machine(machine);
        let place = ends.first.map(|end| end.saturating_sub(near.bytes_before));
        near.place = place.and_then(|place| usize::try_from(place).ok()).unwrap_or(0);
        Found {
            near: ends.first.map(|_| near),
            begin: Piece { text: begin, ..Piece::default() },
            last_end: ends.last,
            bytes,
            chars,
            work,
            has_given_up,
        }
    }
}
