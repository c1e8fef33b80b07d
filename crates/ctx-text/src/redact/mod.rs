//! Takes secrets out of a byte stream before anything leaves or is stored.
//!
//! `Redactor` is a filter: bytes in, bytes out, each secret replaced by `[REDACTED:kind]`. It looks at whole lines, so
//! how reads cut the stream changes nothing; only the end of a line that is not complete is held back, and a line
//! without end is looked at in pieces of 16 KiB. What it finds: the tokens of `table`, the passwords of `options`,
//! `names` and `credentials`, the keys of `block`, and the values of the variables that `env` takes for secrets. It is
//! a net for accidents; anything else is shown.

#![expect(clippy::indexing_slicing, reason = "every place was found in the text that is sliced with it")]

mod block;
mod credentials;
mod env;
mod find;
mod names;
mod options;
mod shape;
mod table;

use std::cmp::Reverse;
use std::sync::{Arc, LazyLock};

pub use env::{is_secret as is_secret_variable, is_secret_name};

use block::{Begun, Block};
use find::Finder;
use table::{Row, TABLE};

/// A longer line is looked at in pieces. It is also how much is looked at at once.
const LINE_BYTES_MAX: usize = 16 << 10;
/// A long line is cut at the last byte in so many that ends a value.
const CUT_BYTES_MAX: usize = 4 << 10;
/// A value is searched for by its beginning, then compared.
const BEGINNING_BYTES: usize = 16;
/// What every mark begins with.
const MARK: &[u8] = b"[REDACTED";
/// Of a longer value only this much is known.
const LITERAL_BYTES_MAX: usize = 4 << 10;

/// The rules that every stream has, by what they begin with.
struct Rules {
    finder: Finder,
    /// The rules whose anchors begin with a byte, with their anchors.
    by_first_byte: Vec<Vec<(&'static str, Rule)>>,
}

#[derive(Clone, Copy)]
enum Rule {
    Token(&'static Row),
    Block,
    Option,
}

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let tokens = TABLE.iter().flat_map(|row| row.fixed.iter().map(move |fixed| (*fixed, Rule::Token(row))));
    let blocks = block::ANCHORS.into_iter().map(|anchor| (anchor, Rule::Block));
    let options = options::anchors().map(|anchor| (anchor, Rule::Option));
    let mut by_first_byte = vec![Vec::new(); 256];
    for (anchor, rule) in tokens.chain(blocks).chain(options) {
        by_first_byte[usize::from(anchor.as_bytes()[0])].push((anchor, rule));
    }
    let of_tokens = TABLE.iter().flat_map(Row::anchors);
    let anchors = of_tokens.chain(block::ANCHORS).chain(options::anchors()).map(str::as_bytes);
    Rules { finder: Finder::new(anchors), by_first_byte }
});

/// The values to look for besides what the rules find. Build it once per shell and share it.
pub struct Secrets {
    literals: Vec<Literal>,
    finder: Finder,
}

struct Literal {
    mark: String,
    value: Vec<u8>,
}

impl Secrets {
    /// The rules alone.
    pub fn none() -> Secrets {
        Secrets { literals: Vec::new(), finder: Finder::new([]) }
    }

    /// The rules, and the values of those variables whose names say that they are secret.
    pub fn from_env(vars: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<[u8]>)>) -> Secrets {
        Secrets::of(vars, env::is_secret)
    }

    /// The rules, and the values of all these variables, whatever they are called; those of a few bytes stand in any text.
    pub fn from_values(vars: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<[u8]>)>) -> Secrets {
        Secrets::of(vars, |_, value| value.len() >= env::VALUE_BYTES_MIN)
    }

    fn of(
        vars: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<[u8]>)>,
        is_secret: fn(&str, &[u8]) -> bool,
    ) -> Secrets {
        let mut literals: Vec<Literal> = Vec::new();
        for (name, value) in vars {
            let (name, value) = (name.as_ref(), value.as_ref().trim_ascii());
            if is_secret(name, value) {
                let mark = format!("[REDACTED:env:{name}]");
                let texts = env::texts(value).map(|text| text.get(..LITERAL_BYTES_MAX).unwrap_or(text));
                literals.extend(texts.map(|text| Literal { mark: mark.clone(), value: text.to_vec() }));
            }
        }
        // Of the same value, the first name stays.
        literals.sort_by(|a, b| a.value.cmp(&b.value));
        literals.dedup_by(|later, first| later.value == first.value);
        let beginnings =
            literals.iter().map(|literal| &literal.value[..literal.value.len().min(BEGINNING_BYTES)]);
        let finder = Finder::new(beginnings);
        Secrets { literals, finder }
    }

    /// The longest value that stands at `at`, and where it ends.
    fn literal_at(&self, text: &[u8], at: usize) -> Option<Found> {
        let here = &text[at..];
        let of_values =
            self.literals.iter().enumerate().filter(|(_, literal)| here.starts_with(&literal.value));
        let (index, literal) = of_values.max_by_key(|(_, literal)| literal.value.len())?;
        let to = match literal.value.len() {
            // Of a longer value only this much was compared: the rest of its line goes with it.
            LITERAL_BYTES_MAX => memchr::memchr(b'\n', here).map_or(text.len(), |len| at + len),
            len => at + len,
        };
        Some(Found { from: at, to, mark: Mark::Value(index) })
    }
}

