//! Where in a window a secret may begin, at memory speed.
//!
//! A rule is found by what it cannot be without, and what is rare in ordinary text: a shape by a long word, a
//! pair or a URL by its separator, an option by its dashes, the rest by literals of four bytes and more. What
//! follows may lie beyond the window's end, so near to it the exact filter looks at every byte.

use super::filter::{Anchor, Filter, Target};
use super::literals::Literals;
use super::masks::{MARK_BYTES_MAX, Masks, WORD_BYTES_MIN, is_mark, is_word, next_bit_where};
use super::name_ends::NameEnds;
use super::rules::{Check, RULES};
use super::shape::{Class, Left, Part};

/// Near to its end a window is looked at byte by byte. No separator is farther from its name, no anchor
/// longer.
const EXACT_BYTES: usize = 160;
/// A window shorter than this is not worth its maps.
const MAPPED_BYTES_MIN: usize = 512;
/// What may stand between a name and its separator, at most.
const GAP_BYTES_MAX: usize = 96;
/// An option's name, at most.
const OPTION_BYTES_MAX: usize = 64;

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
    /// The anchors of long words.
    words: Filter,
    literals: Literals,
    /// Values that a literal of ours would hide.
    hidden: Literals,
    ends: NameEnds,
}

impl Candidates {
    pub fn new(anchors: &[Anchor<'_>]) -> Candidates {
        let words: Vec<Anchor<'_>> =
            anchors.iter().filter(|anchor| way(anchor) == Way::Word).copied().collect();
        let (literals, hidden) = Literals::of(anchors.iter().filter(|anchor| way(anchor) == Way::Literal));
        Candidates {
            exact: Filter::new(anchors),
            words: Filter::new(&words),
            literals,
            hidden,
            ends: NameEnds::new(),
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
        Check::Shape { .. } | Check::Bearer | Check::Netrc | Check::PuttyBlock | Check::Words(_) => {
            Way::Literal
        }
        Check::AfterDigits { .. }
        | Check::Pair(_)
        | Check::Authorization
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
        let mapped = bytes.len() >= MAPPED_BYTES_MIN;
        if mapped {
            masks.map(bytes);
        }
        let exact_from = if mapped { bytes.len() - EXACT_BYTES } else { 0 };
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
            three.is_some_and(|three| candidates.words.matches(three))
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
        let Search { candidates, bytes, floor, exact_from, .. } = *self;
        candidates.literals.next_from(bytes, &mut self.literals.at, floor..exact_from)
    }

    fn next_hidden(&mut self) -> Option<usize> {
        let Search { candidates, bytes, floor, exact_from, .. } = *self;
        candidates.hidden.next_from(bytes, &mut self.hidden.at, floor..exact_from)
    }

    fn next_exact(&mut self) -> Option<usize> {
        let at = self.candidates.exact.next(self.bytes, self.exact.at)?;
        self.exact.at = at + 1;
        Some(at)
    }
}

/// Two bytes before a separator, itself, and the byte behind it; zeros where there is nothing.
#[inline]
fn around(bytes: &[u8], at: usize) -> [u8; 4] {
    let four = at.checked_sub(2).and_then(|from| bytes.get(from..)).and_then(<[u8]>::first_chunk);
    four.copied().unwrap_or_else(|| {
        let byte = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        [byte(at.checked_sub(2)), byte(at.checked_sub(1)), byte(Some(at)), byte(Some(at + 1))]
    })
}

/// Whether an anchor begins with the separator itself: of a URL, a bot's token, a port, a hash.
#[inline]
fn begins_anchor(bytes: &[u8], at: usize, separator: u8, next: u8) -> bool {
    match (separator, next) {
        (b':', b'/') => bytes.get(at..at + 3) == Some(b"://"),
        (b':', b'A') => bytes.get(at..at + 3) == Some(b":AA"),
        (b':', b'*') => bytes.get(at..at + 3) == Some(b":*:"),
        // A port of four or five digits.
        (b':', b'1'..=b'9') => bytes.get(at + 5) == Some(&b':') || bytes.get(at + 6) == Some(&b':'),
        (b'$', b'1' | b'5' | b'6' | b'7' | b'y') => bytes.get(at + 2) == Some(&b'$'),
        (b'$', b'2' | b'a' | b'g') => {
            matches!(bytes.get(at + 2..at + 4), Some(b"a$" | b"b$" | b"x$" | b"y$" | b"pr"))
        }
        _ => false,
    }
}

/// The anchor that ends before the separator at `at`, or with it.
#[inline]
fn at_separator(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(..at)? {
        [.., b's', b'i', b'g'] if bytes.get(at) == Some(&b'=') => Some(at - 3),
        // Names end with letters of few kinds.
        [.., b'd' | b'e' | b's' | b't' | b'n' | b'l' | b'h' | b'y' | b'k' | b'w']
        | [.., b'D' | b'E' | b'S' | b'T' | b'N' | b'L' | b'H' | b'Y' | b'W'] => ends_name(bytes, at),
        [.., b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']' | b'0'..=b'9' | b'm' | b'K'] => {
            ends_name(bytes, name_end(bytes, at))
        }
        _ => None,
    }
}

/// The anchor of an option or a key block whose last two dashes stand at `at`.
fn at_dashes(bytes: &[u8], at: usize) -> Option<usize> {
    let name = bytes.get(at + 2..)?;
    if name.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"begin ")) {
        return Some(at + 1);
    }
    let name = name.get(..OPTION_BYTES_MAX).unwrap_or(name);
    let len = name.iter().take_while(|byte| Class::Url.has(**byte)).count();
    let end = at + 2 + len;
    // A number may end it.
    let digits = bytes.get(..end)?.iter().rev().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    ends_name(bytes, end - digits)
}

