//! Brace expansion, `{rm,-rf}` and `r{m..m}`: the words that bash makes of one.
//!
//! It comes before every other expansion, so what a word becomes is known unless one of the others is in it. Which
//! brace closes which is told as bash tells it, also where they do not match. Not how a word is read: that is
//! `lex`, which notes where the braces outside of quotes are.

use std::ops::Range;

use super::lex::Word;

/// Lists inside one another, at most.
const DEPTH_MAX: usize = 16;
/// What the words of one command may cost together, at most; words beyond that stay unknown.
pub(super) const BYTES_MAX: usize = 256 << 10;

/// A place in a word's text that is more than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Open,
    Comma,
    /// Two dots that no brace follows.
    Dots,
    Close,
    /// Something is put in here that is not known.
    Unknown,
}

/// One of the words so far.
#[derive(Debug, Clone, Default)]
struct Piece {
    text: Vec<u8>,
    unknown: bool,
}

/// A word becomes more than is worth knowing.
struct TooMuch;

impl Word {
    /// The words that this one becomes, within so many bytes. Empty ones are none to the shell.
    pub fn braced(mut self, bytes_left: &mut usize) -> Vec<Word> {
        let holds = |wanted: &[Mark]| self.marks.iter().any(|(_, mark)| wanted.contains(mark));
        if !(holds(&[Mark::Open]) && holds(&[Mark::Comma, Mark::Dots])) {
            return vec![self];
        }
        let whole = Span { marks: 0..self.marks.len(), text: 0..self.text.len() };
        let mut braces = Braces { text: &self.text, marks: &self.marks, bytes_left };
        let Ok(pieces) = braces.words(whole, 0) else {
            (self.expands, self.globs) = (true, false);
            return vec![self];
        };
        if let [piece] = pieces.as_slice()
            && piece.text == self.text
        {
            return vec![self];
        }
        let word = |piece: Piece| Word {
            raw: if piece.unknown { self.raw.clone() } else { piece.text.clone() },
            text: piece.text,
            expands: piece.unknown,
            globs: piece.unknown && self.globs,
            quoted: true,
            marks: Vec::new(),
        };
        pieces.into_iter().filter(|piece| piece.unknown || !piece.text.is_empty()).map(word).collect()
    }
}

/// A part of the word.
#[derive(Debug, Clone)]
struct Span {
    marks: Range<usize>,
    text: Range<usize>,
}

struct Braces<'a> {
    text: &'a [u8],
    marks: &'a [(usize, Mark)],
    bytes_left: &'a mut usize,
}

