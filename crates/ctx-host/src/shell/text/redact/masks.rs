//! What the bytes of a window are, one bit a byte: where long words, separators and double dashes stand.
//!
//! Sixteen bytes are looked at in one instruction. Nothing here knows a rule; it only says where looking
//! closer may be worth it.

use wide::u8x16;

/// Every shape that is told by its own bytes alone goes on for at least this many bytes of a word.
pub(super) const WORD_BYTES_MIN: usize = 20;

const BLOCK_BYTES: usize = 64;

/// The maps of one window.
#[derive(Default)]
pub(super) struct Masks {
    /// Where a word of [`WORD_BYTES_MIN`] bytes begins or goes on for so many.
    pub words: Vec<u64>,
    /// `=`, `:`, `>` and `$`.
    pub separators: Vec<u64>,
    /// The last two of two or more dashes.
    pub dashes: Vec<u64>,
}

/// Whether a byte may stand in a word: letters, digits, `-`, `.`, `_`, `~` and others, but not what most
/// often ends one.
pub(super) fn is_word(byte: u8) -> bool {
    byte >= b'-' && byte != b'/' && byte != b':'
}

impl Masks {
    /// Maps a window. What lies past its end counts as nothing.
    pub fn map(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let count = bytes.len().div_ceil(BLOCK_BYTES);
        for map in [&mut self.words, &mut self.separators, &mut self.dashes] {
            map.clear();
            map.resize(count, 0);
        }
        let mut last = [0; BLOCK_BYTES];
        for (slot, byte) in last.iter_mut().zip(rest) {
            *slot = *byte;
        }
        let slots = self.words.iter_mut().zip(&mut self.separators).zip(&mut self.dashes);
        for (((words, separators), dashes), block) in slots.zip(blocks.iter().chain([&last])) {
            (*words, *separators, *dashes) = look(block);
        }
        lengthen(&mut self.words);
        last_pairs(&mut self.dashes);
    }
}

/// The bytes of words, the separators and the dashes of a block.
#[inline]
fn look(block: &[u8; BLOCK_BYTES]) -> (u64, u64, u64) {
    let (mut words, mut separators, mut dashes) = (0, 0, 0);
    let (quarters, _) = block.as_chunks::<16>();
    for (index, quarter) in quarters.iter().enumerate() {
        let bytes = u8x16::new(*quarter);
        let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
        let colon = is(b':');
        let other = bytes.max(u8x16::splat(b'-' - 1)).simd_eq(u8x16::splat(b'-' - 1)) | is(b'/') | colon;
        let separator = colon | is(b'=') | is(b'>') | is(b'$');
        let shift = 16 * index;
        words |= u64::from(other.to_bitmask()) << shift;
        separators |= u64::from(separator.to_bitmask()) << shift;
        dashes |= u64::from(is(b'-').to_bitmask()) << shift;
    }
    (!words, separators, dashes)
}

/// Leaves the bits that begin a run of [`WORD_BYTES_MIN`] bits.
fn lengthen(words: &mut [u64]) {
    let mut after = 0u32;
    for word in words.iter_mut().rev() {
        let bits = *word;
        let two = bits & bits >> 1;
        let four = two & two >> 2;
        let eight = four & four >> 4;
        let sixteen = eight & eight >> 8;
        let mut long = sixteen & four >> 16;
        // A run that goes on in the next block.
        let here = bits.leading_ones();
        if here > 0 && here + after >= WORD_BYTES_MIN as u32 {
            let begin = 64 - here;
            let end = (64 + after - WORD_BYTES_MIN as u32).min(63);
            long |= (u64::MAX >> (63 - end)) & (u64::MAX << begin);
        }
        after = if bits == u64::MAX { 64 } else { bits.trailing_ones() };
        *word = long;
    }
}

/// Leaves the bits that are followed by one more and then by none.
fn last_pairs(dashes: &mut [u64]) {
    let mut after = 0;
    for word in dashes.iter_mut().rev() {
        let bits = *word;
        let (next, second) = (bits >> 1 | after << 63, bits >> 2 | after << 62);
        after = bits;
        *word = bits & next & !second;
    }
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
    use super::*;
    use proptest::prelude::*;

    fn bits(map: &[u64]) -> Vec<usize> {
        let mut all = Vec::new();
        while let Some(bit) = next_bit_where(map, all.last().map_or(0, |bit| bit + 1), |_| true) {
            all.push(bit);
        }
        all
    }

    proptest! {
        #[test]
        fn the_maps_say_what_a_plain_look_says(bytes in "[a-c0-9/:=>$ .-]{0,300}|[ab-]{0,300}") {
            let bytes = bytes.as_bytes();
            let mut masks = Masks::default();
            masks.map(bytes);
            let all = |is: &dyn Fn(usize) -> bool| (0..bytes.len()).filter(|at| is(*at)).collect::<Vec<_>>();
            let word = |at: usize| bytes.get(at..at + WORD_BYTES_MIN).is_some_and(|run| run.iter().all(|b| is_word(*b)));
            let dash = |at: usize| bytes.get(at) == Some(&b'-');
            prop_assert_eq!(bits(&masks.words), all(&word));
            prop_assert_eq!(bits(&masks.separators), all(&|at| matches!(bytes[at], b'=' | b':' | b'>' | b'$')));
            prop_assert_eq!(bits(&masks.dashes), all(&|at| dash(at) && dash(at + 1) && !dash(at + 2)));
        }
    }
}
