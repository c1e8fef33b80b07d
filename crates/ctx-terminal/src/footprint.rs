//! What output has left in a terminal, for when that goes back to its owner: nothing is reset that was not set. In tmux, leaving
//! an alternate screen that is not on moves the cursor; and the colours may be those that a script of the owner's has set. Pure.

use memchr::memchr_iter;

const ESCAPE: u8 = 0x1b;
/// Colours: of the palette, of text, of the background, of the cursor. OSC n sets, OSC 100 + n resets.
const COLOURS: [usize; 4] = [4, 10, 11, 12];

/// Before output of a program is shown: keeps the terminal's title, and whether its wheel scrolls on the alternate screen.
pub const ENTER: &[u8] = b"\x1b[22;0t\x1b[?1007s";

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Footprint {
    is_alternate: bool,
    has_coloured: [bool; 4],
}

impl Footprint {
    /// Follows output that ends between characters and sequences.
    pub fn follow(&mut self, bytes: &[u8]) {
        for at in memchr_iter(ESCAPE, bytes) {
            match bytes.get(at + 1..).unwrap_or_default() {
                [b'[', b'?', mode @ ..] => self.follow_mode(mode),
                [b']', command @ ..] => self.follow_command(command),
                // Everything is reset.
                [b'c', ..] => self.is_alternate = false,
                _ => {}
            }
        }
    }

    fn follow_mode(&mut self, mode: &[u8]) {
        let end = mode.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'));
        let Some((numbers, [last, ..])) = end.and_then(|end| mode.split_at_checked(end)) else { return };
        let is_alternate = |number: &[u8]| matches!(number, b"47" | b"1047" | b"1049");
        if matches!(last, b'h' | b'l') && numbers.split(|byte| *byte == b';').any(is_alternate) {
            self.is_alternate = *last == b'h';
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

    /// Gives the terminal back: nothing is cleared, and the cursor stays. Resetting the region moves it, so it is saved before.
    pub fn leave(&self) -> Vec<u8> {
        let alternate: &[u8] = if self.is_alternate { b"\x1b[?1049l" } else { b"" };
        [
            b"\x1b[0m\x1b]8;;\x1b\\\x1b(B\x0f",
            alternate,
            b"\x1b7\x1b[r\x1b8\x1b[4l\x1b[?7h\x1b[?1l\x1b>\x1b[20l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l",
            b"\x1b[?1005l\x1b[?1006l\x1b[?1007r",
            &self.without_colours(),
            b"\x1b[23;0t\x1b[?2004l\x1b[=0;1u\x1b[0 q\x1b[?25h",
        ]
        .concat()
    }
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
