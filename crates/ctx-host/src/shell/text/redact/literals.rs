//! Looks for many literals in one pass: what anchors are told by that have no other mark.

use std::ops::Range;

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::filter::Anchor;

/// Of a value, as much is looked for at once.
const LITERAL_BYTES: usize = 16;

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

/// The bytes to look for in any case of letters, and how far behind the anchor's beginning they stand.
pub(super) fn spellings(anchor: &Anchor<'_>) -> Vec<(Vec<u8>, usize)> {
    let bytes = anchor.bytes.get(..LITERAL_BYTES).unwrap_or(anchor.bytes);
    if !anchor.fold {
        return vec![(bytes.to_vec(), 0)];
    }
    // Few letters mean few spellings; the end of a word is rarer than its beginning.
    let back = bytes.len().saturating_sub(4);
    let mut all = vec![Vec::new()];
    for byte in bytes.get(back..).unwrap_or_default() {
        let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
        let cases = if lower == upper { vec![lower] } else { vec![lower, upper] };
        all = all.iter().flat_map(|text| cases.iter().map(|case| [text, &[*case][..]].concat())).collect();
    }
    all.into_iter().map(|text| (text, back)).collect()
}

impl Literals {
    /// Those that anchors are told by.
    pub fn of<'a>(anchors: impl Iterator<Item = &'a Anchor<'a>>) -> Literals {
        let (texts, back): (Vec<Vec<u8>>, Vec<usize>) = anchors.flat_map(spellings).unzip();
        let packed = packed::Config::new().builder().extend(&texts).build();
        let finder = match packed {
            Some(searcher) => Finder::Packed(searcher),
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
