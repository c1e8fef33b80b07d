//! A regular expression that is looked for in lines.
//!
//! A line is held and searched up to [`SEARCHED_BYTES_MAX`], so a search is one call of the regex crate. What is
//! shown of a long line is an excerpt around the match.

use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

/// The longest pattern.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// This much of a line is held to be searched. It bounds the memory, and the time that the worst pattern takes.
pub const SEARCHED_BYTES_MAX: usize = 256 << 10;
/// A line of more bytes is shown as an excerpt.
pub const SHOWN_BYTES_MAX: usize = 64 << 10;
/// The size of an excerpt.
pub const EXCERPT_BYTES: usize = 2_048;
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A pattern that was checked and compiled.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

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
        let regex = RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build();
        regex.map(Pattern).map_err(|error| PatternError::Syntax(error.to_string()))
    }

    pub fn is_match(&self, line: &[u8]) -> bool {
        self.0.is_match(line)
    }

    /// Where a match that begins at `from` or later is complete, although it may be possible to extend it.
    pub fn match_end(&self, line: &[u8], from: usize) -> Option<usize> {
        self.0.shortest_match_at(line, from)
    }

    /// The matches that begin at `from` or later and do not overlap.
    pub fn matches(&self, line: &[u8], from: usize) -> impl Iterator<Item = Range<usize>> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let found = self.0.find_at(line, next?)?.range();
            // The search goes on one byte behind an empty match.
            let after = if found.is_empty() { found.end + 1 } else { found.end };
            next = Some(after).filter(|at| *at <= line.len());
            Some(found)
        })
    }
}

fn last_line(drawing: &str) -> &str {
    drawing.lines().next_back().unwrap_or_default().trim_start_matches("error: ")
}

/// At most `bytes` bytes of a text around a position in it, as a range.
pub fn around(text: &str, position: usize, bytes: usize) -> Range<usize> {
    let before = position.saturating_sub(bytes / 2);
    // Near the end of the text there is room for more before the position.
    let from = text.ceil_char_boundary(before.min(text.len().saturating_sub(bytes)));
    from..text.floor_char_boundary(from.saturating_add(bytes)).max(from)
}
