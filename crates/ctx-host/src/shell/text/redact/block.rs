//! The inside of a private key's block, line by line, whatever stands before and behind each line.
//!
//! A key is printed with line numbers, names of files, marks of comments and quotes, as strings in code, on one line. So
//! what tells its lines is the long random word in each. Lines without one (headers, a short last line) are of the key
//! only where more of it follows; a line that begins another block, or that nothing of a key follows, ends it.

use super::shape::{Class, More, View};
use super::strip::stripped;
use super::swallow::Taken;

/// A block that never ends stops being swallowed here.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// A longer line is looked at in pieces.
const LINE_BYTES_MAX: usize = 512;
/// `-----END OPENSSH PRIVATE KEY-----` and the like are shorter.
const RULE_BYTES_MAX: usize = 64;
/// Lines in a row that may be no more than headers, blanks and a short end.
const OTHER_LINES_MAX: usize = 6;
/// A word of a key, at least; the last line of one may be shorter.
const WORD_BYTES_MIN: usize = 20;
/// So long a word need not have a digit.
const LONG_WORD_BYTES: usize = 40;
/// A shorter end of a key that was cut off cannot be told from a word.
const FRAGMENT_BYTES_MIN: usize = 4;
/// What may have to be looked at to settle one line.
const AHEAD_BYTES_MAX: usize = (OTHER_LINES_MAX + 2) * LINE_BYTES_MAX;
/// The beginnings of the rules, and of the line that ends a key of PuTTY's.
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const SSH2_BEGIN: &[u8] = b"---- BEGIN ";
const SSH2_END: &[u8] = b"---- END ";
const PUTTY_END: &[u8] = b"Private-MAC:";
/// Small letters in a row, from which on they are of a word of language.
const LETTERS_IN_A_ROW: usize = 4;

/// What its lines are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Base64,
    /// Hexadecimal, as of OpenVPN.
    Hex,
}

/// What is left of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    body: Body,
    left: usize,
    /// Lines that were shown since it broke off: they are of other commands, mostly.
    shown: usize,
    /// The line in which another stream broke off.
    begun: Vec<u8>,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It has a word of a key.
    Key,
    /// Its rule ends the block, which goes up to here; on one line the whole key stands before.
    End {
        to: usize,
        has_key: bool,
    },
    /// Another block begins with it, and this one goes up to here.
    Begin(usize),
    Other,
}

/// A line, or a piece of one that is long.
struct Piece<'a> {
    bytes: &'a [u8],
    /// How much of it is settled by now; the end of a piece may be the beginning of a rule.
    len: usize,
    line: Line,
}

impl Block {
    pub fn new(body: Body) -> Block {
        Block { body, left: BLOCK_BYTES_MAX, shown: 0, begun: Vec::new() }
    }

    /// The rule that ends the block stays: who looks at the text again sees that nothing of the key follows.
    pub fn take(&mut self, view: View<'_>) -> Taken {
        let mut bytes = 0;
        while !self.begun.is_empty() {
            match self.take_begun(view) {
                Ok(taken) if taken.over => return taken,
                Ok(taken) => bytes += taken.bytes,
                Err(More) => return Taken { bytes: 0, over: false },
            }
        }
        while bytes < view.bytes.len() {
            let Ok((taken, over)) = self.next_piece(view.from(bytes)) else {
                return Taken { bytes, over: false };
            };
            bytes += taken;
            self.left = self.left.saturating_sub(taken);
            if over || self.left == 0 {
                return Taken { bytes, over: true };
            }
        }
        Taken { bytes, over: false }
    }

    /// Takes the piece that began in another stream, as far as it is of this one.
    fn take_begun(&mut self, view: View<'_>) -> Result<Taken, More> {
        let now = view.bytes.get(..AHEAD_BYTES_MAX).unwrap_or(view.bytes);
        let joined = [self.begun.as_slice(), now].concat();
        let last = view.last && now.len() == view.bytes.len();
        let (taken, over) = self.next_piece(View { bytes: &joined, last })?;
        let before = self.begun.len().min(taken);
        self.begun.drain(..before);
        Ok(Taken { bytes: taken - before, over })
    }

