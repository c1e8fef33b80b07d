//! Where in a window a secret may begin, at memory speed.
//!
//! A rule is found by what it cannot be without, and what is rare in ordinary text: a shape by a long word, a
//! pair or a URL by its separator, an option by its dashes, the rest by literals of four bytes and more. What
//! follows may lie beyond the window's end, so near to it the exact filter looks at every byte.

use super::filter::{Anchor, Filter, Target};
use super::literals::Literals;
use super::masks::{MARK_BYTES_MAX, Masks, Sieve, WORD_BYTES_MIN, is_mark, is_word, next_bit_where};
use super::name_ends::{NameEnds, OPTION_BYTES_MAX, around, at_dashes, at_separator, begins_anchor};
use super::rules::{Check, RULES};
use super::shape::{Class, Left, Part, View, is_edge};

/// Near to its end a window is looked at byte by byte. No separator is farther from its name, no anchor
/// longer.
const EXACT_BYTES: usize = 160;
/// A window shorter than this is not worth its maps.
const MAPPED_BYTES_MIN: usize = 512;

/// The fixed piece of the rule that has no anchor, and how far behind its beginning it stands.
const MIDDLE: (usize, &[u8]) = (32, b"-us");

/// How an anchor is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It begins a long word.
    Word,
    /// A separator stands in it or behind it, or dashes before it.
    Joint,
    /// By its own bytes.
    Literal,
}

/// What to look for.
pub(super) struct Candidates {
    /// Every anchor.
    exact: Filter,
    /// Every anchor that is not empty.
    anchored: Filter,
    /// The anchors of long words.
    words: Filter,
    literals: Literals,
    /// Values that a literal of ours would hide.
    hidden: Literals,
    ends: NameEnds,
    pub(super) sieve: Sieve,
}

impl Candidates {
    pub fn new(anchors: &[Anchor<'_>]) -> Candidates {
        let words: Vec<Anchor<'_>> = anchors
            .iter()
            .filter(|anchor| way(anchor) == Way::Word && !anchor.bytes.is_empty())
            .copied()
            .collect();
        let (literals, hidden) = Literals::of(anchors.iter().filter(|anchor| way(anchor) == Way::Literal));
        let ends = NameEnds::new();
        let [own, behind] = ends.own();
        let sieve = Sieve { ends: ends.ends(), own, behind, literals: Literals::sieve([&literals, &hidden]) };
        let anchored: Vec<Anchor<'_>> =
            anchors.iter().filter(|anchor| !anchor.bytes.is_empty()).copied().collect();
        Candidates {
            exact: Filter::new(anchors),
            anchored: Filter::new(&anchored),
            words: Filter::new(&words),
            literals,
            hidden,
            ends,
            sieve,
        }
    }

    /// The anchors that may begin with these two bytes.
    pub fn targets(&self, first: u8, second: u8) -> &[Target] {
        self.exact.targets(first, second)
    }

    /// Whether an anchor may begin with this byte, the second not being known yet.
    pub fn may_begin(&self, byte: u8) -> bool {
        self.exact.may_begin(byte)
    }
}

/// Whether the fixed piece of the rule without an anchor stands where it would if the rule began at `at`.
#[inline]
fn has_middle(bytes: &[u8], at: usize) -> bool {
    bytes.get(at + MIDDLE.0) == Some(&b'-')
        && bytes.get(at + MIDDLE.0..).is_some_and(|rest| rest.starts_with(MIDDLE.1))
}

fn way(anchor: &Anchor<'_>) -> Way {
    let Target::Rule(index) = anchor.target else { return Way::Literal };
    let Some(rule) = RULES.get(index) else { return Way::Literal };
    match rule.check {
        Check::Shape { left, parts, .. }
            if word_len(rule.anchor, parts) >= WORD_BYTES_MIN
                && (left == Left::Edge || has_mark(rule.anchor)) =>
        {
            Way::Word
        }
        Check::Shape { .. } if rule.anchor == "sig=" || rule.anchor.starts_with('$') => Way::Joint,
        Check::Shape { .. }
        | Check::Bearer
        | Check::Beside { .. }
        | Check::PuttyBlock
        | Check::EncodedKey
        | Check::Words(_) => Way::Literal,
        Check::AfterDigits { .. }
        | Check::Pair(_)
        | Check::Listed
        | Check::Authorization
        | Check::Signature
        | Check::Ssh2Block
        | Check::UrlUser
        | Check::PgPass
        | Check::PemBlock => Way::Joint,
    }
}

/// Whether a mark stands behind the beginning of an anchor, and so near that it tells of it.
fn has_mark(anchor: &str) -> bool {
    anchor.bytes().skip(1).take(MARK_BYTES_MAX).any(is_mark)
}

/// How many bytes of a word a shape begins with, at least.
fn word_len(anchor: &str, parts: &[Part]) -> usize {
    if !anchor.bytes().all(is_word) {
        return 0;
    }
    let mut len = anchor.len();
    for part in parts {
        let (more, whole) = match *part {
            Part::Lit(text) => (text.len(), text.bytes().all(is_word)),
            Part::Run(class, min, _) | Part::Open(class, min) => {
                (min, !matches!(class, Class::Base64 | Class::Percent | Class::Bare))
            }
        };
        if !whole {
            break;
        }
        len += more;
    }
    len
}

/// One way of looking: how far it has looked, and what it has found.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: usize,
    found: Option<usize>,
    over: bool,
}

