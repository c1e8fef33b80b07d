//! Which name ends before a separator or behind dashes, and which anchor a separator begins itself.
//!
//! Separators are everywhere and names are rare: a few looks into small tables, with a bit for a few names, tell nearly
//! all others apart. What is left is looked at byte by byte. Whether there is a secret behind a name is not known here.

use super::masks::{GAP_BIT, OWN_BITS, Table};
use super::shape::Class;

/// What may stand between a name and its separator, at most.
const GAP_BYTES_MAX: usize = 96;
/// An option's name, at most.
pub(super) const OPTION_BYTES_MAX: usize = 64;

/// The tables.
pub(super) struct NameEnds {
    third: [u8; 256],
    second: [u8; 256],
    last: [u8; 256],
    separator: [u8; 256],
    next: [u8; 256],
}

/// The end of a colour sequence, which may stand there too; what it has in common with names of the same bit is rare.
const COLOUR: u8 = 1;
/// The last three letters of every name before a separator. Those of a row share a bit, so they share letters where
/// that can be, and what else such letters make is rare.
const NAME_ENDS: [&[&[u8; 3]]; 7] = [
    &[b"ord", b"swd", b"pwd", b"_pw"],
    &[b"ass", b"als"],
    &[b"eds", b"psk", b"_sk"],
    &[b"ret", b"pat", b"ata"],
    &[b"ken", b"ion"],
    &[b"ase", b"key", b"lue", b"ure"],
    &[b"ial", b"uth", b"sig"],
];
/// The separators that begin anchors, and what follows them there.
const OWN: [(u8, &[u8], u8); 3] =
    [(b':', b"/A*", OWN_BITS[0]), (b'$', b"12567ayg", OWN_BITS[1]), (b':', b"123456789", PORT)];
/// A port, which a sieve knows by the separator behind it.
const PORT: u8 = 1;

impl NameEnds {
    pub fn new() -> NameEnds {
        let none = [0; 256];
        // Any byte may stand before the end of a colour sequence.
        let mut ends =
            NameEnds { third: [COLOUR; 256], second: none, last: none, separator: none, next: none };
        for (index, row) in NAME_ENDS.into_iter().enumerate() {
            for (case, [third, second, last]) in
                cases().flat_map(|case| row.iter().map(move |end| (case, *end)))
            {
                put(&mut ends.third, case(third), 1 << index);
                put(&mut ends.second, case(second), 1 << index);
                put(&mut ends.last, case(last), 1 << index);
            }
        }
        for byte in *b" \t\"'`\\]?0123456789" {
            put(&mut ends.last, byte, GAP_BIT);
        }
        for byte in *b"mK" {
            put(&mut ends.last, byte, COLOUR);
        }
        for byte in *b"[;0123456789" {
            put(&mut ends.second, byte, COLOUR);
        }
        for (separator, nexts, bit) in OWN {
            put(&mut ends.separator, separator, bit);
            for next in nexts {
                put(&mut ends.next, *next, bit);
            }
        }
        ends
    }

    /// What stands at the end of a name, for a sieve.
    pub fn ends(&self) -> [Table; 3] {
        [ascii(&self.third), ascii(&self.second), ascii(&self.last)]
    }

    /// A separator that begins an anchor, and what stands behind it.
    pub fn own(&self) -> [Table; 2] {
        [&self.separator, &self.next].map(|table| ascii(table).map(|bits| bits & !PORT))
    }

    /// Whether a name may end with these two.
    #[inline]
    pub fn may_be(&self, second: u8, last: u8) -> bool {
        // Any byte may stand before a gap.
        (bits(&self.second, second) | GAP_BIT) & bits(&self.last, last) != 0
    }

    /// Whether an anchor may begin with these two.
    #[inline]
    pub fn may_begin(&self, separator: u8, next: u8) -> bool {
        bits(&self.separator, separator) & bits(&self.next, next) != 0
    }
}

type Case = fn(&u8) -> u8;

fn cases() -> impl Iterator<Item = Case> {
    [u8::to_ascii_lowercase as Case, u8::to_ascii_uppercase as Case].into_iter()
}

fn ascii(table: &[u8; 256]) -> Table {
    table.first_chunk().copied().unwrap_or([u8::MAX; 128])
}

fn put(table: &mut [u8; 256], byte: u8, bits: u8) {
    if let Some(slot) = table.get_mut(usize::from(byte)) {
        *slot |= bits;
    }
}

#[inline]
fn bits(table: &[u8; 256], byte: u8) -> u8 {
    table.get(usize::from(byte)).copied().unwrap_or_default()
}

/// Two bytes before a separator, itself, and the byte behind it; zeros where there is nothing.
#[inline]
pub(super) fn around(bytes: &[u8], at: usize) -> [u8; 4] {
    let four = at.checked_sub(2).and_then(|from| bytes.get(from..)).and_then(<[u8]>::first_chunk);
    four.copied().unwrap_or_else(|| {
        let byte = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        [byte(at.checked_sub(2)), byte(at.checked_sub(1)), byte(Some(at)), byte(Some(at + 1))]
    })
}

/// Whether an anchor begins with the separator itself: of a URL, a bot's token, a port, a hash.
#[inline]
pub(super) fn begins_anchor(bytes: &[u8], at: usize, separator: u8, next: u8) -> bool {
    match (separator, next) {
        (b':', b'/') => bytes.get(at..at + 3) == Some(b"://"),
        (b':', b'A') => bytes.get(at..at + 3) == Some(b":AA"),
        (b':', b'*') => bytes.get(at..at + 3) == Some(b":*:"),
        // A port of four or five digits.
        (b':', b'1'..=b'9') => bytes.get(at + 5) == Some(&b':') || bytes.get(at + 6) == Some(&b':'),
        (b'$', b'1' | b'5' | b'6' | b'7' | b'y') => bytes.get(at + 2) == Some(&b'$'),
        (b'$', b'2' | b'a' | b'g') => {
            matches!(bytes.get(at + 2..at + 4), Some(b"a$" | b"b$" | b"x$" | b"y$" | b"pr"))
        }
        _ => false,
    }
}

