//! Shapes of secrets: byte classes, runs and fixed pieces, matched over a window that may still grow.
//!
//! A look past the end of the window is `More`: nobody may decide on bytes that have not come yet, so
//! that cutting the input at another place never changes the outcome. It knows no particular service.

use super::letters::are_random;

/// The decision needs bytes that have not come yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct More;

/// How far to the left of a candidate a rule may look. The redactor keeps this much of what it emitted.
pub(super) const BACK_BYTES: usize = 256;

/// How many bytes of an open run are weighed before it is taken for a secret.
const WEIGH_BYTES: usize = 64;

/// The bytes at hand, and whether they are all there will ever be.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub bytes: &'a [u8],
    pub last: bool,
}

impl<'a> View<'a> {
    /// The byte at `pos`, `None` after the end of the input.
    pub fn at(self, pos: usize) -> Result<Option<u8>, More> {
        match self.bytes.get(pos) {
            Some(byte) => Ok(Some(*byte)),
            None if self.last => Ok(None),
            None => Err(More),
        }
    }

    /// What begins at `from`.
    pub fn from(self, from: usize) -> View<'a> {
        View { bytes: self.bytes.get(from..).unwrap_or_default(), last: self.last }
    }

    /// Up to `count` bytes that end before `pos`.
    pub fn before(self, pos: usize, count: usize) -> &'a [u8] {
        let count = count.min(BACK_BYTES);
        self.bytes.get(pos.saturating_sub(count)..pos).unwrap_or_default()
    }

    /// Whether the bytes at `pos` are `text`; `fold` ignores ASCII case.
    #[inline]
    pub fn starts(self, pos: usize, text: &[u8], fold: bool) -> Result<bool, More> {
        if let Some(bytes) = self.bytes.get(pos..pos + text.len()) {
            // The last byte tells most others apart.
            let is_last =
                |(byte, want): (&u8, &u8)| byte == want || (fold && byte.eq_ignore_ascii_case(want));
            if !bytes.last().zip(text.last()).is_none_or(is_last) {
                return Ok(false);
            }
            return Ok(if fold { bytes.eq_ignore_ascii_case(text) } else { bytes == text });
        }
        self.starts_at_end(pos, text, fold)
    }

    /// The same where the bytes at hand are fewer.
    fn starts_at_end(self, pos: usize, text: &[u8], fold: bool) -> Result<bool, More> {
        for (offset, want) in text.iter().enumerate() {
            let Some(byte) = self.at(pos + offset)? else { return Ok(false) };
            let same = if fold { byte.eq_ignore_ascii_case(want) } else { byte == *want };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many bytes from `pos` on are of `class`, at most `max`.
    pub fn run(self, pos: usize, class: Class, max: usize) -> Result<usize, More> {
        let mut len = 0;
        while len < max && self.at(pos + len)?.is_some_and(|byte| class.has(byte)) {
            len += 1;
        }
        Ok(len)
    }

    pub fn slice(self, from: usize, to: usize) -> &'a [u8] {
        self.bytes.get(from..to.min(self.bytes.len())).unwrap_or_default()
    }
}

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Digit,
    /// Lower case hexadecimal.
    Hex,
    /// Upper case letters and digits.
    Upper,
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Url,
    /// As `Url`, with `.`.
    Dotted,
    /// As `Url`, with `.` and `~`.
    Tilde,
    /// Base64 with padding.
    Base64,
    /// Base64 in a URL, with `%` escapes.
    Percent,
    /// What the hashes of `crypt` are written in.
    Crypt,
    /// A value without quotes: ends at space, quote and the usual separators.
    Bare,
    /// All but white space and control bytes.
    Solid,
    /// The rest of a line, up to a quote.
    Line,
    /// The value of a cookie: as `Bare`, but in code an escape ends it.
    Cookie,
    /// All cookies of a line, in the same way.
    Cookies,
}

/// A bit for each class that a byte is of: a look into a table is what all of this is made of.
#[expect(clippy::indexing_slicing, reason = "an index beyond the end of a constant does not compile")]
static CLASSES: [u16; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        let mut at = 0;
        while at < Class::ALL.len() {
            if Class::ALL[at].is_of(byte as u8) {
                classes[byte] |= 1 << Class::ALL[at] as u16;
            }
            at += 1;
        }
        byte += 1;
    }
    classes
};

impl Class {
    const ALL: [Class; 16] = [
        Class::Digit,
        Class::Hex,
        Class::Upper,
        Class::Alnum,
        Class::Word,
        Class::Url,
        Class::Dotted,
        Class::Tilde,
        Class::Base64,
        Class::Percent,
        Class::Crypt,
        Class::Bare,
        Class::Solid,
        Class::Line,
        Class::Cookie,
        Class::Cookies,
    ];

