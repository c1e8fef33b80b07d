//! What of some output reaches the model's parser, which keeps an OSC until it ends, however long that is: the bytes of one
//! beyond a bound are left out. Its beginning and its end are there, so what follows means the same. Pure.

use super::boundary::{State, after};

const ESCAPE: u8 = 0x1b;
/// More than any title, link or palette takes; pictures, which the model does not show, are longer. It keeps up to 4,096 titles.
pub(super) const OSC_BYTES_MAX: usize = 8 * 1024;

/// Follows output to where its OSCs begin and end.
#[derive(Debug, Default)]
pub(super) struct Bounded {
    state: State,
    is_osc: bool,
    /// Of the text that it is in.
    length: usize,
}

impl Bounded {
    /// Whether the output so far ends within a sequence.
    pub fn is_within(&self) -> bool {
        self.state != State::Ground
    }

    /// What is left of some output, in pieces.
    pub fn pieces<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut kept = Vec::new();
        let (mut from, mut at) = (0, 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Ground => {
                    let Some(escape) = memchr::memchr(ESCAPE, rest) else { break };
                    self.state = State::Escape;
                    at += escape + 1;
                }
                State::Text => {
                    let end = rest.iter().position(|byte| matches!(*byte, 0x07 | 0x18 | 0x1a | ESCAPE));
                    let length = end.unwrap_or(rest.len());
                    let room = OSC_BYTES_MAX.saturating_sub(self.length);
                    self.length = self.length.saturating_add(length);
                    if self.is_osc && room < length {
                        kept.extend(bytes.get(from..at + room));
                        from = at + length;
                    }
                    at += length;
                    if let Some(&byte) = bytes.get(at) {
                        self.state = if byte == ESCAPE { State::TextEscape } else { State::Ground };
                        at += 1;
                    }
                }
                State::Escape | State::Control | State::TextEscape => {
                    let Some(&byte) = rest.first() else { break };
                    self.state = after(self.state, byte);
                    if self.state == State::Text {
                        (self.is_osc, self.length) = (byte == b']', 0);
                    }
                    at += 1;
                }
            }
        }
        kept.extend(bytes.get(from..).filter(|rest| !rest.is_empty()));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a stream that comes in pieces of this size.
    fn left(stream: &[u8], step: usize) -> Vec<u8> {
        let mut bounded = Bounded::default();
        stream.chunks(step).flat_map(|piece| bounded.pieces(piece).concat()).collect()
    }

    #[test]
    fn the_middle_of_a_long_osc_is_left_out_and_nothing_else() {
        let long = "x".repeat(OSC_BYTES_MAX + 1000);
        for (before, after) in
            [("a\x1b[1m\x1b]2;", "\x07b"), ("\x1b]52;c;", "\x1b\\b\x1b]2;t\x07"), ("\x1b]", "\x1b[mz")]
        {
            let stream = [before, &long, after].concat();
            for step in [1_000_000, 4096, 7] {
                let kept = String::from_utf8(left(stream.as_bytes(), step)).unwrap();
                assert!(kept.starts_with(before) && kept.ends_with(after), "{before:?}");
                assert_eq!(
                    kept.matches('x').count() + before.len() - before.find(']').unwrap() - 1,
                    OSC_BYTES_MAX
                );
            }
        }
        // The parser keeps nothing of these.
        for whole in ["\x1bPq", "\x1b_G", "", "\x1b]0;t\x07", "\x1b]0;t\x18"] {
            let stream = [whole, &long, "\x1b\\end"].concat();
            assert_eq!(left(stream.as_bytes(), 4096), stream.as_bytes(), "{whole:?}");
        }
    }
}