    /// What is left of it where a stream breaks off that ends with `held`, which was not settled; nothing where enough
    /// lines were shown that are none of a key.
    pub fn broken_off(&self, held: &[u8]) -> Option<Block> {
        let mut ended = self.clone();
        let taken = ended.take(View { bytes: held, last: true });
        let rest = held.get(taken.bytes..).unwrap_or_default();
        let shown = self.shown + rest.split_inclusive(|byte| *byte == b'\n').count();
        let begun = match held.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => held.get(at + 1..).unwrap_or_default().to_vec(),
            None => [self.begun.as_slice(), held].concat(),
        };
        (shown < OTHER_LINES_MAX).then_some(Block { shown, begun, ..Block::new(self.body) })
    }

    /// The same for another program: it goes on with nothing but the rule that ends the block.
    pub fn of_other(&self) -> Block {
        let line = stripped(&self.begun);
        let text = line.as_ref().map_or(self.begun.as_slice(), |line| &line.bytes);
        let begins_rule = |from: &usize| {
            let rest = text.get(*from..).unwrap_or_default();
            [END, SSH2_END, PUTTY_END].iter().any(|rule| rule.starts_with(rest))
        };
        let from = (text.len().saturating_sub(RULE_BYTES_MAX)..text.len()).find(begins_rule);
        let from = from.map(|from| line.as_ref().map_or(from, |line| line.place(from)));
        let begun = from.and_then(|from| self.begun.get(from..)).unwrap_or_default().to_vec();
        Block { begun, ..self.clone() }
    }

    /// How much of the next piece is of the block, and whether the block ends with it.
    fn next_piece(&self, view: View<'_>) -> Result<(usize, bool), More> {
        let Some(piece) = self.piece(view)? else { return Ok((0, true)) };
        match piece.line {
            Line::Key => Ok((piece.len, false)),
            Line::End { to, .. } | Line::Begin(to) => Ok((to, true)),
            Line::Other => {
                let ahead = self.ahead(view.from(piece.len), OTHER_LINES_MAX.saturating_sub(self.shown))?;
                let goes_on =
                    matches!(ahead, Line::Key | Line::End { .. }) || is_fragment(piece.bytes, self.body);
                Ok(if goes_on { (piece.len, false) } else { (0, true) })
            }
        }
    }

    /// The first line that is more than another, of the next few.
    fn ahead(&self, view: View<'_>, lines: usize) -> Result<Line, More> {
        let mut from = 0;
        for _ in 0..lines {
            match self.piece(view.from(from))? {
                None => break,
                Some(Piece { line: Line::Other, len, .. }) => from += len,
                Some(Piece { line, .. }) => return Ok(line),
            }
        }
        Ok(Line::Other)
    }

    /// The piece at the beginning; none where there is nothing more.
    fn piece<'a>(&self, view: View<'a>) -> Result<Option<Piece<'a>>, More> {
        let most = view.bytes.get(..LINE_BYTES_MAX).unwrap_or(view.bytes);
        let (bytes, len, is_whole) = match memchr::memchr(b'\n', most) {
            Some(at) => (most.get(..=at).unwrap_or(most), at + 1, true),
            None if most.len() == LINE_BYTES_MAX => (most, LINE_BYTES_MAX - RULE_BYTES_MAX, true),
            None if view.last && most.is_empty() => return Ok(None),
            None => (most, most.len(), view.last),
        };
        let line = self.line(bytes);
        // A rule is one whatever follows it: the last line of a file may have no end.
        if !is_whole && matches!(line, Line::Key | Line::Other) {
            return Err(More);
        }
        Ok(Some(Piece { bytes, len, line }))
    }

    /// Escape sequences may tear a rule apart, or a word.
    fn line(&self, bytes: &[u8]) -> Line {
        let written = self.plain_line(bytes);
        let Some(stripped) = stripped(bytes) else { return written };
        match self.plain_line(&stripped.bytes) {
            Line::End { to, has_key } => {
                Line::End { to: stripped.place(to), has_key: has_key || written == Line::Key }
            }
            Line::Begin(to) => Line::Begin(stripped.place(to)),
            Line::Key if written == Line::Other => Line::Key,
            Line::Key | Line::Other => written,
        }
    }

    fn plain_line(&self, bytes: &[u8]) -> Line {
        let first = |rules: &[&[u8]]| rules.iter().filter_map(|rule| memchr::memmem::find(bytes, rule)).min();
        let has_key = |to: usize| self.has_key_word(bytes.get(..to).unwrap_or_default());
        let (begin, end) = (first(&[BEGIN, SSH2_BEGIN]), first(&[END, SSH2_END, PUTTY_END]));
        match (begin, end) {
            (Some(begin), end) if end.is_none_or(|end| begin < end) => {
                Line::Begin(if has_key(begin) { begin } else { 0 })
            }
            (_, Some(to)) => Line::End { to, has_key: has_key(to) },
            _ if self.has_key_word(bytes) => Line::Key,
            _ => Line::Other,
        }
    }

    fn has_key_word(&self, bytes: &[u8]) -> bool {
        match self.body {
            Body::Base64 => bytes.split(|byte| !Class::Base64.has(*byte)).any(is_key_word),
            Body::Hex => {
                bytes.split(|byte| !byte.is_ascii_hexdigit()).any(|word| word.len() >= WORD_BYTES_MIN)
            }
        }
    }
}

