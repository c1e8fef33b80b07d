//! The shapes of tokens: alphabets, runs of them with a length, and where a token may begin and end.

use super::MARK;

/// The bytes that a part of a token is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    Digit,
    /// Hexadecimal digits in small letters.
    Hex,
    /// Small letters and digits.
    Lower,
    /// Capital letters and digits.
    Upper,
    /// Letters and digits.
    Word,
    /// `Word`, `-` and `_`: base64 for URLs.
    Url,
    /// `Url`, `.` and `~`: what is not encoded in a URL.
    Dotted,
    /// `Word`, `+`, `/` and `=`.
    Base64,
    /// Everything that a token may hold: `Dotted`, `+`, `/`, `=` and `%`.
    Any,
}

impl Alphabet {
    pub fn has(self, byte: u8) -> bool {
        match self {
            Alphabet::Digit => byte.is_ascii_digit(),
            Alphabet::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Alphabet::Lower => matches!(byte, b'0'..=b'9' | b'a'..=b'z'),
            Alphabet::Upper => matches!(byte, b'0'..=b'9' | b'A'..=b'Z'),
            Alphabet::Word => byte.is_ascii_alphanumeric(),
            Alphabet::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Alphabet::Dotted => Alphabet::Url.has(byte) || matches!(byte, b'.' | b'~'),
            Alphabet::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Alphabet::Any => Alphabet::Dotted.has(byte) || matches!(byte, b'+' | b'/' | b'=' | b'%'),
        }
    }

    /// The length of the run that begins at `at`, as far as `limit`.
    pub fn run(self, text: &[u8], at: usize, limit: usize) -> usize {
        text[at..].iter().take(limit).take_while(|byte| self.has(**byte)).count()
    }

    /// The length of the run that ends before `at`.
    pub fn run_before(self, text: &[u8], at: usize) -> usize {
        text[..at].iter().rev().take_while(|byte| self.has(**byte)).count()
    }
}

/// A part of a token.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Text(&'static str),
    /// A run of an alphabet, with its least and its greatest length.
    Run(Alphabet, usize, usize),
}

/// A run of one length.
pub(super) const fn exactly(alphabet: Alphabet, len: usize) -> Part {
    Part::Run(alphabet, len, len)
}

/// A run of some length or any greater one.
pub(super) const fn at_least(alphabet: Alphabet, len: usize) -> Part {
    Part::Run(alphabet, len, usize::MAX)
}

/// A run with a length between two.
pub(super) const fn between(alphabet: Alphabet, min: usize, max: usize) -> Part {
    Part::Run(alphabet, min, max)
}

/// The end of the parts that begin at `at`, where they stand there. Each run is the longest there is.
pub(super) fn end_of_parts(text: &[u8], mut at: usize, parts: &[Part]) -> Option<usize> {
    for part in parts {
        at += match *part {
            Part::Text(fixed) => text[at..].starts_with(fixed.as_bytes()).then_some(fixed.len())?,
            Part::Run(alphabet, min, max) => {
                let run = alphabet.run(text, at, max.saturating_add(1));
                // The dot behind a token ends a sentence.
                let dots = text[at..at + run].iter().rev().take_while(|byte| **byte == b'.').count();
                let run = run - dots;
                (min..=max).contains(&run).then_some(run)?
            }
        };
    }
    let ends_word = !text.get(at).is_some_and(u8::is_ascii_alphanumeric);
    ends_word.then_some(at)
}

/// Whether a word may begin at `at`: not inside of one, but behind an escape sequence of a terminal, an escaped character
/// of a string and an encoded byte of a URL, which all end in a letter or digit.
pub(super) fn begins_word(text: &[u8], at: usize) -> bool {
    match &text[..at] {
        [] => true,
        [.., last] if !Alphabet::Url.has(*last) => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        before => {
            is_behind_code(before, b"%", 2)
                || is_behind_code(before, b"\\x", 2)
                || is_behind_code(before, b"\\u", 4)
                || ends_in_escape_sequence(before)
        }
    }
}

/// Whether a text ends in a character's code of so many hexadecimal digits, as `%3D`, `\x0a` and `\u003d`.
fn is_behind_code(before: &[u8], begin: &[u8], digits: usize) -> bool {
    let (begun, code) = before.split_at(before.len().saturating_sub(digits));
    begun.ends_with(begin) && code.iter().all(u8::is_ascii_hexdigit)
}

/// Where a token ends that colour codes tear apart, of which the first piece ends at `to`.
pub(super) fn end_behind_colours(text: &[u8], mut to: usize) -> usize {
    loop {
        let dots = text[to..].iter().take_while(|byte| **byte == b'.').count();
        let mut at = to + dots;
        while let Some(parameters) = text[at..].strip_prefix(b"\x1b[") {
            at += 2 + parameters.iter().take_while(|byte| !byte.is_ascii_alphabetic()).count();
            at = text.len().min(at + 1);
        }
        if at == to + dots || !text.get(at).is_some_and(|byte| Alphabet::Any.has(*byte)) {
            return to;
        }
        to = at + Alphabet::Any.run(text, at, text.len());
    }
}

/// How the character that begins a terminal's sequence is written in programs, scripts and JSON.
const ESCAPES: [&[u8]; 7] = [b"\x1b", b"\\e", b"\\033", b"\\x1b", b"\\x1B", b"\\u001b", b"\\u001B"];

/// Whether a text ends in a sequence as `ESC [ 1 ; 32 m`, also one that is written as `\e[1;32m`.
fn ends_in_escape_sequence(before: &[u8]) -> bool {
    let Some((last, before)) = before.split_last() else { return false };
    let parameters = before.iter().rev().take_while(|byte| matches!(byte, b'0'..=b'9' | b';')).count();
    let begun = before[..before.len() - parameters].strip_suffix(b"[");
    last.is_ascii_alphabetic()
        && begun.is_some_and(|begun| ESCAPES.iter().any(|escape| begun.ends_with(escape)))
}

/// Words that stand in the place of a password or credential.
const WORDS: &str =
    "pass passwd password passw0rd mypassword pw pwd secret token x-oauth-basic authentication credentials";

/// Whether a whole text is what stands in the place of a value: a variable, a placeholder or our own mark.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let ends_at = |end: u8| value.iter().position(|byte| *byte == end) == Some(value.len() - 1);
    let is_name = |name: &[u8]| {
        !name.first().is_none_or(u8::is_ascii_digit)
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let is_form = match value {
        // The end of `$(…)` is missing where a blank ended the word.
        [b'$', b'(', ..] => ends_at(b')') || !value.contains(&b')'),
        [b'$' | b'%', b'{', b'{', ..] | [b'{', b'{', ..] => value.ends_with(b"}}"),
        [b'$' | b'%', b'{', ..] | [b'{', ..] => ends_at(b'}'),
        [b'<', ..] => ends_at(b'>'),
        [b'$', name @ ..] => is_name(name.strip_prefix(b"env:").unwrap_or(name)),
        // `%s`, `%(name)s` and `%NAME%`.
        [b'%', b'(', ..] | [b'%', _] => true,
        [b'%', name @ .., b'%'] => is_name(name),
        _ => value.iter().all(|byte| matches!(byte, b'*' | b'x' | b'X' | b'.')),
    };
    is_form
        || value.starts_with(MARK)
        || WORDS.split(' ').any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}
