//! What a person's terminal sends, in pieces: keys, the brackets around a paste, and what terminals say by themselves. Pure.

const ESCAPE: u8 = 0x1b;
/// `Ctrl-\`, which is in no sequence: where it stands in what looks like one, that was an Escape before it, or a key with Alt.
const PREFIX: u8 = 0x1c;
/// Bits of the modifiers. Caps Lock and Num Lock (64 and 128) change no key's meaning here.
pub const CTRL: u32 = 4;
const LOCKS: u32 = 64 | 128;

/// What stands at the beginning of some input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Key(Key),
    /// The beginning or the end of a paste.
    Paste,
    /// An answer to a program's question, the mouse, the focus: nobody has typed it.
    Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// Its character, without Shift and Ctrl. None: a key without one, or one that is not told from others here.
    pub code: Option<u32>,
    pub mods: u32,
    pub stroke: Stroke,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stroke {
    #[default]
    Press,
    Repeat,
    Release,
}

impl Key {
    pub fn is(self, character: char) -> bool {
        self.code == Some(u32::from(character))
    }

    /// Shift, Ctrl and the like, which some terminals report by themselves.
    pub fn is_modifier(self) -> bool {
        matches!(self.code, Some(57_358..=57_360 | 57_441..=57_454))
    }

    fn of_byte(byte: u8) -> Key {
        match byte {
            0..0x20 => Key {
                code: Some(u32::from((byte | 0x40).to_ascii_lowercase())),
                mods: CTRL,
                ..Key::default()
            },
            _ => Key { code: Some(u32::from(byte)), ..Key::default() },
        }
    }
}

/// The pieces of some input, each with its bytes. One whose end is missing is a report.
pub fn pieces(bytes: &[u8]) -> impl Iterator<Item = (Piece, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (piece, length) = first(rest)?;
        let (own, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        Some((piece, own))
    })
}

/// Whether a person has typed or pasted some of it.
pub(super) fn is_typed(bytes: &[u8]) -> bool {
    pieces(bytes).any(|(piece, _)| match piece {
        Piece::Key(key) => key.stroke != Stroke::Release,
        Piece::Paste => true,
        Piece::Report => false,
    })
}

/// The first piece, and its length.
fn first(bytes: &[u8]) -> Option<(Piece, usize)> {
    let (piece, length) = sequence(bytes)?;
    let rest = bytes.get(1..length.min(bytes.len())).unwrap_or_default();
    Some(if rest.contains(&PREFIX) { (Piece::Key(Key::default()), 1) } else { (piece, length) })
}

fn sequence(bytes: &[u8]) -> Option<(Piece, usize)> {
    let other = Piece::Key(Key::default());
    Some(match bytes {
        [] => return None,
        [ESCAPE, b'[', parameters @ ..] => control(parameters),
        // A key of the keypad or one with an arrow.
        [ESCAPE, b'O', _, ..] => (other, 3),
        [ESCAPE, b']' | b'P' | b'X' | b'^' | b'_', text @ ..] => {
            let end = text.iter().position(|byte| matches!(*byte, 0x07 | ESCAPE)).unwrap_or(text.len());
            let terminator = if text.get(end) == Some(&ESCAPE) { 2 } else { 1 };
            (Piece::Report, 2 + end + terminator)
        }
        [ESCAPE, ESCAPE, ..] | [ESCAPE] => (other, 1),
        // With Alt.
        [ESCAPE, ..] => (other, 2),
        [byte, ..] => (Piece::Key(Key::of_byte(*byte)), 1),
    })
}

/// What follows `CSI`.
fn control(parameters: &[u8]) -> (Piece, usize) {
    let end = parameters.iter().position(|byte| matches!(byte, 0x40..=0x7e));
    let Some((body, [last, ..])) = end.and_then(|end| parameters.split_at_checked(end)) else {
        return (Piece::Report, 2 + parameters.len());
    };
    let length = 2 + body.len() + 1;
    let has_numbers = body.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    match (body, last) {
        (b"200" | b"201", b'~') => (Piece::Paste, length),
        // The mouse in its oldest form: a button and two coordinates follow.
        (b"", b'M') => (Piece::Report, length + 3),
        // Not R: where the cursor is looks like F3.
        (_, b'~' | b'u' | b'A'..=b'F' | b'H' | b'P' | b'Q' | b'S' | b'Z') if has_numbers => {
            (Piece::Key(key(body, *last)), length)
        }
        _ => (Piece::Report, length),
    }
}

