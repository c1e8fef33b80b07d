//! Looks for many literals in one pass: what anchors are told by that have no other mark.

use std::ops::Range;

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::filter::{Anchor, Target};
use super::masks::{SIEVED_BYTES, Table, next_bit_where};

/// Of a value, as much is looked for at once.
const BEGINNING_BYTES: usize = 16;
/// Of an anchor of ours, the rarest bytes in a row.
const RARE_BYTES: usize = 4;

/// Literals, and how far before each its anchor begins.
pub(super) struct Literals {
    finder: Finder,
    all: Vec<Literal>,
    /// The beginning of each, which is compared as one number.
    beginnings: Vec<u32>,
}

enum Finder {
    Packed(packed::Searcher),
    /// Where there are too many values, or the processor has not what it takes.
    Automaton(AhoCorasick),
    Nothing,
}

/// What is looked for, and how far behind its anchor's beginning it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Literal {
    pub text: Vec<u8>,
    pub back: usize,
}

impl Literal {
    pub fn of(anchor: &Anchor<'_>) -> Literal {
        let beginning = anchor.bytes.get(..BEGINNING_BYTES).unwrap_or(anchor.bytes);
        let rarest = match anchor.target {
            Target::Rule(_) => beginning.array_windows::<RARE_BYTES>().enumerate().min_by_key(commonness),
            // Two values may share their rarest bytes, and stand in different places there.
            Target::Literal(_) => None,
        };
        match rarest {
            Some((back, text)) => Literal { text: text.to_vec(), back },
            None => Literal { text: beginning.to_vec(), back: 0 },
        }
    }

    /// Whether finding the one hides the anchor of the other.
    pub fn hides(&self, other: &Literal) -> bool {
        let together = self.text.starts_with(&other.text) || other.text.starts_with(&self.text);
        together && self.back != other.back
    }
}

/// How common bytes are in logs and code, together.
fn commonness((_, bytes): &(usize, &[u8; RARE_BYTES])) -> u64 {
    let of_thousand = |byte: &u8| match byte {
        b' ' => 140,
        b'e' => 77,
        b's' | b't' | b'r' | b'i' | b'o' => 40,
        b'n' | b'a' | b'd' => 33,
        b'c' | b'l' | b'.' | b'/' => 23,
        b'm' | b':' | b'u' | b'p' | b'0'..=b'2' | b'-' => 15,
        b'g' | b'h' | b'_' | b'b' | b'f' => 11,
        b'3'..=b'9' | b'(' | b')' | b',' | b'k' | b'y' | b'v' | b'=' | b'w' | b'"' => 7,
        b'A'..=b'Z' => 3,
        _ => 1,
    };
    bytes.iter().map(of_thousand).product()
}

/// Looks for all literals at once. With twice as many buckets, where the processor has them, a step is half as long but
/// far fewer places look like a literal.
fn packed<'a>(texts: impl Iterator<Item = &'a Vec<u8>> + Clone) -> Option<packed::Searcher> {
    let build = |buckets: Option<bool>| {
        packed::Config::new().only_teddy_fat(buckets).builder().extend(texts.clone()).build()
    };
    build(Some(true)).or_else(|| build(None))
}

impl Literals {
    /// Those that anchors are told by: nearly all of them, and those that the others would hide.
    pub fn of<'a>(anchors: impl Iterator<Item = &'a Anchor<'a>>) -> (Literals, Literals) {
        let mut all: Vec<Literal> = anchors.map(Literal::of).collect();
        // Ours, which know their place, come before values.
        all.sort_unstable_by(|a, b| b.back.cmp(&a.back).then_with(|| a.text.cmp(&b.text)));
        all.dedup();
        let (mut most, mut hidden): (Vec<Literal>, Vec<Literal>) = (Vec::new(), Vec::new());
        for literal in all {
            let set = if most.iter().any(|other| other.hides(&literal)) { &mut hidden } else { &mut most };
            set.push(literal);
        }
        (Literals::new(most), Literals::new(hidden))
    }

    fn new(all: Vec<Literal>) -> Literals {
        let texts = || all.iter().map(|literal| &literal.text);
        let finder = match packed(texts()) {
            Some(searcher) => Finder::Packed(searcher),
            None if all.is_empty() => Finder::Nothing,
            None => {
                // As the packed searcher: the first to begin is told, not the first to end.
                let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts());
                built.map_or(Finder::Nothing, Finder::Automaton)
            }
        };
        let beginnings = all.iter().map(|literal| beginning(&literal.text)).collect();
        Literals { finder, all, beginnings }
    }

    /// The first bytes of all literals, for a sieve: eight groups of them, with a bit for each.
    pub fn sieve(sets: [&Literals; 2]) -> [Table; SIEVED_BYTES] {
        let mut all: Vec<&[u8]> =
            sets.iter().flat_map(|set| &set.all).map(|literal| literal.text.as_slice()).collect();
        all.sort_unstable();
        let mut tables = [[0; 128]; SIEVED_BYTES];
        let group_len = all.len().div_ceil(8).max(1);
        for (group, bit) in all.chunks(group_len).zip((0..8).map(|index| 1u8 << index)) {
            for text in group {
                for (place, table) in tables.iter_mut().enumerate() {
                    match text.get(place) {
                        Some(byte) => set_bit(table, *byte, bit),
                        // Anything may follow what is shorter.
                        None => table.iter_mut().for_each(|bits| *bits |= bit),
                    }
                }
            }
        }
        tables
    }

    /// Where the next literal stands, and where its anchor begins.
    fn next(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let found = match &self.finder {
            Finder::Packed(searcher) => searcher.find_in(bytes, (from..bytes.len()).into()),
            Finder::Automaton(automaton) => automaton.find(Input::new(bytes).range(from..)),
            Finder::Nothing => None,
        }?;
        let back = self.all.get(found.pattern().as_usize()).map_or(0, |literal| literal.back);
        Some((found.start(), found.start().saturating_sub(back)))
    }

    /// The next anchor that begins within a range; `at` is how far was looked.
    /// Where places were sieved (`sieved`), only these are looked at.
    pub fn next_from(
        &self,
        bytes: &[u8],
        sieved: &[u64],
        at: &mut usize,
        range: Range<usize>,
    ) -> Option<usize> {
        if sieved.is_empty() {
            while let Some((found, anchor)) = self.next(bytes, *at) {
                *at = found + 1;
                if range.contains(&anchor) {
                    return Some(anchor);
                }
            }
            return None;
        }
        let mut anchor = None;
        let found = next_bit_where(sieved, *at, |at| {
            anchor = self.anchor_of(bytes, at).filter(|anchor| range.contains(anchor));
            anchor.is_some()
        })?;
        *at = found + 1;
        anchor
    }

    /// Where the anchor of the literal begins that stands at this place.
    #[inline]
    fn anchor_of(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let here = bytes.get(at..).unwrap_or_default();
        let begins = beginning(here);
        let mut all = self.beginnings.iter().zip(&self.all);
        let (_, literal) = all.find(|(own, literal)| **own == begins && here.starts_with(&literal.text))?;
        Some(at.saturating_sub(literal.back))
    }
}

/// The first bytes of a text; no literal has fewer.
#[inline]
fn beginning(text: &[u8]) -> u32 {
    text.first_chunk().map_or(0, |four| u32::from_ne_bytes(*four))
}

fn set_bit(table: &mut Table, byte: u8, bit: u8) {
    if let Some(bits) = table.get_mut(usize::from(byte & 0x7f)) {
        *bits |= bit;
    }
}
