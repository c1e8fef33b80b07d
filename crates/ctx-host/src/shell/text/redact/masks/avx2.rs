//! The same with 32 bytes in one instruction, where the processor can.

use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_sub_epi8, _mm256_testz_si256,
};

use super::{AROUND_BYTES, Around, BLOCK_BYTES, Kinds, Masks};

/// Maps a window, if the processor can.
pub(super) fn map(masks: &mut Masks, bytes: &[u8]) -> bool {
    let can = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("lzcnt");
    if can {
        #[expect(unsafe_code, reason = "the processor was asked whether it can")]
        // SAFETY: the features of `map_wide` are those that were asked for.
        unsafe {
            map_wide(masks, bytes);
        }
    }
    can
}

#[target_feature(enable = "avx2,bmi1,lzcnt")]
fn map_wide(masks: &mut Masks, bytes: &[u8]) {
    masks.map_with(bytes, |block| kinds(block), |bytes| around(bytes));
}

#[target_feature(enable = "avx2")]
#[inline]
fn is(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte.cast_signed()))
}

#[target_feature(enable = "avx2")]
#[inline]
fn at_most(bytes: __m256i, most: u8) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(most.cast_signed())), bytes)
}

#[target_feature(enable = "avx2")]
#[inline]
fn within(bytes: __m256i, first: u8, count: u8) -> __m256i {
    at_most(_mm256_sub_epi8(bytes, _mm256_set1_epi8(first.cast_signed())), count - 1)
}

#[target_feature(enable = "avx2")]
#[inline]
fn bits(mask: __m256i) -> u32 {
    _mm256_movemask_epi8(mask).cast_unsigned()
}

#[target_feature(enable = "avx2")]
#[inline]
fn any(masks: [__m256i; 4]) -> __m256i {
    let [a, b, c, d] = masks;
    _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d))
}

#[target_feature(enable = "avx2")]
#[inline]
fn kinds(block: &[u8; BLOCK_BYTES]) -> Kinds {
    let [mut others, mut separators, mut dashes] = [0; 3];
    let (halves, _) = block.as_chunks::<32>();
    for (index, half) in halves.iter().enumerate() {
        let bytes: __m256i = bytemuck::must_cast(*half);
        let colon = is(bytes, b':');
        let other = _mm256_or_si256(_mm256_or_si256(at_most(bytes, b'-' - 1), is(bytes, b'/')), colon);
        let separator = any([colon, is(bytes, b'='), is(bytes, b'>'), is(bytes, b'$')]);
        let shift = 32 * index;
        others |= u64::from(bits(other)) << shift;
        separators |= u64::from(bits(separator)) << shift;
        dashes |= u64::from(bits(is(bytes, b'-'))) << shift;
    }
    Kinds { words: !others, separators, dashes }
}

#[target_feature(enable = "avx2")]
#[inline]
fn around(bytes: &[u8; AROUND_BYTES]) -> Around {
    let (mut names, mut marks, mut escapes) = (0, 0, _mm256_set1_epi8(0));
    let (pieces, _) = bytes.as_chunks::<32>();
    for (index, piece) in pieces.iter().enumerate() {
        let bytes: __m256i = bytemuck::must_cast(*piece);
        let low = is(bytes, b'_');
        let letters = within(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), b'a', 26);
        let name = _mm256_or_si256(_mm256_or_si256(letters, within(bytes, b'0', 10)), low);
        let mark = any([low, is(bytes, b'-'), is(bytes, b'.'), is(bytes, b'~')]);
        escapes = any([escapes, is(bytes, 0x1b), is(bytes, b'\\'), is(bytes, b'%')]);
        names |= u128::from(bits(name)) << (32 * index);
        marks |= u128::from(bits(mark)) << (32 * index);
    }
    Around { names, marks, escaped: _mm256_testz_si256(escapes, escapes) == 0 }
}
