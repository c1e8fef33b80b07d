//! What is taken away after a secret was recognised: the rest of it, however long, without holding it.

use super::bare;
use super::block::{Block, Body};
use super::shape::{Class, View};

/// A quoted value that never ends stops being swallowed here.
const QUOTED_BYTES_MAX: usize = 64 * 1024;

/// What still belongs to the secret that was just replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Swallow {
    /// All that follows of a class.
    Class(Class),
    /// A value without quotes.
    Bare,
    /// Up to a closing quote, the end of the line, or a limit.
    Quoted(Quoted),
    Block(Block),
}

impl Swallow {
    pub fn quoted(quote: Quote) -> Swallow {
        Swallow::Quoted(Quoted { quote, after_backslash: false, left: QUOTED_BYTES_MAX })
    }

    pub fn block(body: Body) -> Swallow {
        Swallow::Block(Block::new(body))
    }

    /// What is left of it where a stream breaks off that ends with `held`, which was not settled.
    pub fn broken_off(&self, held: &[u8]) -> Option<Swallow> {
        match self {
            Swallow::Block(block) => block.broken_off(held).map(Swallow::Block),
            other => Some(other.clone()),
        }
    }

    /// The same for another program, which mostly prints something of its own.
    pub fn of_other(&self) -> Swallow {
        match self {
            Swallow::Block(block) => Swallow::Block(block.of_other()),
            other => other.clone(),
        }
    }

    /// How many of these bytes belong to the secret; `last` says that there will be no more.
    pub fn take(&mut self, bytes: &[u8], last: bool) -> Taken {
        let ended_by = |taken: usize| Taken { bytes: taken, over: taken < bytes.len() };
        match self {
            Swallow::Class(class) => ended_by(bytes.iter().take_while(|byte| class.has(**byte)).count()),
            Swallow::Bare => bare::rest(View { bytes, last }),
            Swallow::Quoted(quoted) => ended_by(quoted.take(bytes)),
            Swallow::Block(block) => block.take(View { bytes, last }),
        }
    }
}

/// What was taken of a secret's rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub bytes: usize,
    /// Whether the secret has ended. Where it has not and bytes are left, they cannot be told before more have come.
    pub over: bool,
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
