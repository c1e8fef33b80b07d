//! What the bytes of a window are, one bit a byte: where tokens may begin in long words, and where separators and
//! double dashes stand.
//!
//! Many bytes are looked at in one instruction, as many as the processor can. Nothing here knows a rule; it only says
//! where looking closer may be worth it.

#[cfg(target_arch = "x86_64")]
mod avx2;
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
    /// `=`, `:`, `>` and `$`.
    pub separators: Vec<u64>,
    /// The last two of two or more dashes.
    pub dashes: Vec<u64>,
}

/// What the bytes of a block are.
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
    pub fn map(&mut self, bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if avx2::map(self, bytes) {
            return;
        }
        self.map_with(bytes, plain::kinds, plain::around);
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
        let mut last = [0; BLOCK_BYTES];
        for (slot, byte) in last.iter_mut().zip(rest) {
            *slot = *byte;
        }
        let maps = self.tokens.iter_mut().zip(&mut self.separators).zip(&mut self.dashes).enumerate();
        let mut after = After::default();
        for (index, ((tokens, separators), dashes)) in maps.rev() {
            let kinds = kinds(blocks.get(index).unwrap_or(&last));
            *separators = kinds.separators;
            *dashes = after.last_pairs(kinds.dashes);
            *tokens = match after.long(kinds.words) {
                0 => 0,
                long => long & token_starts(bytes, index * BLOCK_BYTES, &around),
            };
        }
    }
}

/// What is known of the bytes after a block.
#[derive(Default)]
struct After {
    /// The bytes of a word that it begins with, up to a whole block.
    word: u32,
    dashes: u64,
}

impl After {
    /// The bits that begin a run of [`WORD_BYTES_MIN`] bits.
    #[inline(always)]
    fn long(&mut self, bits: u64) -> u64 {
        let two = bits & bits >> 1;
        let four = two & two >> 2;
        let eight = four & four >> 4;
        let sixteen = eight & eight >> 8;
        let mut long = sixteen & four >> 16;
        // A run that goes on in the next block.
        let here = bits.leading_ones();
        if here > 0 && here + self.word >= WORD_BYTES_MIN as u32 {
            let begin = 64 - here;
            let end = (64 + self.word - WORD_BYTES_MIN as u32).min(63);
            long |= (u64::MAX >> (63 - end)) & (u64::MAX << begin);
        }
        self.word = if bits == u64::MAX { 64 } else { bits.trailing_ones() };
        long
    }

    /// The bits that are followed by one more and then by none.
    #[inline(always)]
    fn last_pairs(&mut self, bits: u64) -> u64 {
        let (next, second) = (bits >> 1 | self.dashes << 63, bits >> 2 | self.dashes << 62);
        self.dashes = bits;
        bits & next & !second
    }
}

/// Where in the block at `from` a token may begin: at the edge of a name or number, or before a mark.
/// More than that may be told: near an escape, and at the ends of a window.
#[inline(always)]
fn token_starts(bytes: &[u8], from: usize, look: impl Fn(&[u8; AROUND_BYTES]) -> Around) -> u64 {
    let around = from.checked_sub(EDGE_BYTES).and_then(|start| bytes.get(start..)?.first_chunk());
    let Some(Around { names, marks, escaped: false }) = around.map(look) else { return u64::MAX };
    let behind_names = (names >> (EDGE_BYTES - 1)) as u64;
    let mut before_marks = marks >> (EDGE_BYTES + 1);
    for shift in [1, 2, 4, 2] {
        before_marks |= before_marks >> shift;
    }
    !behind_names | before_marks as u64
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

        #[test]
        fn every_processor_says_the_same(text in TEXT) {
            let (mut here, plain) = (Masks::default(), plain(text.as_bytes()));
            here.map(text.as_bytes());
            prop_assert_eq!(here.tokens, plain.tokens);
            prop_assert_eq!(here.separators, plain.separators);
            prop_assert_eq!(here.dashes, plain.dashes);
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
