//! Private keys in blocks of lines: PEM, OpenSSH, PGP, SSH2, PuTTY and OpenVPN.
//!
//! A block begins behind its `BEGIN` line and ends before its `END` line; both are shown. A line that is none of a key
//! ends it too, so that half a key takes nothing else with it, and so does a bound on its size. This is the only
//! state that goes from one line to the next.

use memchr::memmem;

use super::Span;
use super::shape::Alphabet;

/// What a block is found by. `BEGIN` is followed by a label.
pub(super) const ANCHORS: [&str; 3] = [PEM, SSH2, PUTTY];
const PEM: &str = "-----BEGIN ";
const SSH2: &str = "---- BEGIN ";
const PUTTY: &str = "Private-Lines:";
const ENDS: [&str; 3] = ["-----END ", "---- END ", "Private-MAC:"];
const LABELS: [&str; 2] = ["PRIVATE KEY", "OpenVPN Static key"];
/// No key is longer.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// A word of a key, at least; the last line of one may be shorter.
const WORD_BYTES_MIN: usize = 16;
/// What may stand before a key in its block.
const HEADERS: [&str; 6] = ["Proc-Type:", "DEK-Info:", "Version:", "Comment:", "Subject:", "Hash:"];

/// A block that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    left: usize,
    /// What a log, a diff or a quote puts before each line, as before the `BEGIN`: how many words, and the last byte.
    words_before: usize,
    byte_before: Option<u8>,
    has_key: bool,
    /// Its short last line was met: nothing but its end follows.
    is_over: bool,
    /// Whether a line of it was hidden, and so the mark stands in the output.
    pub is_marked: bool,
}

/// What stands behind the anchor of a block.
pub(super) struct Begun {
    /// A key, or the beginning of one, on the anchor's own line.
    pub inline: Option<Span>,
    /// What goes on in the next line, where that line begins.
    pub block: Option<(Block, usize)>,
}

/// What follows the anchor at `at`.
pub(super) fn begin(text: &[u8], at: usize) -> Option<Begun> {
    let line_end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |len| at + len);
    let next_line = (line_end + 1).min(text.len());
    let line_start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |start| start + 1);
    let before = text[line_start..at].trim_ascii();
    let (words_before, byte_before) = (words(before).count(), before.last().copied());
    let block = Block {
        left: BLOCK_BYTES_MAX,
        words_before,
        byte_before,
        has_key: false,
        is_over: false,
        is_marked: false,
    };
    if text[at..].starts_with(PUTTY.as_bytes()) {
        return Some(Begun { inline: None, block: Some((block, next_line)) });
    }
    let label_from = at + PEM.len();
    let label_len = memmem::find(&text[label_from..line_end], b"----")?;
    let label = &text[label_from..label_from + label_len];
    if !LABELS.iter().any(|known| memmem::find(label, known.as_bytes()).is_some()) {
        return None;
    }
    let from = label_from + label_len;
    let from = from + text[from..line_end].iter().take_while(|byte| **byte == b'-').count();
    // A key on one line, as in JSON.
    let end = end_rule(&text[from..line_end]).map(|len| from + len);
    let to = end.unwrap_or(line_end);
    let has_key = has_key_word(&text[from..to]);
    let block = Block { has_key, is_marked: has_key, ..block };
    Some(Begun { inline: has_key.then_some((from, to)), block: end.is_none().then_some((block, next_line)) })
}

impl Block {
    /// Where the lines of the key end that begin at `from`, and the block, where the text ends before the key does.
    pub fn lines(mut self, text: &[u8], from: usize) -> (usize, Option<Block>) {
        let mut to = from;
        while to < text.len() {
            let end = memchr::memchr(b'\n', &text[to..]).map_or(text.len(), |len| to + len + 1);
            let line = &text[to..end];
            if let Some(rule) = end_rule(line) {
                // On one line with the rest of a long key.
                return (if has_key_word(&line[..rule]) { to + rule } else { to }, None);
            }
            self.has_key |= has_key_word(line);
            if self.is_over || !self.has(line) || line.len() > self.left {
                return (to, None);
            }
            self.left -= line.len();
            to = end;
        }
        self.is_marked |= to > from;
        (to, Some(self))
    }

    /// Whether this is a line with a word of a key, a header, a blank line, or the short last line behind others.
    fn has(&mut self, line: &[u8]) -> bool {
        let line = line.trim_ascii();
        // `cat -A` shows the ends of lines.
        let line = line.strip_suffix(b"$").unwrap_or(line);
        let count = words(line).count();
        let last = words(line).next_back().unwrap_or_default();
        let is_header = words(line).any(|word| HEADERS.iter().any(|name| word.ends_with(name.as_bytes())));
        let is_blank = line.is_empty()
            || count == self.words_before && last.last().is_some_and(|byte| self.follows(*byte));
        let last = last.rsplit(|byte| self.follows(*byte)).next().unwrap_or_default();
        if has_key_word(line) || is_header || is_blank {
            return true;
        }
        // It has no more words than the others; only one looks like this, or sentences would.
        self.is_over = self.has_key
            && count <= self.words_before + 1
            && last.iter().all(|byte| Alphabet::Base64.has(*byte));
        self.is_over
    }

    /// Whether a byte is what stands before the text of a line: `12` of `cat -n`, and `12:` and `12-` of `grep -A`.
    fn follows(&self, byte: u8) -> bool {
        self.byte_before.is_some_and(|before| {
            before == byte
                || before.is_ascii_digit() && byte.is_ascii_digit()
                || before == b':' && byte == b'-'
        })
    }
}

/// Where the rule stands that ends a block.
fn end_rule(line: &[u8]) -> Option<usize> {
    ENDS.iter().find_map(|end| memmem::find(line, end.as_bytes()))
}

fn has_key_word(text: &[u8]) -> bool {
    text.split(|byte| !Alphabet::Base64.has(*byte)).any(|word| word.len() >= WORD_BYTES_MIN)
}

fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}