/// Where the name before a separator ends: what may stand between the two is skipped.
fn name_end(bytes: &[u8], separator: usize) -> usize {
    let least = separator.saturating_sub(GAP_BYTES_MAX);
    let mut before = bytes.get(least..separator).unwrap_or_default();
    loop {
        before = match before {
            [rest @ .., b' ' | b'\t' | b'"' | b'\'' | b'`' | b'\\' | b']' | b'0'..=b'9'] => rest,
            [.., b'm' | b'K'] => match colour_len(before) {
                Some(len) => before.get(..before.len() - len).unwrap_or_default(),
                None => break,
            },
            _ => break,
        }
    }
    least + before.len()
}

/// The length of the colour sequence that ends here.
fn colour_len(before: &[u8]) -> Option<usize> {
    let (_, rest) = before.split_last()?;
    let numbers = rest.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    let head = rest.get(..rest.len() - numbers)?;
    head.ends_with(b"\x1b[").then_some(numbers + 3)
}

/// The anchor that ends at `end`.
#[inline]
fn ends_name(bytes: &[u8], end: usize) -> Option<usize> {
    let before = bytes.get(..end)?;
    names_with_end(*before.last_chunk()?).iter().find_map(|anchor| {
        let start = end.checked_sub(anchor.len())?;
        before.get(start..)?.eq_ignore_ascii_case(anchor).then_some(start)
    })
}

/// The anchors of the names before separators that end with these two letters.
#[inline]
fn names_with_end([first, last]: [u8; 2]) -> &'static [&'static [u8]] {
    match &[first | 0x20, last | 0x20] {
        b"rd" => &[b"sword"],
        b"wd" => &[b"wd"],
        b"se" => &[b"phrase", b"_base"],
        b"ss" => &[b"ss"],
        b"et" => &[b"cret"],
        b"en" => &[b"oken"],
        b"al" => &[b"redential"],
        b"ls" => &[b"redentials"],
        b"th" => &[b"_auth"],
        b"ey" => &[b"ey"],
        b"on" => &[b"zation"],
        b"sk" => &[b"psk", b"_sk"],
        b"at" => &[b"_pat"],
        b"pw" => &[b"_pw"],
        b"ds" => &[b"creds"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::literals::Literal;
    use super::super::rules::Rule;
    use super::*;

    #[test]
    fn every_name_before_a_separator_is_known_by_its_end() {
        for rule in RULES {
            if let Check::Pair(_) | Check::Authorization = rule.check {
                let anchor = rule.anchor.as_bytes();
                let end = *anchor.last_chunk().unwrap();
                assert!(names_with_end(end).contains(&anchor), "{}", rule.anchor);
                let text = format!("{}=", rule.anchor.to_uppercase());
                assert_eq!(at_separator(text.as_bytes(), anchor.len()), Some(0), "{text}");
                let &[second, last] = text.as_bytes()[..anchor.len()].last_chunk().unwrap();
                assert!(NameEnds::new().may_be(second, last), "{text}");
            }
        }
    }

    /// The anchors of rules that are found by literals, and these.
    fn literals() -> Vec<(&'static Rule, Literal)> {
        let all = RULES.iter().enumerate().map(|(index, rule)| {
            let (bytes, thirds) = (rule.anchor.as_bytes(), super::super::filter::Thirds::Any);
            (rule, Anchor { bytes, fold: rule.fold, thirds, target: Target::Rule(index) })
        });
        let of_literals = all.filter(|(_, anchor)| way(anchor) == Way::Literal);
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
}
