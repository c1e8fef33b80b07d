//! The inside of a private key's block, line by line, whatever stands before and behind each line.
//!
//! A key is printed with line numbers, names of files, marks of comments and quotes, as strings in code, on one line. So
//! what tells its lines is the long random word in each. Lines without one (headers, a short last line) are of the key
//! only where more of it follows; a line that begins another block, or that nothing of a key follows, ends it.

use super::shape::{Class, More, View};
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
/// Small letters in a row, from which on they are of a word of language.
const LETTERS_IN_A_ROW: usize = 4;

/// What is left of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    left: usize,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It has a word of a key.
    Key,
    /// It ends the block, which goes up to here; on one line the whole key stands before.
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
    pub fn new() -> Block {
        Block { left: BLOCK_BYTES_MAX }
    }

    pub fn take(&mut self, view: View<'_>) -> Taken {
        let mut bytes = 0;
        while bytes < view.bytes.len() {
            let rest = View { bytes: view.bytes.get(bytes..).unwrap_or_default(), last: view.last };
            let Ok((taken, over)) = next_piece(rest) else { return Taken { bytes, over: false } };
            bytes += taken;
            self.left = self.left.saturating_sub(taken);
            if over || self.left == 0 {
                return Taken { bytes, over: true };
            }
        }
        Taken { bytes, over: false }
    }
}

/// Whether a key follows, behind the rule that begins its block.
pub(super) fn follows(view: View<'_>, from: usize) -> Result<bool, More> {
    let rest = View { bytes: view.bytes.get(from..).unwrap_or_default(), last: view.last };
    Ok(matches!(ahead(rest)?, Line::Key | Line::End { has_key: true, .. }))
}

/// How much of the next piece is of the block, and whether the block ends with it.
fn next_piece(view: View<'_>) -> Result<(usize, bool), More> {
    let Some(piece) = piece(view)? else { return Ok((0, true)) };
    match piece.line {
        Line::Key => Ok((piece.len, false)),
        Line::End { to, .. } | Line::Begin(to) => Ok((to, true)),
        Line::Other => {
            let after = View { bytes: view.bytes.get(piece.len..).unwrap_or_default(), last: view.last };
            let goes_on = matches!(ahead(after)?, Line::Key | Line::End { .. }) || is_fragment(piece.bytes);
            Ok(if goes_on { (piece.len, false) } else { (0, true) })
        }
    }
}

/// The first line that is more than another, of the next few.
fn ahead(view: View<'_>) -> Result<Line, More> {
    let mut from = 0;
    for _ in 0..OTHER_LINES_MAX {
        let rest = View { bytes: view.bytes.get(from..).unwrap_or_default(), last: view.last };
        match piece(rest)? {
            None => break,
            Some(Piece { line: Line::Other, len, .. }) => from += len,
            Some(Piece { line, .. }) => return Ok(line),
        }
    }
    Ok(Line::Other)
}

/// The piece at the beginning; none where there is nothing more.
fn piece(view: View<'_>) -> Result<Option<Piece<'_>>, More> {
    let most = view.bytes.get(..LINE_BYTES_MAX).unwrap_or(view.bytes);
    let (bytes, len) = match memchr::memchr(b'\n', most) {
        Some(at) => (most.get(..=at).unwrap_or(most), at + 1),
        None if most.len() == LINE_BYTES_MAX => (most, LINE_BYTES_MAX - RULE_BYTES_MAX),
        None if view.last && most.is_empty() => return Ok(None),
        None if view.last => (most, most.len()),
        None => return Err(More),
    };
    Ok(Some(Piece { bytes, len, line: line(view, bytes)? }))
}

fn line(view: View<'_>, bytes: &[u8]) -> Result<Line, More> {
    let find = |text: &[u8]| memchr::memmem::find(bytes, text);
    let (begin, end) = (find(b"-----BEGIN "), find(b"-----END "));
    match (begin, end) {
        (Some(begin), end) if end.is_none_or(|end| begin < end) => {
            let before = bytes.get(..begin).unwrap_or_default();
            Ok(Line::Begin(if has_key_word(before) { begin } else { 0 }))
        }
        (_, Some(end)) => {
            let has_key = has_key_word(bytes.get(..end).unwrap_or_default());
            Ok(Line::End { to: end_of_rule(view, end + 5)?, has_key })
        }
        // The end of a key of PuTTY's.
        _ if find(b"Private-MAC:").is_some() => Ok(Line::End { to: 0, has_key: false }),
        _ if has_key_word(bytes) => Ok(Line::Key),
        _ => Ok(Line::Other),
    }
}

/// Behind the dashes that end a rule whose words begin at `from`.
fn end_of_rule(view: View<'_>, from: usize) -> Result<usize, More> {
    let mut dashes = 0;
    for at in from..from + RULE_BYTES_MAX {
        match view.at(at)? {
            Some(b'-') => dashes += 1,
            Some(b'\n') | None => return Ok(at),
            Some(_) => dashes = 0,
        }
        if dashes == 5 {
            return Ok(at + 1);
        }
    }
    Ok(from)
}

fn has_key_word(bytes: &[u8]) -> bool {
    bytes.split(|byte| !Class::Base64.has(*byte)).any(is_key_word)
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
fn is_fragment(line: &[u8]) -> bool {
    let word = line.trim_ascii();
    let has = |is: fn(&u8) -> bool| word.iter().any(is);
    let odd = has(u8::is_ascii_digit) || word.iter().any(|byte| matches!(byte, b'+' | b'/' | b'='));
    word.len() >= FRAGMENT_BYTES_MIN
        && word.iter().all(|byte| Class::Base64.has(*byte))
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && odd
        && language_bytes(word) * 2 < word.len()
}