impl Braces<'_> {
    /// The words of a part of the text.
    fn words(&mut self, span: Span, depth: usize) -> Result<Vec<Piece>, TooMuch> {
        if depth > DEPTH_MAX {
            return Err(TooMuch);
        }
        let mut words = vec![Piece::default()];
        let (mut begin, mut from, mut next) = (span.text.start, span.text.start, span.marks.start);
        while let Some((at, mark)) = self.mark(next).filter(|_| next < span.marks.end) {
            let close = match mark {
                Mark::Unknown => {
                    self.append(&mut words, from..at)?;
                    words.iter_mut().for_each(|word| word.unknown = true);
                    from = at;
                    None
                }
                // `{}` at the beginning, as in `xargs -I {}`, opens nothing.
                Mark::Open if at == begin && self.mark(next + 1) == Some((at + 1, Mark::Close)) => None,
                Mark::Open => self.close_of(next + 1..span.marks.end)?,
                Mark::Comma | Mark::Dots | Mark::Close => None,
            };
            if let Some((close, close_at)) = close {
                self.append(&mut words, from..at)?;
                let inside = Span { marks: next + 1..close, text: at + 1..close_at };
                let choices = self.choices(inside, depth + 1)?;
                words = self.product(&words, &choices)?;
                (begin, from, next) = (close_at + 1, close_at + 1, close);
            }
            next += 1;
        }
        self.append(&mut words, from..span.text.end)?;
        Ok(words)
    }

    /// The mark that closes a brace, and where it is: the first behind a comma or two dots, both outside of others.
    fn close_of(&mut self, marks: Range<usize>) -> Result<Option<(usize, usize)>, TooMuch> {
        let (mut level, mut divided) = (0usize, false);
        for next in marks {
            self.spend(1)?;
            let Some((at, mark)) = self.mark(next) else { break };
            match mark {
                Mark::Close if level == 0 && divided => return Ok(Some((next, at))),
                Mark::Open => level += 1,
                Mark::Close => level = level.saturating_sub(1),
                Mark::Comma | Mark::Dots => divided |= level == 0,
                Mark::Unknown => {}
            }
        }
        Ok(None)
    }

    /// What stands between two braces: a list, a sequence, or text that is neither and keeps them.
    fn choices(&mut self, inside: Span, depth: usize) -> Result<Vec<Piece>, TooMuch> {
        let holds =
            |wanted: Mark| inside.marks.clone().any(|mark| self.mark(mark).is_some_and(|m| m.1 == wanted));
        let (is_list, unknown) = (holds(Mark::Comma), holds(Mark::Unknown));
        if is_list {
            return self.list(inside, depth);
        }
        let text = self.text.get(inside.text.clone()).unwrap_or_default();
        let Some(sequence) = Sequence::parse(text).filter(|_| !unknown) else {
            let text = self.text.get(inside.text.start - 1..inside.text.end + 1).unwrap_or_default().to_vec();
            return Ok(vec![Piece { text, unknown }]);
        };
        self.spend(sequence.count().saturating_mul(sequence.width + 2))?;
        Ok(sequence.items().map(|text| Piece { text: text.into_bytes(), unknown: false }).collect())
    }

    /// What stands between the commas of a list, each of it expanded.
    fn list(&mut self, inside: Span, depth: usize) -> Result<Vec<Piece>, TooMuch> {
        let Span { marks, text } = inside;
        let mut choices = Vec::new();
        let (mut level, mut first, mut from) = (0usize, marks.start, text.start);
        for next in marks.clone() {
            let Some((at, mark)) = self.mark(next) else { break };
            match mark {
                Mark::Open => level += 1,
                Mark::Close => level = level.saturating_sub(1),
                Mark::Comma if level == 0 => {
                    choices.extend(self.words(Span { marks: first..next, text: from..at }, depth)?);
                    (first, from) = (next + 1, at + 1);
                }
                Mark::Comma | Mark::Dots | Mark::Unknown => {}
            }
        }
        choices.extend(self.words(Span { marks: first..marks.end, text: from..text.end }, depth)?);
        Ok(choices)
    }

    fn mark(&self, mark: usize) -> Option<(usize, Mark)> {
        self.marks.get(mark).copied()
    }

    fn append(&mut self, words: &mut [Piece], range: Range<usize>) -> Result<(), TooMuch> {
        let text = self.text.get(range).unwrap_or_default();
        self.spend(words.len().saturating_mul(text.len()))?;
        words.iter_mut().for_each(|word| word.text.extend_from_slice(text));
        Ok(())
    }

    /// Each word with each of the choices behind it.
    fn product(&mut self, words: &[Piece], choices: &[Piece]) -> Result<Vec<Piece>, TooMuch> {
        let bytes = |pieces: &[Piece]| pieces.iter().map(|piece| piece.text.len() + 1).sum::<usize>();
        self.spend(words.len().saturating_mul(bytes(choices)))?;
        self.spend(choices.len().saturating_mul(bytes(words)))?;
        let joined = |word: &Piece, choice: &Piece| Piece {
            text: [word.text.as_slice(), &choice.text].concat(),
            unknown: word.unknown || choice.unknown,
        };
        Ok(words.iter().flat_map(|word| choices.iter().map(move |choice| joined(word, choice))).collect())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), TooMuch> {
        *self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(TooMuch)?;
        Ok(())
    }
}

/// `a..e`, `1..9` or `01..09..2`.
struct Sequence {
    first: i64,
    last: i64,
    step: u64,
    /// Numbers have so many digits at least.
    width: usize,
    letters: bool,
}

impl Sequence {
    fn parse(inside: &[u8]) -> Option<Sequence> {
        let parts: Vec<&str> = std::str::from_utf8(inside).ok()?.splitn(4, "..").collect();
        let (first, last, step) = match parts.as_slice() {
            [first, last] => (*first, *last, "1"),
            [first, last, step] => (*first, *last, *step),
            _ => return None,
        };
        let step = step.parse::<i64>().ok()?.unsigned_abs().max(1);
        if let (Ok(from), Ok(to)) = (first.parse(), last.parse()) {
            let padded = |text: &str| text.trim_start_matches('-').starts_with('0') && text.len() > 1;
            let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
            return Some(Sequence { first: from, last: to, step, width, letters: false });
        }
        let letter = |text: &str| match text.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => Some(i64::from(*letter)),
            _ => None,
        };
        Some(Sequence { first: letter(first)?, last: letter(last)?, step, width: 1, letters: true })
    }

    fn count(&self) -> usize {
        usize::try_from(self.first.abs_diff(self.last) / self.step).unwrap_or(usize::MAX).saturating_add(1)
    }

    fn items(&self) -> impl Iterator<Item = String> {
        let step = i64::try_from(self.step).unwrap_or(i64::MAX);
        let step = if self.first <= self.last { step } else { -step };
        let values = (0..self.count()).scan(self.first, move |next, _| {
            let now = *next;
            *next = next.saturating_add(step);
            Some(now)
        });
        values.map(|value| match u8::try_from(value) {
            Ok(letter) if self.letters => char::from(letter).to_string(),
            Ok(_) | Err(_) => format!("{value:0width$}", width = self.width),
        })
    }
}
