//! What the bytes of a window are, one bit a byte: where tokens may begin in long words, and where separators and
//! double dashes stand.
//!
//! Many bytes are looked at in one instruction, as many as the processor can. Nothing here knows a rule; it only says
//! where looking closer may be worth it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

/// Every shape that is told by its own bytes alone goes on for at least this many bytes of a word.
pub(super) const WORD_BYTES_MIN: usize = 20;
/// In a word a token begins at an edge, or at most so far before a mark.
pub(super) const MARK_BYTES_MAX: usize = 10;

const BLOCK_BYTES: usize = 64;
/// No byte farther back makes an edge.
const EDGE_BYTES: usize = 32;
/// What is looked at around a block for edges and marks: this much behind it, for marks.
const AROUND_BYTES: usize = EDGE_BYTES + BLOCK_BYTES + 32;

/// The maps of one window.
#[derive(Default)]
pub(super) struct Masks {
    /// Where a token may begin that goes on as a word for [`WORD_BYTES_MIN`] bytes.
    pub tokens: Vec<u64>,
    /// `=`, `:`, `>` and `$`: all of them, or those that the sieve lets through.
    pub separators: Vec<u64>,
    /// The last two of two or more dashes.
    pub dashes: Vec<u64>,
    /// Where a literal may stand; nothing where the processor cannot sieve.
    pub literals: Vec<u64>,
}

/// Eight bits for each ASCII byte. Any other is looked up as if it had no highest bit.
pub(super) type Table = [u8; 128];

/// What stands around a place that is worth a look. More than that may be let through.
pub(super) struct Sieve {
    /// The last bytes of a name that a separator may follow; they have a bit in common.
    pub ends: [Table; 3],
    /// A separator that begins something and the byte behind it; they have one of two bits in common. Where another
    /// separator follows after four or five bytes, as behind a port, nothing else is asked for.
    pub own: Table,
    pub behind: Table,
    /// The first bytes of literals; they have a bit in common.
    pub literals: [Table; SIEVED_BYTES],
}

/// The bit for what may stand between a name and its separator, in the table of last bytes.
pub(super) const GAP_BIT: u8 = 1 << 7;
/// Of a literal, as many bytes are sieved.
pub(super) const SIEVED_BYTES: usize = 4;
/// The bits for separators that begin something.
pub(super) const OWN_BITS: [u8; 2] = [1 << 6, 1 << 7];

/// What the bytes of a block are.
#[derive(Default)]
struct Kinds {
    words: u64,
    separators: u64,
    dashes: u64,
}

/// What matters for the beginning of tokens, around a block.
struct Around {
    /// The bytes of names and numbers.
    names: u128,
    marks: u128,
    /// Whether an escape may be among the bytes.
    escaped: bool,
}

/// Whether a byte may stand in a word: letters, digits, `-`, `.`, `_`, `~` and others, but not what most
/// often ends one.
pub(super) fn is_word(byte: u8) -> bool {
    byte >= b'-' && byte != b'/' && byte != b':'
}

/// What joins the beginning of a token to the rest of it.
pub(super) fn is_mark(byte: u8) -> bool {
    matches!(byte, b'-' | b'.' | b'_' | b'~')
}

impl Masks {
    /// Maps a window. What lies past its end counts as nothing.
    pub fn map(&mut self, bytes: &[u8], sieve: &Sieve) {
        #[cfg(target_arch = "x86_64")]
        if avx512::map(self, bytes, sieve) || avx2::map(self, bytes) {
            return;
        }
        self.map_with(bytes, plain::kinds, plain::around);
    }

