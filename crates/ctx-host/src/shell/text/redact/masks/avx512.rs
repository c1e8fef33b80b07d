//! The same with 64 bytes in one instruction, and whatever a byte may mean in one look into a table, where the
//! processor can. So there is room for more: separators and literals are sieved by the bytes around them.

use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_maskz_permutex2var_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
    _mm512_set1_epi8, _mm512_ternarylogic_epi64, _mm512_test_epi8_mask,
};

use super::{
    BLOCK_BYTES, EDGE_BYTES, Masks, SIEVED_BYTES, Sieve, Table, before_marks, is_mark, is_word, last_pairs,
    long_runs, shifted,
};

/// What a byte may be. The last two bits are the sieve's, for separators that begin anchors.
const OTHER: u8 = 1;
const NAME: u8 = 1 << 1;
const MARK: u8 = 1 << 2;
const ESCAPE: u8 = 1 << 3;
const DASH: u8 = 1 << 4;
const SEPARATOR: u8 = 1 << 5;

/// A block with what stands around it: two bytes before and three behind.
const PIECE_BYTES: usize = 2 + BLOCK_BYTES + 3;

/// Blocks that are looked at before what they are is put together: the one is work for vectors, the other is not.
const ROW: usize = 16;

/// Maps a window, if the processor can.
pub(super) fn map(masks: &mut Masks, bytes: &[u8], sieve: &Sieve) -> bool {
    let can = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2");
    if can {
        #[expect(unsafe_code, reason = "the processor was asked whether it can")]
        // SAFETY: the features of `map_wide` are those that were asked for.
        unsafe {
            map_wide(masks, bytes, sieve);
        }
    }
    can
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
fn map_wide(masks: &mut Masks, bytes: &[u8], sieve: &Sieve) {
    let count = bytes.len().div_ceil(BLOCK_BYTES);
    let Masks { tokens, separators, dashes, literals } = masks;
    for map in [&mut *tokens, &mut *separators, &mut *dashes, &mut *literals] {
        map.clear();
        map.resize(count.next_multiple_of(ROW), 0);
    }
    let wide = WideSieve::new(sieve);
    let maps = rows(tokens).zip(rows(separators)).zip(rows(dashes)).zip(rows(literals));
    let (mut row, mut gap) = (Row::before(), Gap::default());
    wide.look(bytes, 0, ROW + 1, &mut row);
    for (index, (((tokens, separators), dashes), literals)) in maps.enumerate() {
        row.go_on();
        for place in 2..ROW + 2 {
            wide.look(bytes, index * ROW + place - 1, place, &mut row);
        }
        row.put_tokens(tokens);
        row.put_dashes(dashes);
        row.put_separators(separators, &mut gap);
        row.put_literals(literals);
    }
}

fn rows(map: &mut [u64]) -> impl Iterator<Item = &mut [u64; ROW]> {
    map.as_chunks_mut().0.iter_mut()
}

/// What the bytes of some blocks are, of one before them and one behind.
struct Row {
    words: [u64; ROW + 2],
    names: [u64; ROW + 2],
    marks: [u64; ROW + 2],
    /// And what is no byte of the window.
    escapes: [u64; ROW + 2],
    dashes: [u64; ROW + 2],
    separators: [u64; ROW + 2],
    /// Where a separator would begin something, by what is behind it.
    begins: [u64; ROW + 2],
    /// The last bytes of what may be a name.
    ends: [u64; ROW + 2],
    gaps: [u64; ROW + 2],
    literals: [u64; ROW + 2],
}

#[expect(clippy::indexing_slicing, reason = "the places are those of the arrays")]
impl Row {
    fn before() -> Row {
        let none = [0; ROW + 2];
        Row {
            words: none,
            names: none,
            marks: none,
            escapes: [u64::MAX; ROW + 2],
            dashes: none,
            separators: none,
            begins: none,
            ends: none,
            gaps: none,
            literals: none,
        }
    }

    /// The last two blocks become the first two.
    #[inline(always)]
    fn go_on(&mut self) {
        let Row { words, names, marks, escapes, dashes, separators, begins, ends, gaps, literals } = self;
        for kind in [words, names, marks, escapes, dashes, separators, begins, ends, gaps, literals] {
            kind.copy_within(ROW.., 0);
        }
    }

    /// Where a token may begin in a long word, as where less is looked at in one instruction.
    #[inline(always)]
    fn put_tokens(&self, tokens: &mut [u64; ROW]) {
        for (place, tokens) in tokens.iter_mut().enumerate() {
            let here = place + 1;
            let escapes = self.escapes[here]
                | self.escapes[here - 1] >> EDGE_BYTES
                | self.escapes[here + 1] << EDGE_BYTES;
            let names = self.names[here] << 1 | self.names[here - 1] >> 63;
            let starts = !names | before_marks(self.marks[here], self.marks[here + 1]);
            let starts = if escapes == 0 { starts } else { u64::MAX };
            *tokens = starts & long_runs(self.words[here], self.words[here + 1]);
        }
    }

    #[inline(always)]
    fn put_dashes(&self, dashes: &mut [u64; ROW]) {
        for (place, dashes) in dashes.iter_mut().enumerate() {
            *dashes = last_pairs(self.dashes[place + 1], self.dashes[place + 2]);
        }
    }

    #[inline(always)]
    fn put_separators(&self, separators: &mut [u64; ROW], gap: &mut Gap) {
        for (place, separators) in separators.iter_mut().enumerate() {
            let here = place + 1;
            let behind_names = gap.behind_names(self.ends[here], self.gaps[here]);
            let (all, next) = (self.separators[here], self.separators[here + 1]);
            let ports = shifted(all, next, 5) | shifted(all, next, 6);
            *separators = all & (self.begins[here] | ports | behind_names);
        }
    }

    #[inline(always)]
    fn put_literals(&self, literals: &mut [u64; ROW]) {
        for (place, literals) in literals.iter_mut().enumerate() {
            *literals = self.literals[place + 1];
        }
    }
}

/// What goes on from one block to the next between names and separators.
#[derive(Default)]
struct Gap {
    /// Whether the last byte ended a name.
    ended: bool,
    /// Whether a gap behind a name goes on.
    open: bool,
}

impl Gap {
    /// The bits behind the end of a name, and those behind a gap that follows one.
    #[inline(always)]
    fn behind_names(&mut self, ends: u64, gaps: u64) -> u64 {
        let behind = ends << 1 | u64::from(self.ended);
        // Adding a bit to the first of a run carries it to the bit behind the run.
        let (sum, over) = gaps.overflowing_add(behind & gaps);
        let (sum, more) = sum.overflowing_add(u64::from(self.open));
        (self.ended, self.open) = (ends >> 63 != 0, over | more);
        behind | sum & !gaps
    }
}

/// A table for 128 bytes, in two registers.
#[derive(Clone, Copy)]
struct WideTable {
    low: __m512i,
    high: __m512i,
}

struct WideSieve {
    kinds: WideTable,
    ends: [WideTable; 3],
    behind: WideTable,
    literals: [WideTable; SIEVED_BYTES],
}

impl WideTable {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn new(table: &Table) -> WideTable {
        let (halves, _) = table.as_chunks::<BLOCK_BYTES>();
        let [low, high] = halves else { return WideTable::new(&[0; 128]) };
        WideTable { low: bytemuck::must_cast(*low), high: bytemuck::must_cast(*high) }
    }

    /// What the table has for each byte, as if it had no highest bit.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn look(&self, bytes: __m512i) -> __m512i {
        _mm512_permutex2var_epi8(self.low, bytes, self.high)
    }

    /// What the table has for each ASCII byte, and nothing for others.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn look_ascii(&self, bytes: __m512i) -> __m512i {
        _mm512_maskz_permutex2var_epi8(!_mm512_movepi8_mask(bytes), self.low, bytes, self.high)
    }
}

