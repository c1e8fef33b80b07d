//! What output has left in a terminal, for when that goes back to its owner: nothing is reset that was not set. In tmux, leaving
//! an alternate screen that is not on moves the cursor; and the colours may be those that a script of the owner's has set. Pure.

use std::io::Write;

use memchr::memchr_iter;

const ESCAPE: u8 = 0x1b;
/// Colours: of the palette, of text, of the background, of the cursor. OSC n sets, OSC 100 + n resets.
const COLOURS: [usize; 4] = [4, 10, 11, 12];

/// Modes that the model does not know, off by default: reverse video, the mouse in pixels, notices of other colours and sizes.
const MODES: [u16; 4] = [5, 1016, 2031, 2048];

/// Before output of a program is shown: keeps the terminal's title, and whether its wheel scrolls on the alternate screen.
pub const ENTER: &[u8] = b"\x1b[22;0t\x1b[?1007s";

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Footprint {
    is_alternate: bool,
    has_coloured: [bool; 4],
    /// Whether each of `MODES` is on; None: nothing was said of it.
    modes: [Option<bool>; 4],
    /// How many keys are sent in longer forms (xterm's modifyOtherKeys); None: nothing was said of it.
    other_keys: Option<u8>,
}

impl Footprint {
    /// Follows output that ends between characters and sequences.
    pub fn follow(&mut self, bytes: &[u8]) {
        for at in memchr_iter(ESCAPE, bytes) {
            match bytes.get(at + 1..).unwrap_or_default() {
                [b'[', b'?', mode @ ..] => self.follow_mode(mode),
                [b'[', b'>', keys @ ..] => self.follow_keys(keys),
                [b']', command @ ..] => self.follow_command(command),
                // Everything is reset.
                [b'c', ..] => {
                    self.is_alternate = false;
                    self.modes = self.modes.map(|mode| mode.and(Some(false)));
                    self.other_keys = self.other_keys.and(Some(0));
                }
                _ => {}
            }
        }
    }

    fn follow_mode(&mut self, mode: &[u8]) {
        let Some((numbers, last @ (b'h' | b'l'))) = numbers(mode) else { return };
        let is_on = last == b'h';
        for number in numbers {
            if matches!(number, 47 | 1047 | 1049) {
                self.is_alternate = is_on;
            }
            for (_, mode) in MODES.iter().zip(&mut self.modes).filter(|(known, _)| **known == number) {
                *mode = Some(is_on);
            }
        }
    }

    fn follow_keys(&mut self, keys: &[u8]) {
        let Some((mut numbers, last)) = numbers(keys) else { return };
        match (numbers.next(), numbers.next(), last) {
            (Some(4), level, b'm') => self.other_keys = Some(u8::try_from(level.unwrap_or(0)).unwrap_or(0)),
            // Of this resource, or of all.
            (Some(4), None, b'n') | (None, None, b'm') => self.other_keys = self.other_keys.and(Some(0)),
            _ => {}
        }
    }

    fn follow_command(&mut self, command: &[u8]) {
        let end = command.iter().position(|byte| matches!(*byte, 0x07 | ESCAPE)).unwrap_or(command.len());
        let mut words = command.get(..end).unwrap_or_default().split(|byte| *byte == b';');
        let number = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
        let Some(number) = number else { return };
        for (colour, has_coloured) in COLOURS.into_iter().zip(&mut self.has_coloured) {
            *has_coloured |= match number {
                // The number of a colour and what it is to be, in turns. A question sets nothing.
                4 => colour == 4 && words.clone().skip(1).step_by(2).any(|word| word != b"?"),
                // One and those after it.
                10..=12 if colour >= number => {
                    words.clone().nth(colour - number).is_some_and(|it| it != b"?")
                }
                _ => number == 100 + colour,
            };
        }
    }

    /// Resets the colours that were set.
    pub fn without_colours(&self) -> Vec<u8> {
        let set = COLOURS.iter().zip(self.has_coloured).filter(|(_, has_coloured)| *has_coloured);
        set.flat_map(|(colour, _)| format!("\x1b]{}\x1b\\", 100 + colour).into_bytes()).collect()
    }

    /// Sets what was said of the modes that the model does not know, as it was said.
    pub(super) fn unmodelled(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, is_on) in MODES.iter().zip(self.modes).filter_map(|(number, mode)| Some((number, mode?)))
        {
            let _ = write!(bytes, "\x1b[?{number}{}", if is_on { 'h' } else { 'l' });
        }
        if let Some(level) = self.other_keys {
            let _ = write!(bytes, "\x1b[>4;{level}m");
        }
        bytes
    }

    /// Unsets what of them is set.
    fn without_unmodelled(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, _) in MODES.iter().zip(self.modes).filter(|(_, mode)| *mode == Some(true)) {
            let _ = write!(bytes, "\x1b[?{number}l");
        }
        // To what its owner has set. Terminals that do not know it may take it for an underline.
        if self.other_keys.is_some_and(|level| level > 0) {
            bytes.extend_from_slice(b"\x1b[>4m\x1b[0m");
        }
        bytes
    }

    /// Gives the terminal back: nothing is cleared, and the cursor stays. Resetting the region moves it, so it is saved before.
    pub fn leave(&self) -> Vec<u8> {
        let alternate: &[u8] = if self.is_alternate { b"\x1b[?1049l" } else { b"" };
        [
            b"\x1b[0m\x1b]8;;\x1b\\\x1b(B\x0f",
            alternate,
            b"\x1b7\x1b[r\x1b8\x1b[4l\x1b[?7h\x1b[?1l\x1b>\x1b[20l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l",
            b"\x1b[?1005l\x1b[?1006l\x1b[?1007r",
            &self.without_colours(),
            &self.without_unmodelled(),
            b"\x1b[23;0t\x1b[?2004l\x1b[=0;1u\x1b[0 q\x1b[?25h",
        ]
        .concat()
    }
}