    #[inline]
    pub fn has(self, byte: u8) -> bool {
        CLASSES.get(usize::from(byte)).is_some_and(|classes| classes >> self as u16 & 1 == 1)
    }

    const fn is_of(self, byte: u8) -> bool {
        match self {
            Class::Digit => byte.is_ascii_digit(),
            Class::Hex => byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'),
            Class::Upper => byte.is_ascii_digit() || byte.is_ascii_uppercase(),
            Class::Alnum => byte.is_ascii_alphanumeric(),
            Class::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Class::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Class::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Class::Tilde => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~'),
            Class::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Class::Percent => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'%' | b'-' | b'_')
            }
            Class::Crypt => byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/'),
            Class::Solid => byte > b' ' && byte != 0x7f,
            Class::Line => byte >= b' ' && !matches!(byte, 0x7f | b'"' | b'\'' | b'`'),
            Class::Cookie => byte != b'\\' && Class::Bare.is_of(byte),
            Class::Cookies => byte != b'\\' && Class::Line.is_of(byte),
            Class::Bare => {
                byte > b' ' && !matches!(byte, 0x7f | b'"' | b'\'' | b'`' | b',' | b';' | b'&' | b'<' | b'>')
            }
        }
    }
}

/// One piece of a shape, after the anchor.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Lit(&'static str),
    /// From `.1` to `.2` bytes of a class; as the last part the byte after it must not be a letter or digit.
    Run(Class, usize, usize),
    /// The last part: at least `.1` bytes of a class, and all that follow.
    Open(Class, usize),
}

/// What must stand before the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Any,
    /// Not the inside of a word.
    Edge,
}

/// What the body must hold, to tell a random token from words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Random,
}

/// The end of a shape that matched, and the class of an open end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Matched {
    pub to: usize,
    pub open: Option<Class>,
}

/// Matches the parts at `pos`.
pub(super) fn match_parts(
    view: View<'_>,
    pos: usize,
    parts: &[Part],
    need: Need,
) -> Result<Option<Matched>, More> {
    let mut to = pos;
    let mut open = None;
    for (index, part) in parts.iter().enumerate() {
        match *part {
            Part::Lit(text) => {
                if !view.starts(to, text.as_bytes(), false)? {
                    return Ok(None);
                }
                to += text.len();
            }
            Part::Run(class, min, max) => {
                let len = view.run(to, class, max)?;
                if len < min {
                    return Ok(None);
                }
                to += len;
                let is_last = index + 1 == parts.len();
                if is_last && view.at(to)?.is_some_and(|byte| Class::Word.has(byte)) {
                    return Ok(None);
                }
            }
            Part::Open(class, min) => {
                let len = view.run(to, class, min.max(WEIGH_BYTES))?;
                if len < min {
                    return Ok(None);
                }
                to += len;
                open = Some(class);
            }
        }
    }
    let body = view.slice(pos, to);
    let enough = match need {
        Need::Nothing => true,
        Need::Random => is_random(body),
    };
    Ok(enough.then_some(Matched { to, open }))
}

/// No name in code goes on for so long without anything between its words.
const NAME_BYTES_MAX: usize = 29;

/// So many different bytes are in every token.
const KINDS_MIN: u32 = 4;

/// Whether what follows a telling prefix is random rather than words: `hf_` is followed by letters alone, and three of
/// a hundred tokens of twenty letters and digits have no digit.
pub(super) fn is_random(body: &[u8]) -> bool {
    // A row of one or two letters fills a place, or is the zeros of a blob.
    let kinds = body.iter().fold(0u128, |kinds, byte| kinds | 1 << (byte & 0x7f)).count_ones();
    if kinds < KINDS_MIN {
        return false;
    }
    let count = |is: fn(&u8) -> bool| body.iter().filter(|byte| is(byte)).count();
    let (capitals, letters) = (count(u8::is_ascii_uppercase), count(u8::is_ascii_alphabetic));
    let mut names = body.split(|byte| !byte.is_ascii_alphabetic());
    if count(u8::is_ascii_digit) > 0 || names.any(|name| name.len() > NAME_BYTES_MAX) {
        return true;
    }
    // Of `dockerAccessToken` every fifth letter is a capital, of a random text every second.
    (capitals < letters && capitals * 10 >= letters * 3) || are_random(body)
}

