//! A line without its escape sequences, and where each byte of it stands.

/// Where the parser of escape sequences is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// Behind an escape.
    Escape,
    /// In the numbers of a control sequence.
    Control,
    /// In a string, as of a title or a link.
    Named,
}

/// A line as it is read on a terminal that draws nothing twice.
pub(super) struct Stripped {
    pub bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Stripped {
    /// Where the byte at `at` stands in the line as it was written.
    pub fn place(&self, at: usize) -> usize {
        self.places.get(at).copied().unwrap_or_default()
    }
}

/// Takes escape sequences and control bytes out; nothing where there are none. What is stripped of a beginning of a
/// line is the beginning of what is stripped of the line.
pub(super) fn stripped(line: &[u8]) -> Option<Stripped> {
    if !line.iter().any(|byte| is_control(*byte)) {
        return None;
    }
    let mut stripped = Stripped { bytes: Vec::with_capacity(line.len()), places: Vec::new() };
    let mut state = State::Text;
    for (at, byte) in line.iter().enumerate() {
        state = match (state, *byte) {
            (State::Text, byte) if !is_control(byte) => {
                stripped.bytes.push(byte);
                stripped.places.push(at);
                State::Text
            }
            (_, 0x1b) => State::Escape,
            (State::Text, _) => State::Text,
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Named,
            (State::Escape, b' '..=b'/') => State::Escape,
            (State::Control, byte) if !(b'@'..=b'~').contains(&byte) => State::Control,
            (State::Named, byte) if byte != 0x07 => State::Named,
            (State::Escape | State::Control | State::Named, _) => State::Text,
        };
    }
    Some(stripped)
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && !matches!(byte, b'\n' | b'\t')) || byte == 0x7f
}
