//! What a person types while attached: everything goes to the program but what follows the prefix, `Ctrl-\`. Pure.
//!
//! A terminal sends the same key in several forms, as the program has asked it to; some also tell when a key is released.

use ctx_terminal::{CTRL, Key, Piece, Stroke, pieces};

const PREFIX: u8 = 0x1c;

/// What the keys ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Send(Vec<u8>),
    Detach,
    /// Show the keys.
    Help,
}

/// What becomes of a piece.
enum Meaning {
    /// It is the program's.
    Passed,
    /// The prefix is typed into the program.
    TypedPrefix,
    /// It is nobody's.
    Dropped,
    Act(Act),
}

/// The state between two reads.
#[derive(Debug, Default)]
pub struct Keys {
    after_prefix: bool,
    /// The key of the prefix was pressed, of which the program knows nothing.
    is_prefix_down: bool,
}

impl Keys {
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Act> {
        let mut acts = Vec::new();
        let mut plain: Vec<u8> = Vec::new();
        for (piece, own) in pieces(bytes) {
            match self.meaning(piece) {
                Meaning::Passed => plain.extend_from_slice(own),
                Meaning::TypedPrefix => plain.push(PREFIX),
                Meaning::Dropped => {}
                Meaning::Act(act) => {
                    if !plain.is_empty() {
                        acts.push(Act::Send(std::mem::take(&mut plain)));
                    }
                    acts.push(act);
                }
            }
        }
        if !plain.is_empty() {
            acts.push(Act::Send(plain));
        }
        acts
    }

    fn meaning(&mut self, piece: Piece) -> Meaning {
        let key = match piece {
            Piece::Key(key) => key,
            Piece::Report => return Meaning::Passed,
            Piece::Paste => {
                self.after_prefix = false;
                return Meaning::Passed;
            }
        };
        if key.stroke == Stroke::Release {
            let is_own = key.is('\\') && std::mem::take(&mut self.is_prefix_down);
            return if is_own { Meaning::Dropped } else { Meaning::Passed };
        }
        if key.is_modifier() {
            return Meaning::Passed;
        }
        let is_prefix = key.is('\\') && key.mods == CTRL;
        if is_prefix && key.stroke == Stroke::Repeat {
            return Meaning::Dropped;
        }
        if key.is('\\') {
            self.is_prefix_down = is_prefix;
        }
        let was_after_prefix = std::mem::replace(&mut self.after_prefix, false);
        match (was_after_prefix, is_prefix) {
            (false, false) => Meaning::Passed,
            (false, true) => {
                self.after_prefix = true;
                Meaning::Dropped
            }
            (true, true) => Meaning::TypedPrefix,
            (true, false) if key.is('d') || key.is('D') => Meaning::Act(Act::Detach),
            // A key that means nothing is most likely a mistyped one, and is not the program's.
            (true, false) => Meaning::Act(Act::Help),
        }
    }
}

/// Whether somebody who only watches leaves: by `q` or Ctrl-C.
pub fn leaves(bytes: &[u8]) -> bool {
    let is_leaving = |key: Key| key.is('q') || (key.is('c') && key.mods == CTRL);
    pieces(bytes).any(|(piece, _)| matches!(piece, Piece::Key(key) if is_leaving(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Act> {
        let mut keys = Keys::default();
        pieces.iter().flat_map(|piece| keys.read(piece)).collect()
    }

    fn send(bytes: &[u8]) -> Act {
        Act::Send(bytes.to_vec())
    }

    #[test]
    fn the_prefix_is_followed_by_a_command_or_by_itself() {
        assert_eq!(read(&[b"ls\r\x1b[A"]), [send(b"ls\r\x1b[A")]);
        assert_eq!(read(&[b"a\x1cdb"]), [send(b"a"), Act::Detach, send(b"b")]);
        assert_eq!(read(&[b"\x1c", b"d"]), [Act::Detach]);
        assert_eq!(read(&[b"\x1c\x1cx"]), [send(b"\x1cx")]);
        assert_eq!(read(&[b"\x1c?y"]), [Act::Help, send(b"y")]);
        assert_eq!(read(&[b"\x1c\x1b[Ay"]), [Act::Help, send(b"y")]);
        assert_eq!(read(&[b"\x1b[92;5u", b"d"]), [Act::Detach]);
        // Behind an Escape or a key with Alt that came at the same moment.
        for before in ["\x1b", "\x1b_", "\x1b]ab", "\x1bO", "\x1b[", "\x1b\x1b"] {
            assert_eq!(
                read(&[&[before.as_bytes(), b"\x1cd"].concat()]),
                [send(before.as_bytes()), Act::Detach]
            );
        }
        assert_eq!(read(&[b"\x1b[92;5u\x1b[92;5u"]), [send(b"\x1c")]);
    }

    #[test]
    fn the_prefix_and_what_follows_come_in_any_form_that_a_program_may_ask_for() {
        let prefixes = ["\x1c", "\x1b[92;5u", "\x1b[92;5:1u", "\x1b[92;69u", "\x1b[27;5;92~"];
        let commands = ["d", "\x04", "\x1b[100;5u", "\x1b[100;65:1u", "\x1b[27;5;100~"];
        for (prefix, command) in prefixes.into_iter().flat_map(|one| commands.map(|other| (one, other))) {
            assert_eq!(
                read(&[prefix.as_bytes(), command.as_bytes()]),
                [Act::Detach],
                "{prefix:?} {command:?}"
            );
        }
    }

    #[test]
    fn released_and_repeated_keys_and_answers_are_not_what_follows_the_prefix() {
        // The program is not told of the release of a key that it was not told of, in whatever order fingers leave.
        let released = read(&[b"\x1b[92;5:1u", b"\x1b[92;5:2u", b"\x1b[92;5:3u", b"d"]);
        assert_eq!(released, [Act::Detach]);
        assert_eq!(read(&[b"\x1b[92;5u\x1b[92;1:3u\x1b[100;1:1u"]), [Act::Detach]);
        let others = b"\x1b[97;1:3u\x1b[57442;1:3u\x1b[57442;5u\x1b[?1;2c";
        assert_eq!(read(&[b"\x1b[92;5u", others, b"d"]), [send(others), Act::Detach]);
        assert_eq!(read(&[b"\x1b[92;1:1u\x1b[92;1:3u"]), [send(b"\x1b[92;1:1u\x1b[92;1:3u")]);
        let paste = b"\x1b[200~d\x1b[201~";
        assert_eq!(read(&[b"\x1c", paste]), [send(paste)]);
    }

    #[test]
    fn a_watcher_leaves_by_a_key_and_not_by_an_answer() {
        for leaving in ["q", "\x03", "\x1b[99;5u", "xq"] {
            assert!(leaves(leaving.as_bytes()), "{leaving:?}");
        }
        assert!(!leaves(b"\x1bP1$r2 q\x1b\\") && !leaves(b"c"));
    }
}
