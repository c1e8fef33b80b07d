//! Where a stream of terminal output may be cut: between whole characters and whole escape sequences.
//!
//! What goes to the model and to clients is cut only there, so that a client that comes in the middle sees the model's
//! screen and then the rest of the stream, and never the second half of a sequence.

/// A sequence longer than this (a picture) is passed on in pieces.
const HELD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Ground,
    /// After ESC, or its intermediate bytes.
    Escape,
    Control,
    /// In the text of an OSC, DCS, APC, PM or SOS.
    Text,
    /// After an ESC that may end the text.
    TextEscape,
}

/// Holds back the beginning of a character or sequence until its rest has come.
#[derive(Debug, Default)]
pub struct Boundary {
    state: State,
    held: Vec<u8>,
}

impl Boundary {
    /// Takes more of the stream and returns what may be passed on now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let before = self.held.len();
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut cut = match self.advance(bytes) {
            Some(at) => before + at,
            None => 0,
        };
        if self.state == State::Ground {
            cut = all.len() - incomplete_tail(&all);
        }
        if all.len() - cut > HELD_BYTES_MAX {
            cut = all.len();
        }
        self.held = all.split_off(cut);
        all
    }

    /// Everything that is held back, for the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        self.state = State::Ground;
        std::mem::take(&mut self.held)
    }

    /// Follows the bytes; the last place in them where a sequence began.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut begun = None;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.state == State::Ground {
                let Some(escape) = memchr::memchr(0x1b, rest) else { break };
                begun = Some(at + escape);
                self.state = State::Escape;
                at += escape + 1;
                continue;
            }
            if self.state == State::Text {
                // Text may be long; only these bytes end it.
                let Some(end) = rest.iter().position(|byte| matches!(byte, 0x07 | 0x18 | 0x1a | 0x1b)) else {
                    break;
                };
                self.state = if rest.get(end) == Some(&0x1b) { State::TextEscape } else { State::Ground };
                at += end + 1;
                continue;
            }
            let Some(&byte) = rest.first() else { break };
            self.state = after(self.state, byte);
            at += 1;
        }
        begun
    }
}

/// The state after a byte within a sequence.
pub(super) fn after(state: State, byte: u8) -> State {
    match (state, byte) {
        (_, 0x18 | 0x1a) => State::Ground,
        (State::Escape | State::Control, 0x1b) => State::Escape,
        (State::Escape, b'[') => State::Control,
        (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Text,
        (State::Escape, 0x20..=0x2f) => State::Escape,
        (State::Control, 0x20..=0x3f) => State::Control,
        // Controls such as a line feed are carried out in the middle of a sequence.
        (State::Escape | State::Control, 0x00..=0x1f) => state,
        // What follows the ESC begins a sequence of its own unless it is the end of the text.
        (State::TextEscape, b'\\') => State::Ground,
        (State::TextEscape, _) => after(State::Escape, byte),
        (State::Text, _) => State::Text,
        (State::Ground | State::Escape | State::Control, _) => State::Ground,
    }
}

/// How many bytes at the end begin a character whose rest is missing.
pub(super) fn incomplete_tail(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let Some(&byte) = bytes.get(bytes.len() - back) else { break };
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes byte by byte; the pieces that came out, without the empty ones.
    fn pieces(stream: &str) -> Vec<String> {
        let mut boundary = Boundary::default();
        let pushed = stream.bytes().map(|byte| boundary.push(&[byte]));
        let pieces: Vec<Vec<u8>> = pushed.filter(|piece| !piece.is_empty()).collect();
        let end = boundary.finish();
        let all = pieces.into_iter().chain(Some(end).filter(|end| !end.is_empty()));
        all.map(|piece| String::from_utf8(piece).expect("whole characters")).collect()
    }

    #[test]
    fn a_stream_is_cut_between_characters_and_sequences() {
        for (stream, expected) in [
            ("añ界🙂", vec!["a", "ñ", "界", "🙂"]),
            ("x\x1b[1;31my", vec!["x", "\x1b[1;31m", "y"]),
            ("\x1b(0q\x1b7", vec!["\x1b(0", "q", "\x1b7"]),
            ("\x1b]0;ti tle\x07z", vec!["\x1b]0;ti tle\x07", "z"]),
            ("\x1bPq#0\x1b\\z", vec!["\x1bPq#0\x1b\\", "z"]),
            ("\x1b[3\x1b[4mz", vec!["\x1b[3\x1b[4m", "z"]),
            ("\x1b[3\x18z", vec!["\x1b[3\x18", "z"]),
            ("\x1b]0;cut\x1b[1mz", vec!["\x1b]0;cut\x1b[1m", "z"]),
            ("end\x1b[", vec!["e", "n", "d", "\x1b["]),
        ] {
            assert_eq!(pieces(stream), expected, "{stream:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_and_long_pictures_are_not_held_for_ever() {
        let mut boundary = Boundary::default();
        assert_eq!(boundary.push(&[0xff, 0x80, 0xc3]), [0xff, 0x80]);
        assert_eq!(boundary.push(b"("), [0xc3, b'(']);
        let picture = [b"\x1bPq".as_slice(), &[b'~'; HELD_BYTES_MAX]].concat();
        assert_eq!(boundary.push(&picture).len(), picture.len());
        assert_eq!(boundary.push(b"~~\x1b\\z"), b"~~\x1b\\z");
    }
}
