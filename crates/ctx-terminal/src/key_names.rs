//! Keys by their names, and what a terminal sends for them. Pure.

use super::error::TerminalError;

/// What a key sends, without Ctrl, Alt and Shift.
#[derive(Debug, Clone, Copy)]
enum Base {
    Plain(&'static [u8]),
    /// `CSI A`, or `SS3 A` for a program that has asked for it; with Shift `CSI 1;2A`.
    Letter(char),
    /// F1 to F4: `SS3 P`; with Shift `CSI 1;2P`.
    Function(char),
    /// `CSI 5~`; with Shift `CSI 5;2~`.
    Number(u8),
}

/// How the cursor keys are sent: a program that has asked for the second form (DECCKM) need not know the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CursorKeys {
    #[default]
    Normal,
    Application,
}

/// Keys that have a name of their own, in any case; some have a second one.
const NAMED: &[(&str, &str, Base)] = &[
    ("Enter", "Return", Base::Plain(b"\r")),
    ("Tab", "", Base::Plain(b"\t")),
    ("BTab", "", Base::Plain(b"\x1b[Z")),
    ("Escape", "Esc", Base::Plain(b"\x1b")),
    ("Space", "", Base::Plain(b" ")),
    ("Backspace", "BSpace", Base::Plain(b"\x7f")),
    ("Insert", "", Base::Number(2)),
    ("Delete", "", Base::Number(3)),
    ("Up", "", Base::Letter('A')),
    ("Down", "", Base::Letter('B')),
    ("Right", "", Base::Letter('C')),
    ("Left", "", Base::Letter('D')),
    ("Home", "", Base::Letter('H')),
    ("End", "", Base::Letter('F')),
    ("PageUp", "PgUp", Base::Number(5)),
    ("PageDown", "PgDn", Base::Number(6)),
    ("F1", "", Base::Function('P')),
    ("F2", "", Base::Function('Q')),
    ("F3", "", Base::Function('R')),
    ("F4", "", Base::Function('S')),
    ("F5", "", Base::Number(15)),
    ("F6", "", Base::Number(17)),
    ("F7", "", Base::Number(18)),
    ("F8", "", Base::Number(19)),
    ("F9", "", Base::Number(20)),
    ("F10", "", Base::Number(21)),
    ("F11", "", Base::Number(23)),
    ("F12", "", Base::Number(24)),
];

/// Ctrl, Alt and Shift.
#[derive(Debug, Clone, Copy, Default)]
struct With {
    ctrl: bool,
    alt: bool,
    shift: bool,
}

impl With {
    /// As terminals count them; 1 for none.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl)
    }

    /// What stands before the name of the key.
    fn split(name: &str) -> (With, &str) {
        let (mut with, mut rest) = (With::default(), name);
        while let Some((word, key)) = rest.split_once('-').filter(|(_, key)| !key.is_empty()) {
            match word {
                "C" | "c" => with.ctrl = true,
                "M" | "m" => with.alt = true,
                "S" | "s" => with.shift = true,
                _ => break,
            }
            rest = key;
        }
        (with, rest)
    }
}

/// What a key sends: `Enter`, `F5`, `C-c` (Ctrl), `M-x` (Alt), `S-Up` (Shift), or a single character. None: there is no such key.
pub fn keys(name: &str, cursor: CursorKeys) -> Option<Vec<u8>> {
    let (with, key) = With::split(name);
    let known = |(one, other, _): &&(&str, &str, Base)| {
        one.eq_ignore_ascii_case(key) || (!other.is_empty() && other.eq_ignore_ascii_case(key))
    };
    let Some((_, _, base)) = NAMED.iter().find(known) else {
        let mut characters = key.chars();
        let only = characters.next().filter(|_| characters.next().is_none())?;
        return character(only, with);
    };
    let n = with.number();
    Some(match (base, n) {
        (Base::Letter(letter), 1) if cursor == CursorKeys::Application => {
            format!("\x1bO{letter}").into_bytes()
        }
        (Base::Letter(letter), 1) => format!("\x1b[{letter}").into_bytes(),
        (Base::Function(letter), 1) => format!("\x1bO{letter}").into_bytes(),
        (Base::Number(number), 1) => format!("\x1b[{number}~").into_bytes(),
        (Base::Letter(letter) | Base::Function(letter), n) => format!("\x1b[1;{n}{letter}").into_bytes(),
        (Base::Number(number), n) => format!("\x1b[{number};{n}~").into_bytes(),
        (Base::Plain(b"\t"), 2) => b"\x1b[Z".to_vec(),
        (Base::Plain(b" "), _) => return character(' ', With { shift: false, ..with }),
        (Base::Plain(bytes), 1) => bytes.to_vec(),
        (Base::Plain(bytes), 3) => [b"\x1b", *bytes].concat(),
        // Terminals send the same as without it, which nobody means.
        (Base::Plain(_), _) => return None,
    })
}

