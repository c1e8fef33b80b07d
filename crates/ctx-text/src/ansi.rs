//! Turns what a program sent to a terminal into plain text.
//!
//! Escape sequences go, by the state table of a real terminal parser. A line that was redrawn keeps its
//! last state: carriage return, backspace, the cursor's moves within a line and erasing are followed;
//! moves to other lines are not, since there is no screen here. Blank lines are kept. The controls from U+0080 to U+009F
//! are what the two characters are that stand for them in 7 bits: U+009B is ESC [. Bytes that are no
//! UTF-8, and NUL, become U+FFFD. A lone escape that swallows a whole stream would hide output, so a
//! sequence with a string in it ends at the latest with its line.

#![expect(clippy::indexing_slicing, reason = "lengths are of the same slices")]

mod line;

use anstyle_parse::state::{Action, State, state_change};
use line::Line;

pub use line::LINE_CHARS_MAX;

/// The first byte of a control from U+0080 to U+009F, and of other characters.
const C1_LEAD: u8 = 0xc2;

/// Whole lines are looked for in blocks of up to this size.
const PLAIN_BYTES_MAX: usize = 256 * 1024;

/// The smallest block, after a control or bytes that are no text: the next line is likely to have some too.
const PLAIN_BYTES_MIN: usize = 64;

/// Controls in a line are looked for in pieces of this size: of two kinds, each search goes past what the other finds.
const PIECE_BYTES: usize = 1024;

/// Text that was made is handed on when there is this much: a push may make far more text than it has bytes.
const MADE_BYTES: usize = 64 * 1024;

/// The streaming cleaner.
pub struct Cleaner {
    state: State,
    params: Params,
    line: Line,
    /// The beginning of a character that was cut off by the end of a read.
    partial: Vec<u8>,
    /// The last byte of a string in a sequence may have been the first of a control that ends it.
    in_c1: bool,
    changed: bool,
    /// Text that is not handed on as it came.
    made: String,
    /// How many bytes are looked at for whole lines.
    plain_bytes: usize,
}

/// The numbers of a control sequence.
#[derive(Default)]
struct Params {
    /// The first number and the number being read: no sequence that matters here has more.
    values: [u16; 2],
    index: usize,
    private: bool,
}

impl Default for Cleaner {
    fn default() -> Cleaner {
        Cleaner::new()
    }
}

impl Cleaner {
    pub fn new() -> Cleaner {
        Cleaner {
            state: State::Ground,
            params: Params::default(),
            line: Line::default(),
            partial: Vec::new(),
            in_c1: false,
            changed: false,
            made: String::new(),
            plain_bytes: PLAIN_BYTES_MIN,
        }
    }