/// The anchor that ends before the separator at `at`, or with it.
#[inline]
pub(super) fn at_separator(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(..at)? {
        [.., b's', b'i', b'g'] if bytes.get(at) == Some(&b'=') => Some(at - 3),
        // Names end with letters of few kinds.
        [.., b'a' | b'd' | b'e' | b's' | b't' | b'n' | b'l' | b'h' | b'y' | b'k' | b'w']
        | [.., b'A' | b'D' | b'E' | b'S' | b'T' | b'N' | b'L' | b'H' | b'Y' | b'W'] => ends_name(bytes, at),
        [.., b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']' | b'?' | b'0'..=b'9' | b'm' | b'K'] => {
            ends_name(bytes, name_end(bytes, at))
        }
        _ => None,
    }
}

/// The anchor of an option or a key block whose last two dashes stand at `at`.
pub(super) fn at_dashes(bytes: &[u8], at: usize) -> Option<usize> {
    let name = bytes.get(at + 2..)?;
    if name.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"begin ")) {
        return Some(at + 1);
    }
    if name.starts_with(b" BEGIN ") {
        return Some(at + 1);
    }
    let name = name.get(..OPTION_BYTES_MAX).unwrap_or(name);
    let len = name.iter().take_while(|byte| Class::Url.has(**byte)).count();
    let end = at + 2 + len;
    // A number may end it.
    let digits = bytes.get(..end)?.iter().rev().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    ends_name(bytes, end - digits)
}

/// Where the name before a separator ends: what may stand between the two is skipped.
#[inline]
fn name_end(bytes: &[u8], separator: usize) -> usize {
    let least = separator.saturating_sub(GAP_BYTES_MAX);
    let mut before = bytes.get(least..separator).unwrap_or_default();
    loop {
        before = match before {
            [rest @ .., b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']' | b'?' | b'0'..=b'9'] => rest,
            [.., b'm' | b'K'] => match colour_len(before) {
                Some(len) => before.get(..before.len() - len).unwrap_or_default(),
                None => break,
            },
            _ => break,
        }
    }
    least + before.len()
}

/// The length of the colour sequence that ends here.
fn colour_len(before: &[u8]) -> Option<usize> {
    let (_, rest) = before.split_last()?;
    let numbers = rest.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    let head = rest.get(..rest.len() - numbers)?;
    head.ends_with(b"\x1b[").then_some(numbers + 3)
}

/// The anchor that ends at `end`.
#[inline]
pub(super) fn ends_name(bytes: &[u8], end: usize) -> Option<usize> {
    let before = bytes.get(..end)?;
    names_with_end(*before.last_chunk()?).iter().find_map(|anchor| {
        let start = end.checked_sub(anchor.len())?;
        before.get(start..)?.eq_ignore_ascii_case(anchor).then_some(start)
    })
}

/// The anchors of the names before separators that end with these three letters.
#[inline]
fn names_with_end(end: [u8; 3]) -> &'static [&'static [u8]] {
    match &end.map(|byte| byte.to_ascii_lowercase()) {
        b"ord" => &[b"sword"],
        b"swd" | b"pwd" => &[b"wd"],
        b"ase" => &[b"phrase", b"_base"],
        b"ass" => &[b"ss"],
        b"ret" => &[b"cret"],
        b"ken" => &[b"oken"],
        b"ial" => &[b"redential"],
        b"als" => &[b"redentials"],
        b"uth" => &[b"_auth"],
        b"key" => &[b"ey"],
        b"ion" => &[b"zation"],
        b"psk" => &[b"psk"],
        b"_sk" => &[b"_sk"],
        b"pat" => &[b"_pat"],
        b"ata" => &[b"-data"],
        b"_pw" => &[b"_pw"],
        b"eds" => &[b"creds"],
        b"lue" => &[b"value"],
        b"ure" => &[b"-signature"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::masks::Masks;
    use super::super::rules::{Check, PairName, RULES};
    use super::super::search::Candidates;
    use super::*;

    /// What stands before the anchor of a name.
    fn befores(check: Check) -> Vec<&'static str> {
        match check {
            Check::Pair(PairName::Password { before }) => before.to_vec(),
            Check::Pair(PairName::Secret { before }) => vec![before],
            Check::Pair(PairName::Pass) => vec!["pa"],
            Check::Pair(PairName::Key) => vec!["k"],
            Check::Pair(PairName::Short) | Check::Authorization | Check::Listed => vec![""],
            Check::Signature => vec!["amz", "goog"],
            _ => vec![],
        }
    }

    #[test]
    fn every_name_before_a_separator_is_known_by_its_end() {
        let sieve = Candidates::new(&[]).sieve;
        for (rule, before) in
            RULES.iter().flat_map(|rule| befores(rule.check).into_iter().map(move |b| (rule, b)))
        {
            let text = format!("x{before}{}=", rule.anchor).to_uppercase();
            let end = text.len() - 1;
            assert_eq!(at_separator(text.as_bytes(), end), Some(end - rule.anchor.len()), "{text}");
            let &[second, last] = text.as_bytes()[..end].last_chunk().unwrap();
            assert!(NameEnds::new().may_be(second, last), "{text}");
            for (way, masks) in Masks::of_every_way(text.as_bytes(), &sieve) {
                assert_eq!(masks.separators.first(), Some(&(1 << end)), "{way}: {text}");
            }
        }
    }
}
