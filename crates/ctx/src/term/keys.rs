//! What a person types while attached: everything goes to the program but what follows the prefix, `Ctrl-\`. Pure.

const PREFIX: u8 = 0x1c;
/// The same key as terminals send it to programs that ask for unambiguous keys.
const PREFIX_SEQUENCE: &[u8] = b"\x1b[92;5u";

/// What the keys ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Send(Vec<u8>),
    Detach,
    /// Show the keys.
    Help,
}

/// The state between two reads.
#[derive(Debug, Default)]
pub struct Keys {
    after_prefix: bool,
}

impl Keys {
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Act> {
        let mut acts = Vec::new();
        let mut plain: Vec<u8> = Vec::new();
        let mut rest = bytes;
        while let [first, after @ ..] = rest {
            let sequence = rest.strip_prefix(PREFIX_SEQUENCE);
            let is_prefix = *first == PREFIX || sequence.is_some();
            rest = sequence.unwrap_or(after);
            if !std::mem::replace(&mut self.after_prefix, false) {
                if is_prefix {
                    self.after_prefix = true;
                } else {
                    plain.push(*first);
                }
                continue;
            }
            let act = match *first {
                _ if is_prefix => {
                    plain.push(PREFIX);
                    continue;
                }
                b'd' | b'D' | 0x04 => Act::Detach,
                // A key that means nothing is most likely a mistyped one, and is not the program's.
                _ => Act::Help,
            };
            if !plain.is_empty() {
                acts.push(Act::Send(std::mem::take(&mut plain)));
            }
            acts.push(act);
        }
        if !plain.is_empty() {
            acts.push(Act::Send(plain));
        }
        acts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Act> {
        let mut keys = Keys::default();
        pieces.iter().flat_map(|piece| keys.read(piece)).collect()
    }

    #[test]
    fn the_prefix_is_followed_by_a_command_or_by_itself() {
        let send = |bytes: &[u8]| Act::Send(bytes.to_vec());
        assert_eq!(read(&[b"ls\r\x1b[A"]), [send(b"ls\r\x1b[A")]);
        assert_eq!(read(&[b"a\x1cdb"]), [send(b"a"), Act::Detach, send(b"b")]);
        assert_eq!(read(&[b"\x1c", b"d"]), [Act::Detach]);
        assert_eq!(read(&[b"\x1c\x1cx"]), [send(b"\x1cx")]);
        assert_eq!(read(&[b"\x1c?y"]), [Act::Help, send(b"y")]);
        assert_eq!(read(&[b"\x1b[92;5u", b"d"]), [Act::Detach]);
        assert_eq!(read(&[b"\x1b[92;5u\x1b[92;5u"]), [send(b"\x1c")]);
    }
}
