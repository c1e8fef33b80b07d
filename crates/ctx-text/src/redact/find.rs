//! One search for many texts at once. It gives the places where one of them stands; which one is not its matter.

use aho_corasick::packed::{self, Searcher};
use aho_corasick::{AhoCorasick, Input, MatchKind};

/// So many texts are searched for in one pass: with more, a packed search stops too often at what is none of them.
const TEXTS_PER_PASS: usize = 60;
/// So many bytes of a text are looked at first, and so many groups of texts are told apart by them.
const LOOKED_AT: usize = 4;
const GROUPS: usize = 16;
/// With more passes than this an automaton is faster.
const PASSES_MAX: usize = 8;

pub(super) struct Finder {
    passes: Vec<Pass>,
}

enum Pass {
    /// Many bytes at once, by the vector instructions of the processor.
    Packed(Searcher),
    Automaton(AhoCorasick),
}

impl Finder {
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Finder {
        let mut texts: Vec<&[u8]> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        // Wherever a text stands, there stands one that begins it.
        texts.sort_unstable();
        texts.dedup_by(|later, first| later.starts_with(first));
        // A pass looks at as many bytes of each text as the shortest of them has, at most four. It stops seldom in vain where
        // these end alike: most end in a mark such as `_` or `-`, which is rarer than letters.
        let looked_at = |text: &[u8]| text.iter().copied().take(LOOKED_AT).rev().collect::<Vec<u8>>();
        texts.sort_by_cached_key(|text| (text.len().min(LOOKED_AT), looked_at(text)));
        let groups = || texts.chunk_by(|a, b| a.len().min(LOOKED_AT) == b.len().min(LOOKED_AT));
        let chunks: Vec<&[&[u8]]> = groups().flat_map(|group| group.chunks(TEXTS_PER_PASS)).collect();
        let passes: Option<Vec<Pass>> = match chunks.len() {
            0..=PASSES_MAX => chunks.iter().map(|chunk| packed_pass(chunk)).collect(),
            _ => None,
        };
        Finder { passes: passes.unwrap_or_else(|| automaton_pass(&texts).into_iter().collect()) }
    }

    /// Adds every place in `text` where one of the texts begins.
    pub fn places(&self, text: &[u8], places: &mut Vec<usize>) {
        for pass in &self.passes {
            let mut at = 0;
            while let Some(start) = pass.next(text, at) {
                places.push(start);
                at = start + 1;
            }
        }
    }
}

fn packed_pass(texts: &[&[u8]]) -> Option<Pass> {
    let texts = dealt(texts);
    let build = |fat| packed::Config::new().only_teddy_fat(fat).builder().extend(&texts).build();
    build(Some(true)).or_else(|| build(None)).map(Pass::Packed)
}

/// The texts in an order in which those that stand together come into one group: a searcher deals them out one by one.
fn dealt<'a>(texts: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut rest = texts;
    let mut groups: Vec<_> = (0..GROUPS)
        .map(|group| {
            let (own, others) = rest.split_at((texts.len() + GROUPS - 1 - group) / GROUPS);
            rest = others;
            own.iter()
        })
        .collect();
    let mut order = Vec::with_capacity(texts.len());
    while order.len() < texts.len() {
        order.extend(groups.iter_mut().filter_map(|group| group.next().copied()));
    }
    order
}

/// Processors without such instructions, and very many texts.
fn automaton_pass(texts: &[&[u8]]) -> Option<Pass> {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts).ok().map(Pass::Automaton)
}

impl Pass {
    fn next(&self, text: &[u8], from: usize) -> Option<usize> {
        let found = match self {
            Pass::Packed(searcher) => searcher.find_in(text, (from..text.len()).into()),
            Pass::Automaton(automaton) => automaton.find(Input::new(text).range(from..)),
        };
        found.map(|found| found.start())
    }
}
