//! Which two bytes may stand before the separator of a pair, and which behind one that begins an anchor itself.
//!
//! Separators are everywhere and names are rare: a few looks into small tables, with a bit for each name, tell nearly
//! all others apart. What is left is looked at by `search`.

use std::ops::BitOrAssign;

/// The tables.
pub(super) struct NameEnds {
    second: [u32; 256],
    last: [u32; 256],
    separator: [u8; 256],
    next: [u8; 256],
}

/// What may stand between a name and its separator, behind any byte; and the end of a colour sequence.
const GAP: u32 = 1 << 31;
const COLOUR: u32 = 1 << 30;
/// The last two letters of every name before a separator.
const NAME_ENDS: [&[u8; 2]; 16] = [
    b"rd", b"wd", b"se", b"ss", b"et", b"en", b"al", b"ls", b"th", b"ey", b"on", b"ig", b"sk", b"at", b"pw",
    b"ds",
];
/// The separators that begin anchors, and what follows them there.
const OWN: [(u8, &[u8]); 2] = [(b':', b"/A*123456789"), (b'$', b"12567ayg")];

impl NameEnds {
    pub fn new() -> NameEnds {
        let mut ends = NameEnds { second: [GAP; 256], last: [0; 256], separator: [0; 256], next: [0; 256] };
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
        for (index, (separator, nexts)) in OWN.into_iter().enumerate() {
            put(&mut ends.separator, separator, 1 << index);
            for next in nexts {
                put(&mut ends.next, *next, 1 << index);
            }
        }
        ends
    }

    /// Whether a name may end with these two.
    #[inline]
    pub fn may_be(&self, second: u8, last: u8) -> bool {
        bits(&self.second, second) & bits(&self.last, last) != 0
    }

    /// Whether an anchor may begin with these two.
    #[inline]
    pub fn may_begin(&self, separator: u8, next: u8) -> bool {
        bits(&self.separator, separator) & bits(&self.next, next) != 0
    }
}

fn put<T: BitOrAssign>(table: &mut [T; 256], byte: u8, bits: T) {
    if let Some(slot) = table.get_mut(usize::from(byte)) {
        *slot |= bits;
    }
}

#[inline]
fn bits<T: Copy + Default>(table: &[T; 256], byte: u8) -> T {
    table.get(usize::from(byte)).copied().unwrap_or_default()
}