    /// Whether anything was taken out or replaced: then the text differs from the bytes.
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// Takes the next bytes and appends the lines that are final.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.push_to(bytes, &mut |clean| out.push_str(clean));
    }

    /// Takes the next bytes and hands on the lines that are final; plain ones are not copied.
    pub fn push_to(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&str)) {
        let mut made = std::mem::take(&mut self.made);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (lines, after) = self.plain_lines(rest);
            if !lines.is_empty() || made.len() >= MADE_BYTES {
                hand_on(&mut made, sink);
            }
            if !lines.is_empty() {
                sink(lines);
            }
            rest = match self.state {
                State::Ground => self.ground(after, &mut made),
                _ => self.sequence(after, &mut made),
            };
        }
        hand_on(&mut made, sink);
        self.made = made;
    }

    /// Ends the stream: appends the last line. The cleaner may be used for another stream.
    pub fn finish(&mut self, out: &mut String) {
        if !self.partial.is_empty() {
            self.partial.clear();
            self.print("\u{fffd}", out);
            self.changed = true;
        }
        self.line.flush(out);
        self.line.end();
        self.state = State::Ground;
        self.in_c1 = false;
    }

    /// Whole lines without anything special, which most output is made of, and what comes after them.
    fn plain_lines<'a>(&mut self, bytes: &'a [u8]) -> (&'a str, &'a [u8]) {
        if self.state != State::Ground || !self.line.is_blank() || !self.partial.is_empty() {
            return ("", bytes);
        }
        let block = &bytes[..bytes.len().min(PLAIN_BYTES_MAX)];
        let mut lines = whole_lines(&block[..ascii_len(block)]);
        if lines.is_empty() {
            let block = &block[..block.len().min(self.plain_bytes)];
            let len = plain_len(block);
            let is_plain = len == block.len();
            self.plain_bytes =
                if is_plain { (self.plain_bytes * 4).min(PLAIN_BYTES_MAX) } else { PLAIN_BYTES_MIN };
            lines = whole_lines(&block[..len]);
        }
        let text = std::str::from_utf8(lines).unwrap_or_else(|error| {
            self.plain_bytes = PLAIN_BYTES_MIN;
            std::str::from_utf8(whole_lines(&lines[..error.valid_up_to()])).unwrap_or_default()
        });
        (text, &bytes[text.len()..])
    }

    /// Text and single control bytes, up to the next escape.
    fn ground<'a>(&mut self, bytes: &'a [u8], out: &mut String) -> &'a [u8] {
        if let Some(rest) = self.finish_char(bytes, out) {
            return rest;
        }
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        let (text, rest) = bytes.split_at(text_len(piece));
        let at_end = text.len() == piece.len();
        self.text(text, at_end, out);
        if at_end {
            return rest;
        }
        if let [C1_LEAD, second, after @ ..] = rest {
            self.c1(*second, out);
            return after;
        }
        let Some((control, after)) = rest.split_first() else { return rest };
        if *control != 0 {
            self.control(*control, out);
            return after;
        }
        let zeros = rest.iter().take(PIECE_BYTES).take_while(|byte| **byte == 0).count();
        self.changed = true;
        self.print(&"\u{fffd}".repeat(zeros), out);
        &rest[zeros..]
    }

    /// Completes a character that was cut off by the last read, if one was.
    fn finish_char<'a>(&mut self, bytes: &'a [u8], out: &mut String) -> Option<&'a [u8]> {
        if self.partial.is_empty() {
            return None;
        }
        let (byte, rest) = bytes.split_first()?;
        let mut joined = std::mem::take(&mut self.partial);
        joined.push(*byte);
        match std::str::from_utf8(&joined) {
            Ok(_) if is_c1(&joined) => {
                self.c1(*byte, out);
                Some(rest)
            }
            Ok(text) => {
                self.print(text, out);
                Some(rest)
            }
            Err(error) if error.error_len().is_none() => {
                self.partial = joined;
                Some(rest)
            }
            // The new byte does not belong to the character: it is looked at again.
            Err(_) => {
                self.changed = true;
                self.print("\u{fffd}", out);
                Some(bytes)
            }
        }
    }

    /// A run without control bytes. At the end of a read its last character may be incomplete.
    fn text(&mut self, bytes: &[u8], at_end: bool, out: &mut String) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => return self.print(text, out),
                Err(error) => error,
            };
            let (good, bad) = rest.split_at(error.valid_up_to());
            self.print(std::str::from_utf8(good).unwrap_or_default(), out);
            match error.error_len() {
                None if at_end => {
                    self.partial = bad.to_vec();
                    return;
                }
                len => {
                    self.changed = true;
                    self.print("\u{fffd}", out);
                    rest = &bad[len.unwrap_or(bad.len())..];
                }
            }
        }
    }

    fn print(&mut self, text: &str, out: &mut String) {
        self.line.print(text, out);
    }

    fn control(&mut self, byte: u8, out: &mut String) {
        match byte {
            b'\n' => self.line.new_line(out),
            b'\t' | 0x0b | 0x0c => self.line.print(char::from(byte).encode_utf8(&mut [0; 4]), out),
            0 => {
                self.changed = true;
                self.print("\u{fffd}", out);
            }
            b'\r' => {
                self.changed = true;
                self.line.cursor = 0;
            }
            0x08 => {
                self.changed = true;
                self.line.cursor = self.line.cursor.saturating_sub(1);
            }
            0x1b => {
                self.changed = true;
                self.params = Params::default();
                self.state = State::Escape;
            }
            _ => self.changed = true,
        }
    }

    /// A control from U+0080 to U+009F, by its second byte: an escape with the character it stands for.
    #[cold]
    fn c1(&mut self, second: u8, out: &mut String) {
        self.control(0x1b, out);
        self.sequence(&[second & 0x1f | 0x40], out);
    }

    /// The inside of an escape sequence.
    fn sequence<'a>(&mut self, bytes: &'a [u8], out: &mut String) -> &'a [u8] {
        let Some((byte, rest)) = bytes.split_first() else { return bytes };
        if *byte == b'\n' {
            self.state = State::Ground;
            self.in_c1 = false;
            return bytes;
        }
        // A byte of a character inside a string is a part of the string; anywhere else it ends the sequence.
        if *byte >= 0x80 {
            if !is_string(self.state) {
                self.state = State::Ground;
                return bytes;
            }
            let in_c1 = std::mem::replace(&mut self.in_c1, *byte == C1_LEAD);
            if in_c1 && is_c1(&[C1_LEAD, *byte]) {
                self.c1(*byte, out);
            }
            return rest;
        }
        self.in_c1 = false;
        let (next, action) = state_change(self.state, *byte);
        if *byte == 0x1b {
            self.params = Params::default();
            self.state = State::Escape;
            return rest;
        }
        self.act(action, *byte, out);
        if next != State::Anywhere {
            self.state = next;
        }
        rest
    }

    fn act(&mut self, action: Action, byte: u8, out: &mut String) {
        match action {
            Action::Execute => self.control(byte, out),
            Action::Collect => self.params.private = true,
            Action::Param => self.params.push(byte),
            Action::CsiDispatch => self.line.move_cursor(byte, &self.params),
            _ => {}
        }
    }
}

