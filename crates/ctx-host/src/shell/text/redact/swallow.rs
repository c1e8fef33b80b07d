//! What is taken away after a secret was recognised: the rest of it, however long, without holding it.

use super::shape::Class;

/// A quoted value that never ends stops being swallowed here; so does a key block.
const QUOTED_BYTES_MAX: usize = 64 * 1024;
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// What still belongs to the secret that was just replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Swallow {
    /// All that follows of a class.
    Class(Class),
    /// Up to a closing quote, the end of the line, or a limit.
    Quoted(Quoted),
    Block(Block),
}

impl Swallow {
    pub fn quoted(quote: Quote) -> Swallow {
        Swallow::Quoted(Quoted { quote, after_backslash: false, left: QUOTED_BYTES_MAX })
    }

    pub fn block() -> Swallow {
        Swallow::Block(Block { place: Place::Body, left: BLOCK_BYTES_MAX })
    }

    /// How many of these bytes belong to the secret; fewer than all means that it has ended.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        match self {
            Swallow::Class(class) => bytes.iter().take_while(|byte| class.has(**byte)).count(),
            Swallow::Quoted(quoted) => quoted.take(bytes),
            Swallow::Block(block) => block.take(bytes),
        }
    }
}

/// The quote that began a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quote {
    pub byte: u8,
    /// Whether a backslash stood before it, as in JSON inside JSON: then the next backslash ends the value.
    pub escaped: bool,
}

/// The inside of a quoted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quoted {
    quote: Quote,
    after_backslash: bool,
    left: usize,
}

impl Quoted {
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for byte in bytes {
            let ends = *byte == b'\n' || *byte == self.quote.byte || (*byte == b'\\' && self.quote.escaped);
            if self.left == 0 || (ends && !self.after_backslash) || *byte == b'\n' {
                break;
            }
            self.after_backslash = *byte == b'\\' && !self.after_backslash;
            self.left -= 1;
            taken += 1;
        }
        taken
    }
}

/// The inside of a PEM, OpenSSH or PGP block: base64 lines, header lines, an end line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    place: Place,
    left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the beginning of a line, where indentation may stand.
    Indent,
    Body,
    /// After a backslash: `\\n` inside a JSON string is the end of a line too.
    Escape,
    /// After the colon of a header such as `DEK-Info: …`.
    Header,
    /// In `-----END … KEY-----`: the dashes seen before or after the words. A line that begins another
    /// block goes on with that one.
    Rule {
        dashes: u8,
        words: Words,
    },
    Over,
}

/// What the line between dashes says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    NotYet,
    Begin,
    End,
}

impl Block {
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for byte in bytes {
            if self.left == 0 || self.place == Place::Over {
                break;
            }
            let Some(next) = next_place(self.place, *byte) else {
                self.place = Place::Over;
                break;
            };
            self.place = next;
            self.left -= 1;
            taken += 1;
        }
        taken
    }
}

/// Where the block goes on after this byte; `None` when the byte is not of the block.
fn next_place(place: Place, byte: u8) -> Option<Place> {
    match (place, byte) {
        (Place::Over, _) => None,
        (Place::Rule { words: Words::End, .. }, b'\n' | b'\r') => None,
        (Place::Rule { .. }, b'\n' | b'\r') => Some(Place::Indent),
        (Place::Rule { dashes: 4, words: Words::End }, b'-') => Some(Place::Over),
        (Place::Rule { dashes: 4, words: Words::Begin }, b'-') => Some(Place::Body),
        (Place::Rule { dashes, words }, b'-') => {
            Some(Place::Rule { dashes: dashes.saturating_add(1), words })
        }
        (Place::Rule { words: Words::NotYet, .. }, b'B') => {
            Some(Place::Rule { dashes: 0, words: Words::Begin })
        }
        (Place::Rule { words: Words::NotYet, .. }, b'A'..=b'Z' | b'0'..=b'9' | b' ') => {
            Some(Place::Rule { dashes: 0, words: Words::End })
        }
        (Place::Rule { words, .. }, b'A'..=b'Z' | b'0'..=b'9' | b' ') => {
            Some(Place::Rule { dashes: 0, words })
        }
        (Place::Rule { .. }, _) => None,
        (Place::Header, b'\n') => Some(Place::Indent),
        (Place::Header, b'"' | b'\'') => None,
        (Place::Header, _) => Some(Place::Header),
        (_, b'\n' | b'\r') => Some(Place::Indent),
        (Place::Escape, b'n' | b'r' | b't') => Some(Place::Indent),
        (Place::Escape, b'\\') => Some(Place::Escape),
        (Place::Escape, _) => None,
        (Place::Indent, b' ' | b'\t') => Some(Place::Indent),
        (Place::Body, b':') => Some(Place::Header),
        // `DEK-Info:` has a dash inside a word; the end line begins with one.
        (Place::Indent, b'-') => Some(Place::Rule { dashes: 1, words: Words::NotYet }),
        (Place::Body, b'-') => Some(Place::Body),
        (Place::Indent | Place::Body, b'\\') => Some(Place::Escape),
        (Place::Indent | Place::Body, _) => Class::Base64.has(byte).then_some(Place::Body),
    }
}
