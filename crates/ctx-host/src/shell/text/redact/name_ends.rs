//! Which two bytes may stand before the separator of a pair.
//!
//! Separators are everywhere and names are rare: two looks into small tables, with a bit for each name, tell nearly
//! all others apart. What is left is looked at by `search`.

/// The tables.
pub(super) struct NameEnds {
    second: [u32; 256],
    last: [u32; 256],
}

/// What may stand between a name and its separator, behind any byte; and the end of a colour sequence.
const GAP: u32 = 1 << 31;
const COLOUR: u32 = 1 << 30;
/// The last two letters of every name before a separator.
const NAME_ENDS: [&[u8; 2]; 16] = [
    b"rd", b"wd", b"se", b"ss", b"et", b"en", b"al", b"ls", b"th", b"ey", b"on", b"ig", b"sk", b"at", b"pw",
    b"ds",
];

impl NameEnds {
    pub fn new() -> NameEnds {
        let mut ends = NameEnds { second: [GAP; 256], last: [0; 256] };
        let put = |table: &mut [u32; 256], byte: u8, bits: u32| {
            if let Some(slot) = table.get_mut(usize::from(byte)) {
                *slot |= bits;
            }
        };
        for (index, [second, last]) in NAME_ENDS.into_iter().enumerate() {
            for case in [u8::to_ascii_lowercase, u8::to_ascii_uppercase] {
                put(&mut ends.second, case(second), 1 << index);
                put(&mut ends.last, case(last), 1 << index);
            }
        }
        for byte in *b" \t\"'`\\]0123456789" {
            put(&mut ends.last, byte, GAP);
        }
        for byte in *b"mK" {
            put(&mut ends.last, byte, COLOUR);
        }
        for byte in *b"[;0123456789" {
            put(&mut ends.second, byte, COLOUR);
        }
        ends
    }

    #[inline]
    pub fn may_be(&self, second: u8, last: u8) -> bool {
        let bits = |table: &[u32; 256], byte: u8| table.get(usize::from(byte)).copied().unwrap_or(0);
        bits(&self.second, second) & bits(&self.last, last) != 0
    }
}
