//! The exact filter: which positions of a text may begin a rule's anchor.
//!
//! A bit for each pair of bytes says whether any anchor begins with that pair, another, for a hash of three
//! bytes, whether one begins with these three; the 16 KiB of bits stay in the first-level cache. Behind a
//! pair its rank leads to the few anchors that begin so.

use super::pair::may_follow_name;
use super::rules::{Check, Rule};
use super::shape::{Class, Part};

/// What an anchor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A rule of the built-in table.
    Rule(usize),
    /// A literal value of a secret variable.
    Literal(usize),
}

/// The beginning of a rule or a value.
#[derive(Clone, Copy)]
pub(super) struct Anchor<'a> {
    pub bytes: &'a [u8],
    /// Whether upper and lower case are one.
    pub fold: bool,
    /// What may follow an anchor of two bytes.
    pub thirds: Thirds,
    pub target: Target,
}

impl Anchor<'static> {
    /// The beginning of a rule of the table.
    pub fn of(index: usize, rule: &'static Rule) -> Anchor<'static> {
        let thirds = match rule.check {
            Check::Pair(_) => Thirds::OfName,
            Check::PgPass => Thirds::OfClass(Class::Digit),
            Check::Shape { parts: [Part::Run(class, ..) | Part::Open(class, _), ..], .. } => {
                Thirds::OfClass(*class)
            }
            _ => Thirds::Any,
        };
        Anchor { bytes: rule.anchor.as_bytes(), fold: rule.fold, thirds, target: Target::Rule(index) }
    }
}

/// The bytes that may follow an anchor of two.
#[derive(Debug, Clone, Copy)]
pub(super) enum Thirds {
    Any,
    /// What may stand after a name.
    OfName,
    OfClass(Class),
}

impl Thirds {
    fn has(self, byte: u8) -> bool {
        match self {
            Thirds::Any => true,
            Thirds::OfName => may_follow_name(byte),
            Thirds::OfClass(class) => class.has(byte),
        }
    }

    fn all(self) -> impl Iterator<Item = u8> + Clone {
        (0..=u8::MAX).filter(move |byte| self.has(*byte))
    }

    fn pairs(self) -> Vec<(u8, u8)> {
        self.all().flat_map(|first| self.all().map(move |second| (first, second))).collect()
    }
}

/// The bits, their ranks, and the targets of each pair.
pub(super) struct Filter {
    bits: Box<[u64; 1024]>,
    /// The hashes of the first three bytes of the anchors.
    threes: Box<[u64; 1024]>,
    /// How many bits are set before each word of `bits`.
    ranks: Box<[u16; 1024]>,
    groups: Vec<Vec<Target>>,
    /// Whether a byte is the first of a pair.
    firsts: [bool; 256],
}

impl Filter {
    /// Builds the filter from the first three bytes of each anchor.
    pub fn new(anchors: &[Anchor<'_>]) -> Filter {
        let mut pairs: Vec<(u16, Target)> = Vec::new();
        let mut threes = Box::new([0; 1024]);
        for anchor in anchors {
            let (beginnings, rest) = match anchor.bytes {
                [first, second, rest @ ..] => (pairs_of(*first, *second, anchor.fold), rest),
                // Whatever its first part may begin with.
                [] => (anchor.thirds.pairs(), &[][..]),
                _ => continue,
            };
            for (a, b) in beginnings {
                pairs.push((pair(a, b), anchor.target));
                for c in thirds(rest, anchor) {
                    set(&mut threes, three(a, b, c));
                }
            }
        }
        // A stable sort, and one entry per pair and target: the order of the table is the order of choice.
        pairs.sort_by_key(|(pair, _)| *pair);
        pairs.dedup();
        let mut filter = Filter {
            bits: Box::new([0; 1024]),
            threes,
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
            set(&mut self.bits, *pair);
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
        let at = tail.array_windows().position(|bytes| self.matches(bytes)).or_else(|| match tail {
            // The third byte of the last pair has not come yet.
            [.., a, b] if has(&self.bits, pair(*a, *b)) => Some(tail.len() - 2),
            _ => None,
        });
        at.map(|at| from + at)
    }

    /// Whether an anchor may begin with these three bytes.
    #[inline]
    pub fn matches(&self, [a, b, c]: &[u8; 3]) -> bool {
        has(&self.bits, pair(*a, *b)) && has(&self.threes, three(*a, *b, *c))
    }

    /// The anchors that may begin with these two bytes.
    pub fn targets(&self, first: u8, second: u8) -> &[Target] {
        let pair = pair(first, second);
        if !has(&self.bits, pair) {
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
}

#[inline]
fn has(bits: &[u64; 1024], pair: u16) -> bool {
    let (word, bit) = place(pair);
    bits.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
}

fn set(bits: &mut [u64; 1024], pair: u16) {
    let (word, bit) = place(pair);
    if let Some(bits) = bits.get_mut(word) {
        *bits |= 1 << bit;
    }
}

/// The pairs that an anchor may begin with.
fn pairs_of(first: u8, second: u8, fold: bool) -> Vec<(u8, u8)> {
    cases(first, fold)
        .into_iter()
        .flat_map(|a| cases(second, fold).into_iter().map(move |b| (a, b)))
        .collect()
}

/// The bytes that may stand third.
fn thirds(rest: &[u8], anchor: &Anchor<'_>) -> Vec<u8> {
    match rest.first() {
        Some(third) => cases(*third, anchor.fold),
        None => anchor.thirds.all().collect(),
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

/// A hash of three bytes: they are spread so that letters, which differ in few bits, do not fall together.
#[inline]
fn three(first: u8, second: u8, third: u8) -> u16 {
    let spread = u32::from_be_bytes([0, first, second, third]).wrapping_mul(0x9E37_79B1);
    let [high, low, ..] = spread.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[inline]
fn place(pair: u16) -> (usize, u32) {
    (usize::from(pair >> 6), u32::from(pair & 63))
}