    /// The maps of every way that this processor can, for tests.
    #[cfg(test)]
    pub fn of_every_way(bytes: &[u8], sieve: &Sieve) -> Vec<(&'static str, Masks)> {
        let mut all = vec![("plain", Masks::default())];
        all[0].1.map_with(bytes, plain::kinds, plain::around);
        #[cfg(target_arch = "x86_64")]
        {
            let (mut avx2, mut avx512) = (Masks::default(), Masks::default());
            all.extend(avx2::map(&mut avx2, bytes).then_some(("avx2", avx2)));
            all.extend(avx512::map(&mut avx512, bytes, sieve).then_some(("avx512", avx512)));
        }
        all
    }

    #[inline(always)]
    fn map_with(
        &mut self,
        bytes: &[u8],
        kinds: impl Fn(&[u8; BLOCK_BYTES]) -> Kinds,
        around: impl Fn(&[u8; AROUND_BYTES]) -> Around,
    ) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let count = bytes.len().div_ceil(BLOCK_BYTES);
        for map in [&mut self.tokens, &mut self.separators, &mut self.dashes] {
            map.clear();
            map.resize(count, 0);
        }
        self.literals.clear();
        let mut last = [0; BLOCK_BYTES];
        for (slot, byte) in last.iter_mut().zip(rest) {
            *slot = *byte;
        }
        let maps = self.tokens.iter_mut().zip(&mut self.separators).zip(&mut self.dashes).enumerate();
        let mut next = Kinds::default();
        for (index, ((tokens, separators), dashes)) in maps.rev() {
            let kinds = kinds(blocks.get(index).unwrap_or(&last));
            *separators = kinds.separators;
            *dashes = last_pairs(kinds.dashes, next.dashes);
            *tokens = match long_runs(kinds.words, next.words) {
                0 => 0,
                long => long & token_starts(bytes, index * BLOCK_BYTES, &around),
            };
            next = kinds;
        }
    }
}

/// The bits that begin a run of [`WORD_BYTES_MIN`] bits, which may go on in the next block.
#[inline(always)]
fn long_runs(bits: u64, next: u64) -> u64 {
    let twice = |(bits, next): (u64, u64), by: u32| (bits & shifted(bits, next, by), next & next >> by);
    let four = twice(twice((bits, next), 1), 2);
    let sixteen = twice(twice(four, 4), 8);
    sixteen.0 & shifted(four.0, four.1, 16)
}

/// The bits as far back as told, those of the next block behind them.
#[inline(always)]
fn shifted(bits: u64, next: u64, by: u32) -> u64 {
    bits >> by | next << (64 - by)
}

/// The bits that are followed by one more and then by none.
#[inline(always)]
fn last_pairs(bits: u64, next: u64) -> u64 {
    bits & shifted(bits, next, 1) & !shifted(bits, next, 2)
}

/// Where in the block at `from` a token may begin: at the edge of a name or number, or before a mark.
/// More than that may be told: near an escape, and at the ends of a window.
#[inline(always)]
fn token_starts(bytes: &[u8], from: usize, look: impl Fn(&[u8; AROUND_BYTES]) -> Around) -> u64 {
    let around = from.checked_sub(EDGE_BYTES).and_then(|start| bytes.get(start..)?.first_chunk());
    let Some(Around { names, marks, escaped: false }) = around.map(look) else { return u64::MAX };
    let behind_names = (names >> (EDGE_BYTES - 1)) as u64;
    !behind_names | before_marks((marks >> EDGE_BYTES) as u64, (marks >> (EDGE_BYTES + BLOCK_BYTES)) as u64)
}

/// The bits with a mark at most [`MARK_BYTES_MAX`] bits behind them.
#[inline(always)]
fn before_marks(marks: u64, next: u64) -> u64 {
    let (mut before, mut next) = (shifted(marks, next, 1), next >> 1);
    for by in [1, 2, 4, 2] {
        (before, next) = (before | shifted(before, next, by), next | next >> by);
    }
    before
}

