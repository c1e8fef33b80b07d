//! Sixteen bytes in one instruction, as every processor of an architecture can.

use wide::u8x16;

use super::{AROUND_BYTES, Around, BLOCK_BYTES, Kinds};

#[inline]
pub(super) fn kinds(block: &[u8; BLOCK_BYTES]) -> Kinds {
    let (mut others, mut separators, mut dashes) = (0, 0, 0);
    let (pieces, _) = block.as_chunks::<16>();
    for (index, piece) in pieces.iter().enumerate() {
        let bytes = u8x16::new(*piece);
        let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
        let colon = is(b':');
        let other = bytes.min(u8x16::splat(b'-' - 1)).simd_eq(bytes) | is(b'/') | colon;
        let separator = colon | is(b'=') | is(b'>') | is(b'$');
        let shift = 16 * index;
        others |= u64::from(other.to_bitmask()) << shift;
        separators |= u64::from(separator.to_bitmask()) << shift;
        dashes |= u64::from(is(b'-').to_bitmask()) << shift;
    }
    Kinds { words: !others, separators, dashes }
}

#[inline]
pub(super) fn around(bytes: &[u8; AROUND_BYTES]) -> Around {
    let (mut names, mut marks, mut escapes) = (0, 0, u8x16::splat(0));
    let (pieces, _) = bytes.as_chunks::<16>();
    for (index, piece) in pieces.iter().enumerate() {
        let bytes = u8x16::new(*piece);
        let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
        let within = |bytes: u8x16, first: u8, count: u8| {
            let place = bytes - u8x16::splat(first);
            place.min(u8x16::splat(count - 1)).simd_eq(place)
        };
        let low = is(b'_');
        let name = within(bytes | u8x16::splat(0x20), b'a', 26) | within(bytes, b'0', 10) | low;
        let mark = low | is(b'-') | is(b'.') | is(b'~');
        escapes |= is(0x1b) | is(b'\\') | is(b'%');
        names |= u128::from(name.to_bitmask()) << (16 * index);
        marks |= u128::from(mark.to_bitmask()) << (16 * index);
    }
    Around { names, marks, escaped: escapes.any() }
}
