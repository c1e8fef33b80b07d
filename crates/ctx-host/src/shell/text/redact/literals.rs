//! Looks for many literals in one pass: what anchors are told by that have no other mark.

use std::ops::Range;

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::filter::{Anchor, Target};

/// Of a value, as much is looked for at once.
const BEGINNING_BYTES: usize = 16;
/// Of an anchor of ours, the rarest bytes in a row.
const RARE_BYTES: usize = 4;

/// Literals, and how far before each its anchor begins.
pub(super) struct Literals {
    finder: Finder,
    back: Vec<usize>,
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
fn packed(texts: &[Vec<u8>]) -> Option<packed::Searcher> {
    let build =
        |buckets: Option<bool>| packed::Config::new().only_teddy_fat(buckets).builder().extend(texts).build();
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

    fn new(literals: Vec<Literal>) -> Literals {
        let (texts, back): (Vec<_>, Vec<_>) =
            literals.into_iter().map(|literal| (literal.text, literal.back)).unzip();
        let finder = match packed(&texts) {
            Some(searcher) => Finder::Packed(searcher),
            None if texts.is_empty() => Finder::Nothing,
            None => {
                // As the packed searcher: the first to begin is told, not the first to end.
                let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(&texts);
                built.map_or(Finder::Nothing, Finder::Automaton)
            }
        };
        Literals { finder, back }
    }

    /// Where the next literal stands, and where its anchor begins.
    fn next(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let found = match &self.finder {
            Finder::Packed(searcher) => searcher.find_in(bytes, (from..bytes.len()).into()),
            Finder::Automaton(automaton) => automaton.find(Input::new(bytes).range(from..)),
            Finder::Nothing => None,
        }?;
        let back = self.back.get(found.pattern().as_usize()).copied().unwrap_or(0);
        Some((found.start(), found.start().saturating_sub(back)))
    }

    /// The next anchor that begins within a range; `at` is how far was looked.
    pub fn next_from(&self, bytes: &[u8], at: &mut usize, range: Range<usize>) -> Option<usize> {
        while let Some((found, anchor)) = self.next(bytes, *at) {
            *at = found + 1;
            if range.contains(&anchor) {
                return Some(anchor);
            }
        }
        None
    }
}