impl Look {
    fn from(at: usize) -> Look {
        Look { at, found: None, over: false }
    }
}

/// A search through one window.
pub(super) struct Search<'a> {
    candidates: &'a Candidates,
    masks: &'a Masks,
    bytes: &'a [u8],
    /// From here on every byte is looked at.
    exact_from: usize,
    floor: usize,
    words: Look,
    joints: Look,
    /// A separator that begins an anchor itself, to be told behind the one before it.
    own: Option<usize>,
    dashes: Look,
    literals: Look,
    hidden: Look,
    exact: Look,
}

impl<'a> Search<'a> {
    /// Looks from `from` on. The masks are made for this window.
    pub fn new(candidates: &'a Candidates, masks: &'a mut Masks, bytes: &'a [u8], from: usize) -> Search<'a> {
        if bytes.len() >= MAPPED_BYTES_MIN {
            masks.map(bytes, &candidates.sieve);
        }
        Search::with(candidates, masks, bytes, from)
    }

    fn with(candidates: &'a Candidates, masks: &'a Masks, bytes: &'a [u8], from: usize) -> Search<'a> {
        let exact_from = if bytes.len() >= MAPPED_BYTES_MIN { bytes.len() - EXACT_BYTES } else { 0 };
        let nowhere = Look::from(0);
        let mut search = Search {
            candidates,
            masks,
            bytes,
            exact_from,
            floor: from,
            words: nowhere,
            joints: nowhere,
            own: None,
            dashes: nowhere,
            literals: nowhere,
            hidden: nowhere,
            exact: nowhere,
        };
        search.seek(from);
        search
    }

    /// Goes on from `from`, which may lie before what was found last.
    pub fn seek(&mut self, from: usize) {
        self.floor = from;
        self.exact = Look::from(from.max(self.exact_from));
        self.words = Look::from(from);
        self.joints = Look::from(from);
        self.own = None;
        self.dashes = Look::from(from.saturating_sub(OPTION_BYTES_MAX + 2));
        self.literals = Look::from(from);
        self.hidden = Look::from(from);
        if self.exact_from == 0 {
            let Search { words, joints, dashes, literals, hidden, .. } = self;
            for look in [words, joints, dashes, literals, hidden] {
                look.over = true;
            }
        }
    }

    /// The next position where an anchor may begin.
    pub fn next(&mut self) -> Option<usize> {
        self.look(|search| &mut search.words, Search::next_word);
        self.look(|search| &mut search.joints, Search::next_joint);
        self.look(|search| &mut search.dashes, Search::next_dashes);
        self.look(|search| &mut search.literals, Search::next_literal);
        self.look(|search| &mut search.hidden, Search::next_hidden);
        self.look(|search| &mut search.exact, Search::next_exact);
        let Search { words, joints, dashes, literals, hidden, exact, .. } = self;
        let looks = [words, joints, dashes, literals, hidden, exact];
        let first = looks.into_iter().filter(|look| look.found.is_some()).min_by_key(|look| look.found)?;
        first.found.take()
    }

    #[inline]
    fn look(&mut self, which: impl Fn(&mut Self) -> &mut Look, next: impl Fn(&mut Self) -> Option<usize>) {
        let look = which(self);
        if look.over || look.found.is_some() {
            return;
        }
        let found = next(self);
        let look = which(self);
        look.found = found;
        look.over = found.is_none();
    }

    fn next_word(&mut self) -> Option<usize> {
        let Search { candidates, masks, bytes, exact_from, .. } = *self;
        let at = next_bit_where(&masks.tokens, self.words.at, |at| {
            let three = bytes.get(at..).and_then(<[u8]>::first_chunk);
            three.is_some_and(|three| candidates.words.matches(three)) || has_middle(bytes, at)
        })?;
        self.words.at = at + 1;
        (at < exact_from).then_some(at)
    }

    /// What a separator ends or begins. No name reaches back over the separator before, so the order is theirs.
    fn next_joint(&mut self) -> Option<usize> {
        let Search { candidates, masks, bytes, floor, exact_from, .. } = *self;
        if let Some(own) = self.own.take() {
            return Some(own);
        }
        let (mut anchor, mut own) = (None, None);
        let at = next_bit_where(&masks.separators, self.joints.at, |at| {
            let [second, last, separator, next] = around(bytes, at);
            let (ends, begins) =
                (candidates.ends.may_be(second, last), candidates.ends.may_begin(separator, next));
            if !(ends | begins) {
                return false;
            }
            if begins && begins_anchor(bytes, at, separator, next) && at < exact_from {
                own = Some(at);
            }
            if ends {
                anchor = at_separator(bytes, at).filter(|anchor| (floor..exact_from).contains(anchor));
            }
            anchor.is_some() || own.is_some()
        })?;
        self.joints.at = at + 1;
        match anchor {
            Some(anchor) => {
                self.own = own;
                Some(anchor)
            }
            None => own,
        }
    }

    fn next_dashes(&mut self) -> Option<usize> {
        let (range, mut anchor) = (self.floor..self.exact_from, None);
        let at = next_bit_where(&self.masks.dashes, self.dashes.at, |at| {
            anchor = at_dashes(self.bytes, at).filter(|anchor| range.contains(anchor));
            anchor.is_some()
        })?;
        self.dashes.at = at + 1;
        anchor
    }

    fn next_literal(&mut self) -> Option<usize> {
        let Search { candidates, masks, bytes, floor, exact_from, .. } = *self;
        candidates.literals.next_from(bytes, &masks.literals, &mut self.literals.at, floor..exact_from)
    }

    fn next_hidden(&mut self) -> Option<usize> {
        let Search { candidates, masks, bytes, floor, exact_from, .. } = *self;
        candidates.hidden.next_from(bytes, &masks.literals, &mut self.hidden.at, floor..exact_from)
    }

    fn next_exact(&mut self) -> Option<usize> {
        let Search { candidates, bytes, .. } = *self;
        loop {
            let at = candidates.exact.next(bytes, self.exact.at)?;
            self.exact.at = at + 1;
            let three = bytes.get(at..).and_then(<[u8]>::first_chunk);
            let is_anchor = three.is_none_or(|three| candidates.anchored.matches(three));
            // A rule without an anchor may begin with nearly anything, but not inside of a word.
            if is_anchor || is_edge(View { bytes, last: false }, at) {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::literals::Literal;
    use super::super::rules::Rule;
    use super::*;
    use proptest::prelude::*;

    fn rules() -> impl Iterator<Item = (&'static Rule, Anchor<'static>)> {
        RULES.iter().enumerate().map(|(index, rule)| (rule, Anchor::of(index, rule)))
    }

    /// The anchors of rules that are found by literals, and these.
    fn literals() -> Vec<(&'static Rule, Literal)> {
        let of_literals = rules().filter(|(_, anchor)| way(anchor) == Way::Literal);
        of_literals.map(|(rule, anchor)| (rule, Literal::of(&anchor))).collect()
    }

    #[test]
    fn literals_are_long_enough_to_be_rare_and_few_enough_for_every_processor() {
        let mut all: Vec<Literal> = literals().into_iter().map(|(_, literal)| literal).collect();
        assert!(all.iter().all(|literal| literal.text.len() >= 4), "{all:?}");
        all.sort();
        all.dedup();
        // Of 32 that can be looked for at once, a few are left for secrets of the environment.
        assert!((1..=28).contains(&all.len()), "{}: {all:?}", all.len());
    }

    #[test]
    fn no_literal_hides_another_and_none_has_letters_of_both_cases() {
        let all = literals();
        for (rule, literal) in &all {
            assert!(!rule.fold, "{}", rule.anchor);
            assert!(!all.iter().any(|(_, other)| other.hides(literal)), "{} is hidden", rule.anchor);
        }
    }

    #[test]
    fn the_rule_without_an_anchor_has_the_fixed_piece_it_is_told_by() {
        let mut all = RULES.iter().filter(|rule| rule.anchor.is_empty()).map(|rule| rule.check);
        let Some(Check::Shape { parts: [Part::Run(_, min, max), Part::Lit(text), ..], .. }) = all.next()
        else {
            panic!("no such rule");
        };
        assert_eq!((*min, *max, text.as_bytes()), (MIDDLE.0, MIDDLE.0, MIDDLE.1));
        assert!(all.next().is_none());
    }

    /// Names, what stands between them and their separators, beginnings of tokens and literals, and what looks like it.
    const PIECES: [&str; 45] = [
        "password",
        "PASSWD",
        "api_key",
        "secret",
        "token",
        "sig",
        "npm_auth",
        "x_pat",
        "creds",
        "credentials",
        "id",
        "session",
        "limit",
        "=",
        ":",
        " ",
        "\t",
        "\"",
        "'",
        "\\",
        "]",
        "42",
        "\u{1b}[0m",
        "\u{1b}[1;31m",
        "m",
        "://",
        ":AA",
        "$2a$",
        "$6$",
        "--",
        "---",
        "BEGIN ",
        "é",
        "\u{17f}",
        "Cookie: ",
        "curl ",
        "machine ",
        "ghp_",
        "\n",
        "quite-a-Secret-77",
        "-signature",
        " BEGIN SSH2",
        ":5432:",
        ":65001:",
        "key",
    ];

    fn places(candidates: &Candidates, masks: &Masks, bytes: &[u8]) -> Vec<usize> {
        let mut search = Search::with(candidates, masks, bytes, 0);
        std::iter::from_fn(|| search.next()).collect()
    }

    proptest! {
        #[test]
        fn every_processor_leads_to_the_same_places(
            pieces in prop::collection::vec((0..PIECES.len(), 1usize..4), 200..600),
        ) {
            let text: String = pieces.iter().map(|(piece, times)| PIECES[*piece].repeat(*times)).collect();
            let value = Anchor {
                bytes: b"quite-a-Secret-77",
                fold: false,
                thirds: super::super::filter::Thirds::Any,
                target: Target::Literal(0),
            };
            let anchors: Vec<Anchor<'_>> = rules().map(|(_, anchor)| anchor).chain([value]).collect();
            let candidates = Candidates::new(&anchors);
            let ways = Masks::of_every_way(text.as_bytes(), &candidates.sieve);
            let plain = places(&candidates, &ways[0].1, text.as_bytes());
            for (way, masks) in &ways {
                prop_assert_eq!(&places(&candidates, masks, text.as_bytes()), &plain, "{}", way);
            }
        }
    }
}