fn hand_on(made: &mut String, sink: &mut dyn FnMut(&str)) {
    if !made.is_empty() {
        sink(made);
        made.clear();
    }
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// Whether a character is a control from U+0080 to U+009F.
fn is_c1(bytes: &[u8]) -> bool {
    matches!(bytes, [C1_LEAD, 0x80..=0x9f])
}

/// Where the first of them is. Its first byte is never within a character.
fn c1_at(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(C1_LEAD, bytes).find(|at| bytes[*at..].get(..2).is_some_and(is_c1))
}

/// The whole lines at the beginning.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1)]
}

/// How many bytes from the beginning on are ASCII without control bytes but the ends of lines and tabs.
fn ascii_len(bytes: &[u8]) -> usize {
    // As a signed number, a byte beyond ASCII is less than any other.
    len_without(bytes, |byte| {
        (byte.cast_signed() < 0x20) & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f)
    })
}

/// How many bytes from the beginning on hold no control but the ends of lines and tabs.
fn plain_len(bytes: &[u8]) -> usize {
    let is_special = |byte| (byte < 0x20) & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f);
    let len = len_without(bytes, is_special);
    c1_at(&bytes[..len]).unwrap_or(len)
}

/// How many bytes from the beginning on are text.
fn text_len(bytes: &[u8]) -> usize {
    let ends = |at: &usize| is_control(bytes[*at]) || bytes[*at..].get(..2).is_some_and(is_c1);
    (0..bytes.len()).find(ends).unwrap_or(bytes.len())
}

/// Counted in blocks, because a block is checked in a few vector instructions.
#[inline]
fn len_without(bytes: &[u8], is_special: impl Fn(u8) -> bool) -> usize {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let any = |block: &[u8; 64]| block.iter().fold(false, |any, byte| any | is_special(*byte));
    let (at, tail) = match blocks.iter().position(any) {
        Some(index) => (index * 64, &bytes[index * 64..]),
        None => (bytes.len() - rest.len(), rest),
    };
    at + tail.iter().position(|byte| is_special(*byte)).unwrap_or(tail.len())
}

fn is_string(state: State) -> bool {
    matches!(
        state,
        State::OscString | State::SosPmApcString | State::DcsPassthrough | State::DcsIgnore | State::DcsEntry
    )
}

impl Params {
    fn push(&mut self, byte: u8) {
        if byte.is_ascii_digit() {
            if let Some(value) = self.values.get_mut(self.index) {
                *value = value.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
            }
        } else {
            self.index = (self.index + 1).min(self.values.len());
        }
    }

    fn first(&self) -> usize {
        self.values.first().copied().unwrap_or(0).into()
    }
}

/// Cleans a whole piece of bytes.
pub fn clean(bytes: &[u8]) -> String {
    let mut cleaner = Cleaner::new();
    let mut out = String::with_capacity(bytes.len());
    cleaner.push(bytes, &mut out);
    cleaner.finish(&mut out);
    out
}