fn character(only: char, with: With) -> Option<Vec<u8>> {
    let sent = match (with.ctrl, only) {
        (false, only) if with.shift => only.to_uppercase().to_string().into_bytes(),
        (false, only) => only.to_string().into_bytes(),
        (true, '?') => vec![0x7f],
        (true, ' ') => vec![0],
        (true, only @ ('@'..='_' | 'a'..='z')) => vec![u8::try_from(only).ok()? & 0x1f],
        (true, _) => return None,
    };
    let alt: &[u8] = if with.alt { b"\x1b" } else { b"" };
    Some([alt, &sent].concat())
}

/// The bytes of some text and keys, as they would be typed.
pub fn typed(text: &str, names: &[String], cursor: CursorKeys) -> Result<Vec<u8>, TerminalError> {
    let mut bytes = text.as_bytes().to_vec();
    for name in names {
        let key = keys(name, cursor)
            .ok_or_else(|| TerminalError::Invalid { field: "keys", message: no_key(name) })?;
        bytes.extend_from_slice(&key);
    }
    Ok(bytes)
}

fn no_key(name: &str) -> String {
    let shown: String = name.chars().take(40).collect();
    let is_function = |name: &&str| name.strip_prefix('F').is_some_and(|n| n.parse::<u8>().is_ok());
    let named: Vec<&str> = NAMED.iter().map(|(name, _, _)| *name).filter(|name| !is_function(name)).collect();
    format!(
        "no key `{}`; keys are {}, F1 to F12 and single characters, also with C- (Ctrl), M- (Alt) or S- (Shift) before them",
        shown.escape_debug(),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_keys_are_sent_as_the_program_has_asked_for_them() {
        let names = ["Up", "Down", "Right", "Left", "Home", "End", "S-Up", "F1", "PageUp"].map(str::to_owned);
        let sent = |cursor| String::from_utf8(typed("", &names, cursor).unwrap()).unwrap();
        let others = "\x1b[1;2A\x1bOP\x1b[5~";
        assert_eq!(sent(CursorKeys::Normal), format!("\x1b[A\x1b[B\x1b[C\x1b[D\x1b[H\x1b[F{others}"));
        assert_eq!(sent(CursorKeys::Application), format!("\x1bOA\x1bOB\x1bOC\x1bOD\x1bOH\x1bOF{others}"));
    }

    #[test]
    fn keys_have_the_names_that_people_know() {
        for (name, bytes) in [
            ("Enter", b"\r".as_slice()),
            ("up", b"\x1b[A"),
            ("C-c", b"\x03"),
            ("c-c", b"\x03"),
            ("C-\\", b"\x1c"),
            ("C-?", b"\x7f"),
            ("C-Space", b"\0"),
            ("C- ", b"\0"),
            ("M-x", b"\x1bx"),
            ("M-C-x", b"\x1b\x18"),
            ("C-M-x", b"\x1b\x18"),
            ("M-Enter", b"\x1b\r"),
            ("S-a", b"A"),
            ("q", b"q"),
            ("-", b"-"),
            ("M--", b"\x1b-"),
            ("ü", "ü".as_bytes()),
            ("F1", b"\x1bOP"),
            ("F5", b"\x1b[15~"),
            ("f10", b"\x1b[21~"),
            ("S-F3", b"\x1b[1;2R"),
            ("C-F12", b"\x1b[24;5~"),
            ("Insert", b"\x1b[2~"),
            ("BTab", b"\x1b[Z"),
            ("S-Tab", b"\x1b[Z"),
            ("S-Up", b"\x1b[1;2A"),
            ("C-Up", b"\x1b[1;5A"),
            ("M-Left", b"\x1b[1;3D"),
            ("PgUp", b"\x1b[5~"),
            ("PgDn", b"\x1b[6~"),
            ("Esc", b"\x1b"),
            ("BSpace", b"\x7f"),
        ] {
            assert_eq!(keys(name, CursorKeys::Normal).as_deref(), Some(bytes), "{name}");
        }
        for name in ["", "Entr", "C-", "C-1", "C-cc", "F13", "F0", "X-a", "C-Enter"] {
            assert_eq!(keys(name, CursorKeys::Normal), None, "{name}");
        }
        let said = typed("", &["F13".to_owned()], CursorKeys::Normal).unwrap_err().to_string();
        assert!(
            said.contains("no key `F13`; keys are Enter, Tab, BTab,") && said.contains("F1 to F12"),
            "{said}"
        );
    }
}
