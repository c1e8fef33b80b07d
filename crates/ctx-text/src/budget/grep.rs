//! The lines that match a pattern, with lines of context around them.

use std::collections::VecDeque;

use super::super::pattern::{EXCERPT_BYTES, Pattern, SEARCHED_BYTES_MAX, SHOWN_BYTES_MAX, around};
use super::window::Window;

/// What goes between two groups of matches that have lines between them. It is shown as `--`; no clean text has the
/// character before it, so that these lines are known from printed ones.
pub(super) const SEPARATOR: &str = "\u{1e}--\n";
pub(super) const SEPARATOR_MARK: char = '\u{1e}';

/// As much as the note before an excerpt may take.
const NOTE_CHARS_MAX: usize = 180;

/// Passes on the lines that match, with their context. Of a line that is too long it passes on an excerpt.
pub(super) struct Filter {
    pattern: Pattern,
    context: usize,
    /// The line that is being read, as far as it is searched.
    line: String,
    /// Characters of the line beyond that.
    unsearched_chars: u64,
    /// Lines before, which a match would bring with it.
    before: VecDeque<String>,
    before_bytes: usize,
    before_bytes_max: usize,
    /// Lines that still follow the last match.
    after: usize,
    /// The most characters that are shown.
    chars: usize,
    has_excerpts: bool,
    lines_unsearched: u64,
    /// Whether a match was passed on, and whether a line was left out behind the last one.
    has_matched: bool,
    has_gap: bool,
}

impl Filter {
    pub fn new(pattern: Pattern, context: usize, chars: usize) -> Filter {
        Filter {
            pattern,
            context,
            line: String::new(),
            unsearched_chars: 0,
            before: VecDeque::new(),
            before_bytes: 0,
            before_bytes_max: chars.saturating_mul(4).max(SHOWN_BYTES_MAX * 2),
            after: 0,
            chars,
            has_excerpts: false,
            lines_unsearched: 0,
            has_matched: false,
            has_gap: false,
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

    /// Whether a line was replaced by an excerpt.
    pub fn has_excerpts(&self) -> bool {
        self.has_excerpts
    }

    /// Lines of which only the beginning was searched.
    pub fn lines_unsearched(&self) -> u64 {
        self.lines_unsearched
    }

    fn read(&mut self, part: &str) {
        let room = if self.unsearched_chars == 0 { SEARCHED_BYTES_MAX - self.line.len() } else { 0 };
        let (searched, rest) = part.split_at(part.floor_char_boundary(room));
        self.line.push_str(searched);
        self.unsearched_chars += rest.chars().count() as u64;
    }

    fn end_line(&mut self, end: &str, window: &mut Window) {
        let unsearched = std::mem::take(&mut self.unsearched_chars);
        self.lines_unsearched += u64::from(unsearched > 0);
        let matches = self.pattern.is_match(self.line.as_bytes());
        if !matches && self.context == 0 {
            return self.line.clear();
        }
        let line = std::mem::take(&mut self.line);
        let fits = || line.len() <= self.chars || line.chars().count() <= self.chars;
        if unsearched == 0 && line.len() <= SHOWN_BYTES_MAX && fits() {
            return self.pass(matches, line + end, window);
        }
        self.has_excerpts = true;
        let excerpt = self.excerpt(&line, unsearched) + end;
        self.pass(matches, excerpt, window);
    }

    /// What is shown of a line that is too long: the text around its first match, or its beginning.
    fn excerpt(&self, line: &str, unsearched: u64) -> String {
        let position = self.pattern.match_end(line.as_bytes(), 0).unwrap_or(0);
        // Two excerpts fit into what is shown, one at its beginning and one at its end.
        let room = (self.chars / 2).max(1);
        if room < 2 * NOTE_CHARS_MAX {
            return line[around(line, position, room)].to_owned();
        }
        let range = around(line, position, EXCERPT_BYTES.min(room - NOTE_CHARS_MAX));
        let count = |text: &str| text.chars().count() as u64;
        let before = count(&line[..range.start]);
        let to = before + count(&line[range.clone()]);
        let all = to + count(&line[range.end..]) + unsearched;
        let matches_again =
            range.end < line.len() && self.pattern.match_end(line.as_bytes(), range.end).is_some();
        let again = if matches_again { ", which matches again behind them" } else { "" };
        format!(
            "[characters {} to {to} of this line of {all}{again}; session_output with grep tells the offset] {}",
            before + 1,
            &line[range]
        )
    }

    fn pass(&mut self, matches: bool, line: String, window: &mut Window) {
        if matches {
            if self.context > 0 && self.has_matched && self.has_gap {
                window.push(SEPARATOR);
            }
            (self.has_matched, self.has_gap) = (true, false);
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
            self.has_gap = true;
            self.before_bytes -= oldest.len();
        }
    }

    pub fn finish(&mut self, window: &mut Window) {
        if !self.line.is_empty() {
            self.end_line("", window);
        }
    }
}