/// The numbers of a sequence, and what ends it; one that is too large is 0.
pub(super) fn numbers(parameters: &[u8]) -> Option<(impl Iterator<Item = u16>, u8)> {
    let end = parameters.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'))?;
    let (body, last) = parameters.split_at_checked(end)?;
    let number = |word: &[u8]| std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(0);
    let words = body.split(|byte| *byte == b';').filter(|_| !body.is_empty());
    Some((words.map(number), *last.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(output: &str) -> String {
        let mut footprint = Footprint::default();
        footprint.follow(output.as_bytes());
        String::from_utf8(footprint.leave()).unwrap()
    }

    #[test]
    fn the_alternate_screen_is_left_only_where_it_is_on() {
        for on in ["\x1b[?1049h", "\x1b[?25;1049hx\x1b[?1l", "\x1b[?47h", "\x1b[?1049l\x1b[?1047h\x1b[1049l"]
        {
            assert!(left(on).contains("\x1b[?1049l"), "{on:?}");
        }
        for off in ["", "text", "\x1b[?1049h\x1b[?1049l", "\x1b[?1049h\x1bc", "\x1b[1049h", "\x1b[?1049$p"] {
            assert!(!left(off).contains("1049"), "{off:?}");
        }
    }

    #[test]
    fn keys_and_modes_that_the_model_does_not_know_are_given_back_and_come_again() {
        for (output, is_left, again) in [
            ("\x1b[>4;2m", "\x1b[>4m", "\x1b[>4;2m"),
            ("\x1b[>4;2m\x1b[>4;0m", "", "\x1b[>4;0m"),
            ("\x1b[>4;1m\x1b[>4m", "", "\x1b[>4;0m"),
            ("\x1b[>4;1m\x1b[>m", "", "\x1b[>4;0m"),
            ("\x1b[>4;1m\x1b[>4n", "", "\x1b[>4;0m"),
            ("\x1b[>1;2m\x1b[4;2m\x1b[>4u\x1b[>m", "", ""),
            ("\x1b[?5h", "\x1b[?5l", "\x1b[?5h"),
            (
                "\x1b[?1016;2031h\x1b[?2048h",
                "\x1b[?1016l\x1b[?2031l\x1b[?2048l",
                "\x1b[?1016h\x1b[?2031h\x1b[?2048h",
            ),
            ("\x1b[?5h\x1bc", "", "\x1b[?5l"),
            ("\x1b[?5$p\x1b[5h", "", ""),
        ] {
            let mut footprint = Footprint::default();
            footprint.follow(output.as_bytes());
            let unset = String::from_utf8(footprint.without_unmodelled()).unwrap();
            assert_eq!(unset.trim_end_matches("\x1b[0m"), is_left, "{output:?}");
            assert!(left(output).contains(&unset), "{output:?}");
            assert_eq!(String::from_utf8(footprint.unmodelled()).unwrap(), again, "{output:?}");
            let mut model = crate::Model::new(crate::Size::new(20, 5));
            model.feed(output.as_bytes());
            assert!(String::from_utf8(model.repaint(0)).unwrap().contains(again), "{output:?}");
        }
    }

    #[test]
    fn the_colours_that_were_set_are_reset_and_no_others() {
        let reset = |output: &str| {
            let left = left(output);
            ["104", "110", "111", "112"].map(|number| left.contains(&format!("\x1b]{number}\x1b\\")))
        };
        assert_eq!(reset("\x1b]4;1;red\x07"), [true, false, false, false]);
        assert_eq!(reset("\x1b]4;1;?;2;#102030\x1b\\"), [true, false, false, false]);
        assert_eq!(reset("\x1b]10;red;?;#fff\x07"), [false, true, false, true]);
        assert_eq!(reset("x\x1b]11;rgb:00/00/00\x07y\x1b]112\x07"), [false, false, true, true]);
        assert_eq!(reset("\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;?;?\x07\x1b]2;4;title\x07"), [false; 4]);
    }

    #[test]
    fn a_link_is_closed_the_title_comes_back_and_the_cursor_stays() {
        let mut model = crate::Model::new(crate::Size::new(20, 5));
        let output = "one\r\n\x1b[2;3r\x1b[2;3H\x1b]8;;https://example.org\x07li";
        model.feed([ENTER, output.as_bytes(), left(output).as_bytes(), b"nk"].concat().as_slice());
        assert_eq!((model.screen().cursor.row, model.screen().cursor.col), (1, 6));
        let painted = String::from_utf8(model.repaint(0)).unwrap();
        let (_, linked) = painted.split_once("example.org").unwrap();
        assert!(linked.starts_with("\x1b\\li\x1b]8;;\x1b\\nk"), "{painted:?}");
        assert!(left("").contains("\x1b[23;0t"));
    }
}
