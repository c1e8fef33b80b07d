//! The prefilter: which positions of a text may begin a rule's anchor, at memory speed.
//!
//! A bit for each pair of bytes says whether any anchor begins with that pair; the 8 KiB of bits stay in
//! the first-level cache. Behind a set bit its rank leads to the few anchors that begin so.

/// What an anchor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A rule of the built-in table.
    Rule(usize),
    /// A literal value of a secret variable.
    Literal(usize),
}

/// The bits, their ranks, and the targets of each pair.
pub(super) struct Filter {
    bits: Box<[u64; 1024]>,
    /// How many bits are set before each word of `bits`.
    ranks: Box<[u16; 1024]>,
    groups: Vec<Vec<Target>>,
    /// Whether a byte is the first of a pair.
    firsts: [bool; 256],
}

impl Filter {
    /// Builds the filter from the first two bytes of each anchor; `fold` covers both cases.
    pub fn new(anchors: &[(&[u8], bool, Target)]) -> Filter {
        let mut pairs: Vec<(u16, Target)> = Vec::new();
        for (anchor, fold, target) in anchors {
            let [first, second, ..] = anchor else { continue };
            for a in cases(*first, *fold) {
                for b in cases(*second, *fold) {
                    pairs.push((pair(a, b), *target));
                }
            }
        }
        // A stable sort, and one entry per pair and target: the order of the table is the order of choice.
        pairs.sort_by_key(|(pair, _)| *pair);
        pairs.dedup();
        let mut filter = Filter {
            bits: Box::new([0; 1024]),
            ranks: Box::new([0; 1024]),
            groups: Vec::new(),
            firsts: [false; 256],
        };
        filter.fill(&pairs);
        filter
    }

    fn fill(&mut self, pairs: &[(u16, Target)]) {
        for group in pairs.chunk_by(|a, b| a.0 == b.0) {
            let Some((pair, _)) = group.first() else { continue };
            let (word, bit) = place(*pair);
            if let Some(bits) = self.bits.get_mut(word) {
                *bits |= 1 << bit;
            }
            let [first, _] = pair.to_be_bytes();
            if let Some(is_first) = self.firsts.get_mut(usize::from(first)) {
                *is_first = true;
            }
            self.groups.push(group.iter().map(|(_, target)| *target).collect());
        }
        let mut count = 0u16;
        for (rank, bits) in self.ranks.iter_mut().zip(self.bits.iter()) {
            *rank = count;
            count += u16::try_from(bits.count_ones()).unwrap_or(0);
        }
    }

    /// The first position from `from` on where an anchor may begin.
    pub fn next(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let tail = bytes.get(from..)?;
        tail.windows(2).position(|two| matches!(two, [a, b] if self.has(pair(*a, *b)))).map(|at| from + at)
    }

    /// The anchors that may begin with these two bytes.
    pub fn targets(&self, first: u8, second: u8) -> &[Target] {
        let pair = pair(first, second);
        if !self.has(pair) {
            return &[];
        }
        let (word, bit) = place(pair);
        let (Some(bits), Some(rank)) = (self.bits.get(word), self.ranks.get(word)) else { return &[] };
        let below = (bits & ((1u64 << bit) - 1)).count_ones();
        let group = usize::from(*rank) + below as usize;
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }

    /// Whether an anchor may begin with this byte, the second not being known yet.
    pub fn may_begin(&self, byte: u8) -> bool {
        self.firsts.get(usize::from(byte)).copied().unwrap_or(false)
    }

    #[inline]
    fn has(&self, pair: u16) -> bool {
        let (word, bit) = place(pair);
        self.bits.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }
}

fn cases(byte: u8, fold: bool) -> Vec<u8> {
    let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
    if fold && lower != upper { vec![lower, upper] } else { vec![byte] }
}

#[inline]
fn pair(first: u8, second: u8) -> u16 {
    u16::from_be_bytes([first, second])
}

#[inline]
fn place(pair: u16) -> (usize, u32) {
    (usize::from(pair >> 6), u32::from(pair & 63))
}
