//! A regular expression that is looked for in lines of any length.
//!
//! A line that can be held is searched at once. A longer one, such as a file of JSON without line ends, goes through
//! `seek`, which sees all of it and holds a few bytes; `long` keeps the place of the match.

mod long;
mod machine;
mod seek;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;

use machine::Machine;

pub use long::{Found, LongLine, Piece};

/// The longest pattern.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// A line of more bytes is not held to be searched, and is shown in a piece.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// As much as is shown of a line that is not shown whole.
pub const PIECE_BYTES: usize = 2_048;
/// What looking through long lines may cost where others wait for it, in places of the pattern that are looked at: less than a
/// second. Few patterns come near to it, and these only in texts that lead them to ever new states.
pub const WORK_MAX: u64 = 1 << 25;
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A pattern that was checked and compiled.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    nfa: NFA,
    /// What was learned from the long line before.
    machine: Arc<Mutex<Option<Machine>>>,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("is empty or longer than {PATTERN_BYTES_MAX} bytes; give a shorter one")]
    Length,
    /// With a drawing that shows where, of which the last line is the reason in words.
    #[error("is not a regular expression: {}; escape special characters with a backslash", last_line(.0))]
    Syntax(String),
}

impl Pattern {
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::Length);
        }
        let regex = RegexBuilder::new(text)
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|error| PatternError::Syntax(error.to_string()))?;
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(REGEX_BYTES_MAX));
        let nfa = thompson::Compiler::new()
            .syntax(syntax::Config::new().utf8(false))
            .configure(config)
            .build(text)
            .map_err(|error| PatternError::Syntax(error.to_string()))?;
        Ok(Pattern { regex, nfa, machine: Arc::default() })
    }

    /// Whether it is in a line that is held.
    pub fn is_match(&self, line: &[u8]) -> bool {
        self.regex.is_match(line)
    }

    /// Where it is in a text that is held, each behind the one before.
    pub fn matches(&self, text: &[u8]) -> impl Iterator<Item = Range<usize>> {
        self.regex.find_iter(text).map(|found| found.range())
    }

    fn take_machine(&self) -> Machine {
        let kept = self.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.unwrap_or_else(|| Machine::new(&self.nfa))
    }

    fn keep_machine(&self, machine: Machine) {
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = Some(machine);
    }

    /// Where the first match ends.
    pub fn match_end(&self, line: &[u8]) -> Option<usize> {
        self.regex.find(line).map(|found| found.end())
    }
}

fn last_line(drawing: &str) -> &str {
    drawing.lines().next_back().unwrap_or_default().trim_start_matches("error: ")
}

/// The piece of a text around a place in it, of at most `bytes` bytes, and where it begins.
pub fn around(text: &str, place: usize, bytes: usize) -> (usize, &str) {
    let before = place.saturating_sub(bytes / 2);
    // Where the text ends soon, there is room for more before.
    let from = text.ceil_char_boundary(before.min(text.len().saturating_sub(bytes)));
    let to = text.floor_char_boundary(from.saturating_add(bytes));
    (from, text.get(from..to).unwrap_or_default())
}