/// The first bit from `from` on that is wanted.
#[inline]
pub(super) fn next_bit_where(
    map: &[u64],
    from: usize,
    mut wanted: impl FnMut(usize) -> bool,
) -> Option<usize> {
    let mut index = from / 64;
    let mut bits = map.get(index)? & (u64::MAX << (from % 64));
    loop {
        while bits != 0 {
            let at = index * 64 + bits.trailing_zeros() as usize;
            if wanted(at) {
                return Some(at);
            }
            bits &= bits - 1;
        }
        index += 1;
        bits = *map.get(index)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::{View, is_edge};
    use super::*;
    use proptest::prelude::*;

    fn bits(map: &[u64]) -> Vec<usize> {
        let mut all = Vec::new();
        while let Some(bit) = next_bit_where(map, all.last().map_or(0, |bit| bit + 1), |_| true) {
            all.push(bit);
        }
        all
    }

    /// Text in which words, edges, marks and escapes are frequent.
    const TEXT: &str =
        "([a-cA-Z0-9_]{1,12}|[a-c0-9]{20,90}|[-./:=>$ ~]{1,3}|[\\\\%\u{1b}]n?){0,60}|[ab-]{0,300}";

    fn plain(bytes: &[u8]) -> Masks {
        let mut masks = Masks::default();
        masks.map_with(bytes, plain::kinds, plain::around);
        masks
    }

    proptest! {
        #[test]
        fn the_maps_say_what_a_plain_look_says(text in TEXT) {
            let bytes = text.as_bytes();
            let masks = plain(bytes);
            let all = |is: &dyn Fn(usize) -> bool| (0..bytes.len()).filter(|at| is(*at)).collect::<Vec<_>>();
            let dash = |at: usize| bytes.get(at) == Some(&b'-');
            prop_assert_eq!(bits(&masks.separators), all(&|at| matches!(bytes[at], b'=' | b':' | b'>' | b'$')));
            prop_assert_eq!(bits(&masks.dashes), all(&|at| dash(at) && dash(at + 1) && !dash(at + 2)));
        }

        /// Where a shape may begin there is a bit, and where there is one a long word follows.
        #[test]
        fn tokens_begin_at_edges_and_before_marks_of_long_words(text in TEXT) {
            let bytes = text.as_bytes();
            let found = bits(&plain(bytes).tokens);
            for at in 0..bytes.len() {
                let is_long = bytes.get(at..at + WORD_BYTES_MIN).is_some_and(|run| run.iter().all(|b| is_word(*b)));
                let is_edge = is_edge(View { bytes, last: true }, at);
                let has_mark = bytes[at + 1..].iter().take(MARK_BYTES_MAX).any(|byte| is_mark(*byte));
                let has_bit = found.binary_search(&at).is_ok();
                prop_assert!(is_long || !has_bit, "no long word at {at} of {text:?}");
                prop_assert!(has_bit || !(is_long && (is_edge || has_mark)), "at {at} of {text:?}");
            }
        }

        /// Separators and literals are sieved on some, which the tests of `search` look at.
        #[test]
        fn every_processor_says_the_same(text in TEXT) {
            let none = Sieve { ends: [[0; 128]; 3], own: [0; 128], behind: [0; 128], literals: [[0; 128]; 4] };
            let plain = plain(text.as_bytes());
            for (way, masks) in Masks::of_every_way(text.as_bytes(), &none) {
                prop_assert_eq!(bits(&masks.tokens), bits(&plain.tokens), "{}", way);
                prop_assert_eq!(bits(&masks.dashes), bits(&plain.dashes), "{}", way);
            }
        }
    }

    /// Otherwise everything would be told everywhere, and the two tests above would not notice.
    #[test]
    fn the_inside_of_a_long_name_is_no_place_to_begin() {
        let text = format!("{} {} {}", "x".repeat(60), "a".repeat(100), " ".repeat(100));
        let inside: Vec<usize> =
            bits(&plain(text.as_bytes()).tokens).into_iter().filter(|at| *at >= 64).collect();
        assert_eq!(inside, [0; 0]);
    }
}