/// A secret in a text.
#[derive(Debug, Clone, Copy)]
struct Found {
    from: usize,
    to: usize,
    mark: Mark,
}

/// What is shown in a secret's place. Of two that are the same secret, the first in this order is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// The lines of a key.
    Lines,
    /// More lines of a key whose mark stands in the output already.
    Nothing,
    /// The value of a variable, by its index.
    Value(usize),
    /// The token of a service.
    Token(&'static str),
    /// What was found by its name or place.
    Kind(&'static str),
}

/// The streaming filter.
pub struct Redactor {
    secrets: Arc<Secrets>,
    /// The beginning of a line that is not complete.
    held: Vec<u8>,
    /// A private key that has begun and not ended.
    block: Option<Block>,
    redactions: u64,
    /// Empty between calls, and kept for their memory.
    places: Vec<usize>,
    found: Vec<Found>,
}

/// Where a secret begins and ends.
type Span = (usize, usize);

/// Takes what is certain, piece by piece.
type Sink<'a> = &'a mut dyn FnMut(&[u8]);

impl Redactor {
    pub fn new(secrets: Arc<Secrets>) -> Redactor {
        Redactor {
            secrets,
            held: Vec::new(),
            block: None,
            redactions: 0,
            places: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Takes the next bytes and appends to `out` what is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.push_to(bytes, &mut |piece| out.extend_from_slice(piece));
    }

    /// Takes the next bytes and hands on what is certain by now; most of it is not copied.
    pub fn push_to(&mut self, bytes: &[u8], sink: Sink<'_>) {
        let mut rest = self.complete_held(bytes, sink);
        while !rest.is_empty() {
            // No line that ends in this window is too long, and all of them are looked at in one go.
            let window = &rest[..rest.len().min(LINE_BYTES_MAX)];
            let Some(len) = complete_len(window) else {
                self.held.extend_from_slice(rest);
                return;
            };
            self.redact(&rest[..len], sink);
            rest = &rest[len..];
        }
    }

    /// Completes the line that is held back, and gives what follows it.
    fn complete_held<'a>(&mut self, bytes: &'a [u8], sink: Sink<'_>) -> &'a [u8] {
        let mut rest = bytes;
        while !self.held.is_empty() && !rest.is_empty() {
            let room = &rest[..rest.len().min(LINE_BYTES_MAX - self.held.len())];
            let len = memchr::memchr(b'\n', room).map_or(room.len(), |at| at + 1);
            self.held.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            if let Some(len) = complete_len(&self.held) {
                let mut held = std::mem::take(&mut self.held);
                self.redact(&held[..len], sink);
                held.drain(..len);
                self.held = held;
            }
        }
        rest
    }

    /// Ends the stream: appends what was held back. The redactor may be used for another stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        self.redact(&held, &mut |piece| out.extend_from_slice(piece));
        self.block = None;
    }

    /// How many secrets were replaced.
    pub fn redactions(&self) -> u64 {
        self.redactions
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Redacts whole lines, or one piece of a long line.
    fn redact(&mut self, text: &[u8], sink: Sink<'_>) {
        let mut found = std::mem::take(&mut self.found);
        let mut from = 0;
        if let Some(block) = self.block.take() {
            from = self.take_lines(block, text, 0, &mut found);
        }
        self.find_by_rules(text, from, &mut found);
        let mut run_end = 0;
        for at in memchr::memchr2_iter(b'=', b':', text) {
            if let Some((kind, (from, to))) = names::secret_at(text, at, &mut run_end) {
                found.push(Found { from, to, mark: Mark::Kind(kind) });
            }
        }
        found.sort_unstable_by_key(|found| (found.from, Reverse(found.to), found.mark));
        self.hand_on(text, &found, sink);
        found.clear();
        self.found = found;
    }

    /// Finds what has an anchor, and the values, from a place on.
    fn find_by_rules(&mut self, text: &[u8], mut from: usize, found: &mut Vec<Found>) {
        let mut places = std::mem::take(&mut self.places);
        RULES.finder.places(text, &mut places);
        places.sort_unstable();
        for at in places.drain(..) {
            // What is in a token or in the lines of a key goes with them.
            if at < from {
                continue;
            }
            for (anchor, rule) in &RULES.by_first_byte[usize::from(text[at])] {
                if !text[at..].starts_with(anchor.as_bytes()) {
                    continue;
                }
                match rule {
                    Rule::Token(row) => {
                        if let Some((begin, end)) = row.token_at(text, at, at + anchor.len()) {
                            found.push(Found { from: begin, to: end, mark: Mark::Token(row.kind) });
                            from = from.max(end);
                        }
                    }
                    Rule::Option => {
                        let mark = Mark::Kind("password");
                        options::passwords_behind(text, at, |(from, to)| {
                            found.push(Found { from, to, mark });
                        });
                    }
                    Rule::Block => from = from.max(self.begin_block(text, at, found)),
                }
            }
        }
        self.secrets.finder.places(text, &mut places);
        found.extend(places.drain(..).filter_map(|at| self.secrets.literal_at(text, at)));
        self.places = places;
    }

    /// Takes the key behind an anchor; gives where it ends in the text.
    fn begin_block(&mut self, text: &[u8], at: usize, found: &mut Vec<Found>) -> usize {
        let Some(Begun { inline, block }) = block::begin(text, at) else { return at };
        found.extend(inline.map(|(from, to)| Found { from, to, mark: Mark::Kind("private-key") }));
        block.map_or(at, |(block, from)| self.take_lines(block, text, from, found))
    }

    fn take_lines(&mut self, block: Block, text: &[u8], from: usize, found: &mut Vec<Found>) -> usize {
        let (to, open) = block.lines(text, from);
        self.block = open;
        if to > from {
            let mark = if block.is_marked { Mark::Nothing } else { Mark::Lines };
            found.push(Found { from, to, mark });
        }
        to
    }

    /// Hands on a text with a mark in the place of each secret. What overlaps is one secret.
    fn hand_on(&mut self, text: &[u8], found: &[Found], sink: Sink<'_>) {
        let mut done = 0;
        for Found { from, to, mark } in found {
            if *from >= done && *to > *from {
                if *from > done {
                    sink(&text[done..*from]);
                }
                self.redactions += u64::from(*mark != Mark::Nothing);
                if matches!(mark, Mark::Token(_) | Mark::Kind(_)) {
                    done = shape::end_behind_colours(text, *to);
                }
                match mark {
                    Mark::Value(index) => sink(self.secrets.literals[*index].mark.as_bytes()),
                    Mark::Token(kind) | Mark::Kind(kind) => sink(format!("[REDACTED:{kind}]").as_bytes()),
                    Mark::Lines => {
                        let newline = if text[*from..*to].contains(&b'\n') { "\n" } else { "" };
                        sink(format!("[REDACTED:private-key]{newline}").as_bytes());
                    }
                    Mark::Nothing => {}
                }
            }
            done = done.max(*to);
        }
        if done < text.len() {
            sink(&text[done..]);
        }
    }
}

/// How much of a text from the beginning of a line on can be looked at by itself: the lines that end in it, or, where
/// a line is too long, a piece of it. The piece ends behind what ends a value, if that is near.
fn complete_len(text: &[u8]) -> Option<usize> {
    if let Some(newline) = memchr::memrchr(b'\n', text) {
        return Some(newline + 1);
    }
    if text.len() < LINE_BYTES_MAX {
        return None;
    }
    let end = &text[LINE_BYTES_MAX - CUT_BYTES_MAX..];
    let cut = memchr::memrchr3(b',', b';', b'&', end).or_else(|| memchr::memrchr3(b' ', b'"', b'>', end));
    Some(cut.map_or(LINE_BYTES_MAX, |at| LINE_BYTES_MAX - CUT_BYTES_MAX + at + 1))
}

/// The kinds of tokens in the table.
pub fn token_kinds() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.kind)
}

/// Redacts a whole piece of bytes.
pub fn redact_bytes(secrets: &Arc<Secrets>, bytes: &[u8]) -> Vec<u8> {
    let mut redactor = Redactor::new(Arc::clone(secrets));
    let mut out = Vec::with_capacity(bytes.len());
    redactor.push(bytes, &mut out);
    redactor.finish(&mut out);
    out
}

/// Redacts a whole text: a command, an error, a line of a log.
pub fn redact_text(secrets: &Arc<Secrets>, text: &str) -> String {
    String::from_utf8_lossy(&redact_bytes(secrets, text.as_bytes())).into_owned()
}
