//! The lines that match a pattern, with lines of context around them.

use std::collections::VecDeque;

use super::super::pattern::{Found, LINE_BYTES_MAX, LongLine, PIECE_BYTES, Pattern, Piece, WORK_MAX, around};
use super::window::Window;

/// As much as the mark of a piece may take.
const MARK_CHARS_MAX: usize = 180;

/// Passes on the lines that match, with their context. Of a line that is too long, a piece.
pub(super) struct Filter {
    pattern: Pattern,
    context: usize,
    /// The line that is being read.
    line: String,
    /// The same, where it is too long to be held.
    long: Option<Box<LongLine>>,
    /// Lines before, which a match would bring with it.
    before: VecDeque<String>,
    before_bytes: usize,
    before_bytes_max: usize,
    /// Lines that still follow the last match.
    after: usize,
    /// The most characters that are shown.
    chars: usize,
    has_pieces: bool,
    /// How much more work long lines may be.
    work: u64,
    lines_unsearched: u64,
}

impl Filter {
    pub fn new(pattern: Pattern, context: usize, chars: usize) -> Filter {
        Filter {
            pattern,
            context,
            line: String::new(),
            long: None,
            before: VecDeque::new(),
            before_bytes: 0,
            before_bytes_max: chars.saturating_mul(4).max(LINE_BYTES_MAX * 2),
            after: 0,
            chars,
            has_pieces: false,
            work: WORK_MAX,
            lines_unsearched: 0,
        }
    }

    pub fn push(&mut self, text: &str, window: &mut Window) {
        for piece in text.split_inclusive('\n') {
            let part = piece.strip_suffix('\n');
            self.read(part.unwrap_or(piece));
            if part.is_some() {
                self.end_line("\n", window);
            }
        }
    }

    /// Whether a line was replaced by a piece of it.
    pub fn has_pieces(&self) -> bool {
        self.has_pieces
    }

    /// Lines that were searched in part, for the rest would be too much work.
    pub fn lines_unsearched(&self) -> u64 {
        self.lines_unsearched
    }

    fn read(&mut self, part: &str) {
        if self.long.is_none() && self.line.len() + part.len() <= LINE_BYTES_MAX {
            return self.line.push_str(part);
        }
        let long = self.long.get_or_insert_with(|| Box::new(LongLine::new(&self.pattern, b"", self.work)));
        long.push(&self.line);
        self.line.clear();
        long.push(part);
    }

    fn end_line(&mut self, end: &str, window: &mut Window) {
        let (matches, found) = match self.long.take() {
            Some(long) => {
                let found = long.finish();
                self.lines_unsearched += u64::from(found.has_given_up);
                (found.near.is_some(), found)
            }
            None => {
                let matches = self.pattern.is_match(self.line.as_bytes());
                if !matches && self.context == 0 {
                    return self.line.clear();
                }
                let line = std::mem::take(&mut self.line);
                if line.len() <= self.chars || line.chars().count() <= self.chars {
                    return self.pass(matches, line + end, window);
                }
                let mut long = LongLine::new(&self.pattern, b"", self.work);
                long.push(&line);
                (matches, long.finish())
            }
        };
        self.work = self.work.saturating_sub(found.work);
        self.has_pieces = true;
        let shown = self.shown(&found) + end;
        self.pass(matches, shown, window);
    }

    /// What is shown of a line that is too long: where it matches, or its beginning.
    fn shown(&self, found: &Found) -> String {
        let piece = found.near.as_ref().unwrap_or(&found.begin);
        // Two of them fit, at the beginning and at the end of what is shown.
        let room = (self.chars / 2).max(1);
        if room < 2 * MARK_CHARS_MAX {
            return around(&piece.text, piece.place, room).1.to_owned();
        }
        let (skipped, text) = around(&piece.text, piece.place, PIECE_BYTES.min(room - MARK_CHARS_MAX));
        mark(found, piece, skipped, text) + text
    }

    fn pass(&mut self, matches: bool, line: String, window: &mut Window) {
        if matches {
            for line in self.before.drain(..) {
                window.push(&line);
            }
            self.before_bytes = 0;
            window.push(&line);
            self.after = self.context;
        } else if self.after > 0 {
            window.push(&line);
            self.after -= 1;
        } else {
            self.remember(line);
        }
    }

    fn remember(&mut self, line: String) {
        if self.context == 0 {
            return;
        }
        self.before_bytes += line.len();
        self.before.push_back(line);
        while self.before.len() > self.context || self.before_bytes > self.before_bytes_max {
            let Some(oldest) = self.before.pop_front() else { break };
            self.before_bytes -= oldest.len();
        }
    }

    pub fn finish(&mut self, window: &mut Window) {
        if self.long.is_some() || !self.line.is_empty() {
            self.end_line("", window);
        }
    }
}

/// Says that a text is a piece of its line, and which.
fn mark(found: &Found, piece: &Piece, skipped: usize, text: &str) -> String {
    let count = |text: &str| text.chars().count() as u64;
    let before = piece.chars_before + count(piece.text.get(..skipped).unwrap_or_default());
    let (from, to) = (before + 1, before + count(text));
    let end = piece.bytes_before + (skipped + text.len()) as u64;
    let again = if found.last_end > Some(end) { ", which matches again behind them" } else { "" };
    format!(
        "[characters {from} to {to} of this line of {}{again}; session_output with grep tells the offset] ",
        found.chars
    )
}