impl WideSieve {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn new(sieve: &Sieve) -> WideSieve {
        let [a, b, c, d] = &sieve.literals;
        let [third, second, last] = &sieve.ends;
        WideSieve {
            kinds: WideTable::new(&kinds_of_bytes(&sieve.own)),
            ends: [WideTable::new(third), WideTable::new(second), WideTable::new(last)],
            behind: WideTable::new(&sieve.behind),
            literals: [WideTable::new(a), WideTable::new(b), WideTable::new(c), WideTable::new(d)],
        }
    }

    /// Says in `row` what the bytes of a block are.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn look(&self, bytes: &[u8], index: usize, place: usize, row: &mut Row) {
        let from = index * BLOCK_BYTES;
        match from.checked_sub(2).and_then(|from| bytes.get(from..)?.first_chunk()) {
            Some(piece) => self.look_at(piece, 0, place, row),
            None => {
                let (piece, missing) = piece_at_end(bytes, from);
                self.look_at(&piece, missing, place, row);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the place is one of the arrays")]
    fn look_at(&self, piece: &[u8; PIECE_BYTES], missing: u64, place: usize, row: &mut Row) {
        let block = at::<2>(piece);
        let kinds = self.kinds.look_ascii(block);
        let is = |kind: u8| _mm512_test_epi8_mask(kinds, _mm512_set1_epi8(kind.cast_signed()));
        row.words[place] = !is(OTHER);
        row.names[place] = is(NAME);
        row.marks[place] = is(MARK);
        row.escapes[place] = is(ESCAPE) | missing;
        row.dashes[place] = is(DASH);
        row.separators[place] = is(SEPARATOR);
        let [third, second, last] = &self.ends;
        let (third, second, last) =
            (third.look(at::<0>(piece)), second.look(at::<1>(piece)), last.look(block));
        row.begins[place] = _mm512_test_epi8_mask(kinds, self.behind.look(at::<3>(piece)));
        row.ends[place] = _mm512_test_epi8_mask(_mm512_and_si512(third, second), last);
        row.gaps[place] = _mm512_movepi8_mask(last);
        let [a, b, c, d] = &self.literals;
        let (a, b, c) = (a.look(block), b.look(at::<3>(piece)), c.look(at::<4>(piece)));
        let three = _mm512_ternarylogic_epi64::<0x80>(a, b, c);
        row.literals[place] = _mm512_test_epi8_mask(three, d.look(at::<5>(piece)));
    }
}

/// The 64 bytes from `FROM` on.
#[target_feature(enable = "avx512f")]
#[inline]
fn at<const FROM: usize>(piece: &[u8; PIECE_BYTES]) -> __m512i {
    let bytes = piece.get(FROM..).and_then(<[u8]>::first_chunk::<BLOCK_BYTES>);
    bytemuck::must_cast(*bytes.unwrap_or(&[0; BLOCK_BYTES]))
}

/// A block at one of the window's ends, with zeros where nothing is, and which of its bytes these are.
#[cold]
fn piece_at_end(bytes: &[u8], from: usize) -> ([u8; PIECE_BYTES], u64) {
    let mut piece = [0; PIECE_BYTES];
    let (skipped, start) = (2usize.saturating_sub(from), from.saturating_sub(2));
    for (slot, byte) in piece.iter_mut().skip(skipped).zip(bytes.get(start..).unwrap_or_default()) {
        *slot = *byte;
    }
    let there = bytes.len().saturating_sub(from);
    let missing = if there < BLOCK_BYTES { u64::MAX << there } else { 0 };
    (piece, missing)
}

fn kinds_of_bytes(own: &Table) -> Table {
    let mut table = *own;
    for (slot, byte) in table.iter_mut().zip(0u8..) {
        let kinds = [
            (OTHER, !is_word(byte)),
            (NAME, byte.is_ascii_alphanumeric() || byte == b'_'),
            (MARK, is_mark(byte)),
            (ESCAPE, matches!(byte, 0x1b | b'\\' | b'%')),
            (DASH, byte == b'-'),
            (SEPARATOR, matches!(byte, b'=' | b':' | b'>' | b'$')),
        ];
        *slot |= kinds.into_iter().filter(|(_, is)| *is).fold(0, |all, (kind, _)| all | kind);
    }
    table
}
