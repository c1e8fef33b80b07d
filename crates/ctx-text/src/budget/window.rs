//! The two ends of a text: what is kept of it while it passes by.
//!
//! It holds the head and the tail within their bounds and knows nothing of patterns or modes.

/// How much more than it may show the tail gathers before it drops what is too old.
const TAIL_SLACK_CHARS: usize = 64 * 1024;

/// Lines and characters of a text that comes in pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counter {
    pub ends: u64,
    pub chars: u64,
    /// Whether the text stops within a line.
    open: bool,
}

impl Counter {
    pub fn of(text: &str) -> Counter {
        let mut counter = Counter::default();
        counter.count(text);
        counter
    }

    pub fn count(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.ends += memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
        self.chars += chars(text) as u64;
        self.open = !text.ends_with('\n');
    }

    pub fn lines(&self) -> u64 {
        self.ends + u64::from(self.open)
    }
}

/// The most that one end of the output may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub lines: usize,
    pub chars: usize,
}

/// The first and the last part of a text, each within its bound.
pub(super) struct Window {
    head: String,
    head_left: Bound,
    head_full: bool,
    tail: String,
    tail_chars: usize,
    tail_bound: Bound,
    /// The last character that was dropped between the two, if any was.
    dropped: Option<char>,
    pushed: Counter,
}

pub(super) struct Parts {
    pub head: String,
    pub tail: String,
    pub missing: bool,
    pub cut_by_chars: bool,
}

impl Window {
    pub fn new(head: Bound, tail: Bound) -> Window {
        Window {
            head: String::new(),
            head_left: head,
            head_full: head.lines == 0,
            tail: String::new(),
            tail_chars: 0,
            tail_bound: tail,
            dropped: None,
            pushed: Counter::default(),
        }
    }

    /// All that came in.
    pub fn pushed(&self) -> Counter {
        self.pushed
    }

    pub fn push(&mut self, text: &str) {
        self.pushed.count(text);
        let rest = if self.head_full { text } else { self.fill_head(text) };
        if !rest.is_empty() {
            self.fill_tail(rest);
        }
    }

    /// Takes what fits into the head and gives back the rest.
    fn fill_head<'a>(&mut self, text: &'a str) -> &'a str {
        let len = chars_end(text, self.head_left.chars).min(lines_end(text, self.head_left.lines));
        let (now, rest) = text.split_at(len);
        self.head.push_str(now);
        let counter = Counter::of(now);
        self.head_left.chars -= usize::try_from(counter.chars).unwrap_or(0).min(self.head_left.chars);
        self.head_left.lines -= usize::try_from(counter.ends).unwrap_or(0).min(self.head_left.lines);
        self.head_full = self.head_left.lines == 0 || !rest.is_empty();
        rest
    }

    fn fill_tail(&mut self, text: &str) {
        if let Some((before, end)) = last_ascii(text, self.tail_bound.chars) {
            // What was gathered before is too old now.
            self.dropped = before.chars().next_back();
            self.tail.clear();
            self.tail.push_str(end);
            self.tail_chars = end.len();
            return;
        }
        self.tail.push_str(text);
        self.tail_chars += chars(text);
        // Dropping seldom makes it cheap: a character is moved once in many reads.
        if self.tail_chars > self.tail_bound.chars.saturating_mul(3).saturating_add(TAIL_SLACK_CHARS) {
            self.drop_front(chars_end(&self.tail, self.tail_chars - self.tail_bound.chars));
        }
    }

    /// Drops the first `len` bytes of the tail.
    fn drop_front(&mut self, len: usize) {
        let gone = &self.tail[..len];
        let Some(last) = gone.chars().next_back() else { return };
        self.tail_chars -= gone.chars().count();
        self.dropped = Some(last);
        self.tail.drain(..len);
    }

    /// Ends the text. Half a line goes where a whole one is left.
    pub fn finish(mut self) -> Parts {
        let by_chars = chars_end(&self.tail, self.tail_chars.saturating_sub(self.tail_bound.chars));
        let by_lines = last_lines_start(&self.tail, self.tail_bound.lines);
        self.drop_front(by_chars.max(by_lines));
        let cut_by_chars = self.dropped.is_some_and(|last| {
            let lines = usize::try_from(Counter::of(&self.tail).lines()).unwrap_or(usize::MAX);
            last != '\n'
                || ends_within_line(&self.head)
                || lines < self.tail_bound.lines
                || (self.tail_bound.lines == 0 && self.head_left.lines > 0)
        });
        if let (Some(last), true) = (self.dropped, cut_by_chars) {
            self.cut_to_lines(last == '\n');
        }
        Parts { head: self.head, tail: self.tail, missing: self.dropped.is_some(), cut_by_chars }
    }

    /// Where characters were cut, half a line at the seam would mislead: it goes, unless halves are all there is.
    fn cut_to_lines(&mut self, tail_begins_a_line: bool) {
        let head_lines = self.head.rfind('\n').map_or(0, |at| at + 1);
        let tail_lines = match tail_begins_a_line {
            true => 0,
            false => self.tail.find('\n').map_or(self.tail.len(), |at| at + 1),
        };
        let (in_head, in_tail) = (head_lines > 0, tail_lines < self.tail.len());
        if in_head {
            self.head.truncate(head_lines);
        }
        // Half of one says something else than the whole.
        if in_tail || in_head {
            self.tail.drain(..tail_lines);
        }
        // Nothing is left of its line but the end.
        if !tail_begins_a_line && self.tail == "\n" && !in_head {
            self.tail.clear();
        }
    }
}

fn ends_within_line(text: &str) -> bool {
    !text.is_empty() && !text.ends_with('\n')
}

/// How many characters a text has.
pub(super) fn chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Splits a text before its last `n` characters, where these are ASCII and something stands before them.
fn last_ascii(text: &str, n: usize) -> Option<(&str, &str)> {
    let at = text.len().checked_sub(n).filter(|at| *at > 0)?;
    let (before, end) = text.split_at_checked(at)?;
    end.is_ascii().then_some((before, end))
}

/// Where the first `n` characters of a text end.
pub(super) fn chars_end(text: &str, n: usize) -> usize {
    if text.as_bytes().get(..n).is_some_and(<[u8]>::is_ascii) {
        return n;
    }
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// Where the first `n` lines of a text end.
fn lines_end(text: &str, n: usize) -> usize {
    let Some(last) = n.checked_sub(1) else { return 0 };
    memchr::memchr_iter(b'\n', text.as_bytes()).nth(last).map_or(text.len(), |at| at + 1)
}

/// Where the last `n` lines of a text begin.
fn last_lines_start(text: &str, n: usize) -> usize {
    let Some(last) = n.checked_sub(1) else { return text.len() };
    let body = text.strip_suffix('\n').unwrap_or(text);
    memchr::memrchr_iter(b'\n', body.as_bytes()).nth(last).map_or(0, |at| at + 1)
}