/// The key of `CSI code[:others];mods[:stroke][;text] u`, of `CSI 27;mods;code ~`, or of another sequence with modifiers.
fn key(body: &[u8], last: u8) -> Key {
    let number = |part: &[u8]| std::str::from_utf8(part).ok()?.parse::<u32>().ok();
    let mut parameters = body.split(|byte| *byte == b';').map(|one| one.split(|byte| *byte == b':'));
    let mut next =
        || parameters.next().map(|mut parts| [parts.next(), parts.next()].map(|part| number(part?)));
    let [first, mods, third] = [next(), next(), next()].map(Option::unwrap_or_default);
    let code = match (last, first[0]) {
        (b'u', code) => code,
        (b'~', Some(27)) => third[0],
        _ => None,
    };
    let stroke = match mods[1] {
        Some(2) => Stroke::Repeat,
        Some(3) => Stroke::Release,
        _ => Stroke::Press,
    };
    Key { code, mods: mods[0].unwrap_or(1).saturating_sub(1) & !LOCKS, stroke }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_types_or_pastes_is_told_from_what_terminals_say_by_themselves() {
        for typed in [
            "a",
            "\r",
            "\x03",
            "\x1b",
            "\x1b\x1b",
            "\x1bx",
            "\x1b[A",
            "\x1b[1;5D",
            "\x1bOA",
            "\x1b[3~",
            "\x1b[15;2~",
            "\x1b[Z",
            "\x1b[200~ls\r",
            "\x1b[200~",
            "\x1b[201~",
            "\x1b[97;5u",
            "\x1b[27;5;92~",
            "\x1b[I\x1b[200~x",
            "\x1b]11;rgb:0/0/0\x1b\\y",
        ] {
            assert!(is_typed(typed.as_bytes()), "{typed:?}");
        }
        for said in [
            "",
            "\x1b[?1;2c",
            "\x1b[>0;276;0c",
            "\x1b[5;1R",
            "\x1b[0n",
            "\x1b[8;24;80t",
            "\x1b[?2026;2$y",
            "\x1b[?1u",
            "\x1b]11;rgb:0/0/0\x07",
            "\x1b]11;rgb:0/0/0\x1b\\",
            "\x1bP1$r2 q\x1b\\",
            "\x1b_Gi=1;OK\x1b\\",
            "\x1b[I",
            "\x1b[O",
            "\x1b[<0;3;4M",
            "\x1b[<0;3;4m",
            "\x1b[M !!",
            "\x1b[48;24;80;0;0t",
            "\x1b[97;1:3u",
            "\x1b[?1;2c\x1b[I",
            "\x1b]11;rgb:0",
            "\x1b[?1;",
        ] {
            assert!(!is_typed(said.as_bytes()), "{said:?}");
        }
    }

    #[test]
    fn one_key_has_several_forms() {
        let read = |text: &str| match pieces(text.as_bytes()).collect::<Vec<_>>()[..] {
            [(Piece::Key(key), all)] if all == text.as_bytes() => key,
            ref other => panic!("{text:?}: {other:?}"),
        };
        for prefix in [
            "\x1c",
            "\x1b[92;5u",
            "\x1b[92;5:1u",
            "\x1b[92;69u",
            "\x1b[92;197u",
            "\x1b[92:124;5u",
            "\x1b[27;5;92~",
        ] {
            let key = read(prefix);
            assert!(key.is('\\') && (key.mods, key.stroke) == (CTRL, Stroke::Press), "{prefix:?}: {key:?}");
        }
        for d in ["d", "\x1b[100u", "\x1b[100;1u", "\x1b[100;129:1u", "\x1b[100;;100u", "\x1b[27;1;100~"] {
            assert!(read(d).is('d') && read(d).mods == 0, "{d:?}");
        }
        assert_eq!(read("\x1b[92;5:3u").stroke, Stroke::Release);
        assert_eq!(read("\x1b[1;1:3A"), Key { code: None, mods: 0, stroke: Stroke::Release });
        assert!(read("\x1b[57442;5u").is_modifier());
    }
}