/// Whether a word may begin at `pos`. What an escape sequence, a `\n` in JSON or a `%3D` in a URL ends
/// with is a letter or digit too, but no part of the word.
pub(super) fn is_edge(view: View<'_>, pos: usize) -> bool {
    let before = view.before(pos, 24);
    match before {
        [] => true,
        [.., b] if !Class::Word.has(*b) => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., b] if b.is_ascii_alphabetic() => ends_with_escape_sequence(before),
        _ => false,
    }
}

/// A word that is so long and random is a blob: what it holds has no meaning by itself.
const BLOB_BYTES: usize = 32;
/// An anchor that is longer is in no blob by chance.
const CHANCE_BYTES_MAX: usize = 7;
/// The lengths of the lines that base64 is written in.
const BLOB_LINES: [usize; 4] = [60, 64, 72, 76];

/// What digests in base64 are labelled, as in the files of packages.
const DIGESTS: [&[u8]; 6] = [b"sha1", b"sha224", b"sha256", b"sha384", b"sha512", b"md5"];

/// Whether what begins at `pos` stands in the midst of base64, where letters that begin a secret come by chance. A line
/// of base64 goes on in the next one if that is as long, unless it is a secret of the same kind itself.
pub(super) fn is_inside_blob(view: View<'_>, pos: usize, anchor: &str) -> Result<bool, More> {
    let is_blob = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    if anchor.len() > CHANCE_BYTES_MAX || !anchor.bytes().all(|byte| is_blob(&byte)) {
        return Ok(false);
    }
    // Of twice as many bytes one in fifty thousand has no digit by chance, of so many one in two hundred.
    let is_long = |bytes: &usize| {
        let before = view.before(pos, *bytes);
        before.len() == *bytes && before.iter().all(is_blob)
    };
    if let Some(bytes) = [2 * BLOB_BYTES, BLOB_BYTES].iter().find(|bytes| is_long(bytes)) {
        let before = view.before(pos, *bytes);
        // Both alphabets at once are none: `/home/Tom/My-Work-2024/…` is a path.
        let has =
            |pair: [u8; 2]| before.iter().copied().chain(anchor.bytes()).any(|byte| pair.contains(&byte));
        return Ok(is_mixed(before) && !(has(*b"+/") && has(*b"-_")));
    }
    let before = view.before(pos, BACK_BYTES);
    let here = before.iter().rev().take_while(|byte| is_blob(byte)).count();
    if is_in_digest(before, here) {
        return Ok(true);
    }
    let Some(lines) = before.get(..before.len() - here).and_then(|lines| lines.strip_suffix(b"\n")) else {
        return Ok(false);
    };
    let lines = lines.strip_suffix(b"\r").unwrap_or(lines);
    let len = lines.iter().rev().take_while(|byte| Class::Base64.has(**byte)).count();
    let line = lines.get(lines.len() - len..).unwrap_or_default();
    if !BLOB_LINES.contains(&len) || !is_mixed(line) || line.starts_with(anchor.as_bytes()) {
        return Ok(false);
    }
    Ok(here + view.run(pos, Class::Base64, len + 1)? == len)
}

/// `sha256=qaN-`, `sha512-qaN/`: whether the last bytes, so many of them of a blob, are the beginning of a digest.
fn is_in_digest(before: &[u8], here: usize) -> bool {
    let (head, word) = before.split_at(before.len() - here);
    let is_label = |text: &[u8]| DIGESTS.contains(&text);
    // What stands right behind its label may be a token.
    let glued = word.iter().position(|byte| *byte == b'-').filter(|dash| dash + 1 < here);
    let glued = glued.and_then(|dash| word.get(..dash));
    let head = if here == 0 { &[] } else { head };
    let joined = head.strip_suffix(b"=").or_else(|| head.strip_suffix(b":")).and_then(|head| {
        let label = head.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        head.get(head.len() - label..)
    });
    glued.is_some_and(is_label) || joined.is_some_and(is_label)
}

/// Letters of both kinds and digits, or so many capitals as no name has.
fn is_mixed(word: &[u8]) -> bool {
    let capitals = word.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let digits = word.iter().any(u8::is_ascii_digit);
    word.iter().any(u8::is_ascii_lowercase) && capitals > 0 && (digits || capitals * 3 >= word.len())
}

/// `ESC [ digits ; letter` at the very end.
fn ends_with_escape_sequence(before: &[u8]) -> bool {
    let Some((_, rest)) = before.split_last() else { return false };
    let digits = rest.iter().rev().take_while(|b| b.is_ascii_digit() || **b == b';').count();
    let head = rest.get(..rest.len() - digits).unwrap_or_default();
    head.ends_with(b"\x1b[")
}