/// Whether a key follows, behind the rule that begins its block.
pub(super) fn follows(view: View<'_>, from: usize, body: Body) -> Result<bool, More> {
    let ahead = Block::new(body).ahead(view.from(from), OTHER_LINES_MAX)?;
    Ok(matches!(ahead, Line::Key | Line::End { has_key: true, .. }))
}

/// Whether a word is random rather than a path, a name or a hash.
fn is_key_word(word: &[u8]) -> bool {
    let mixed = word.iter().any(u8::is_ascii_uppercase) && word.iter().any(u8::is_ascii_lowercase);
    let enough = word.len() >= LONG_WORD_BYTES
        || (word.len() >= WORD_BYTES_MIN && word.iter().any(u8::is_ascii_digit));
    enough && mixed && language_bytes(word) * 2 < word.len()
}

/// The bytes in rows of small letters.
fn language_bytes(word: &[u8]) -> usize {
    let rows = word.split(|byte| !byte.is_ascii_lowercase()).map(<[u8]>::len);
    rows.filter(|len| *len >= LETTERS_IN_A_ROW).sum()
}

/// Whether a line is nothing but a piece of a word that is random.
fn is_fragment(line: &[u8], body: Body) -> bool {
    let stripped = stripped(line);
    let word = stripped.as_ref().map_or(line, |line| &line.bytes).trim_ascii();
    let has = |is: fn(&u8) -> bool| word.iter().any(is);
    match body {
        Body::Base64 => {
            let odd = has(u8::is_ascii_digit) || word.iter().any(|byte| matches!(byte, b'+' | b'/' | b'='));
            word.len() >= FRAGMENT_BYTES_MIN
                && word.iter().all(|byte| Class::Base64.has(*byte))
                && has(u8::is_ascii_uppercase)
                && has(u8::is_ascii_lowercase)
                && odd
                && language_bytes(word) * 2 < word.len()
        }
        Body::Hex => {
            word.len() >= 2 * FRAGMENT_BYTES_MIN
                && word.iter().all(u8::is_ascii_hexdigit)
                && has(u8::is_ascii_digit)
                && has(u8::is_ascii_alphabetic)
        }
    }
}
