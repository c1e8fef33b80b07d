//! The lines that match a pattern, with lines of context around them.

use std::collections::VecDeque;

use regex::Regex;

use super::window::Window;

/// Of a longer line the pattern sees this much.
const GREP_LINE_BYTES_MAX: usize = 64 * 1024;

/// Passes on the lines that match, with their context.
pub(super) struct Filter {
    regex: Regex,
    context: usize,
    /// The line that is being read, while nothing is decided about it.
    line: String,
    fate: Fate,
    /// Lines before, which a match would bring with it.
    before: VecDeque<String>,
    before_bytes: usize,
    before_bytes_max: usize,
    /// Lines that still follow the last match.
    after: usize,
}

/// What becomes of the rest of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Passes,
    Drops,
}

impl Filter {
    pub fn new(regex: Regex, context: usize, chars: usize) -> Filter {
        Filter {
            regex,
            context,
            line: String::new(),
            fate: Fate::Open,
            before: VecDeque::new(),
            before_bytes: 0,
            before_bytes_max: chars.saturating_mul(4).max(GREP_LINE_BYTES_MAX * 2),
            after: 0,
        }
    }

    pub fn push(&mut self, text: &str, window: &mut Window) {
        for piece in text.split_inclusive('\n') {
            self.piece(piece, window);
            if piece.ends_with('\n') {
                self.decide(window);
                self.fate = Fate::Open;
            }
        }
    }

    /// A piece of one line. A line longer than the pattern may see is decided by its beginning.
    fn piece(&mut self, piece: &str, window: &mut Window) {
        match self.fate {
            Fate::Passes => window.push(piece),
            Fate::Drops => {}
            Fate::Open => {
                let room = GREP_LINE_BYTES_MAX.saturating_sub(self.line.len());
                let at = piece.floor_char_boundary(room);
                let (now, later) = piece.split_at_checked(at).unwrap_or((piece, ""));
                self.line.push_str(now);
                if !later.is_empty() {
                    self.decide(window);
                    self.piece(later, window);
                }
            }
        }
    }

    fn decide(&mut self, window: &mut Window) {
        if self.fate != Fate::Open {
            return;
        }
        let line = std::mem::take(&mut self.line);
        if self.regex.is_match(line.trim_end_matches('\n')) {
            for line in self.before.drain(..) {
                window.push(&line);
            }
            self.before_bytes = 0;
            window.push(&line);
            self.after = self.context;
            self.fate = Fate::Passes;
        } else if self.after > 0 {
            window.push(&line);
            self.after -= 1;
            self.fate = Fate::Passes;
        } else {
            self.remember(line);
            self.fate = Fate::Drops;
        }
    }

    fn remember(&mut self, mut line: String) {
        if self.context == 0 {
            return;
        }
        if !line.ends_with('\n') {
            line.push('\n');
        }
        self.before_bytes += line.len();
        self.before.push_back(line);
        while self.before.len() > self.context || self.before_bytes > self.before_bytes_max {
            let Some(oldest) = self.before.pop_front() else { break };
            self.before_bytes -= oldest.len();
        }
    }

    pub fn finish(&mut self, window: &mut Window) {
        if !self.line.is_empty() {
            self.decide(window);
        }
        self.fate = Fate::Open;
    }
}
