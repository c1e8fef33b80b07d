//! The model of a terminal's screen: it follows the output as a real terminal would, so that a client that comes later
//! sees what one that was there from the beginning sees.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use alacritty_terminal::Term;
use alacritty_terminal::event::{Event, EventListener, WindowSize};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::Config;
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::vte::ansi::{Processor, Rgb};
use serde::{Deserialize, Serialize};

use super::bounded::Bounded;
use super::footprint::Footprint;
use super::key_names::CursorKeys;
use super::place::Bounds;
use super::protocol::Size;
use super::{repaint, unseen};

/// Plain output that the model has not drawn yet: beyond this it keeps what can still be seen of it, or draws it.
const UNDRAWN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Combining characters may pile up on cells without end: after so many characters that may be such, those beyond a bound are
/// taken off all cells.
const MARKS_MAX: usize = 1024 * 1024;
const MARKS_OF_CELL_MAX: usize = 32;

/// The colours of a terminal that nobody has coloured: what programs are told that ask.
const FOREGROUND: Rgb = Rgb { r: 0xe5, g: 0xe5, b: 0xe5 };
const BACKGROUND: Rgb = Rgb { r: 0, g: 0, b: 0 };

/// What the output asked of its terminal.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Answers to the program's questions (DA, DSR, colours), for when no real terminal answers.
    pub answers: Vec<u8>,
    pub bell: bool,
}

#[derive(Default)]
struct Inbox {
    heard: Heard,
    title: Option<String>,
    size: Option<Size>,
}

/// Where the model's events arrive; the model has no other way out.
#[derive(Clone, Default)]
struct Events(Rc<RefCell<Inbox>>);

impl EventListener for Events {
    fn send_event(&self, event: Event) {
        let mut inbox = self.0.borrow_mut();
        let size = inbox.size;
        match event {
            Event::PtyWrite(text) => inbox.heard.answers.extend_from_slice(text.as_bytes()),
            Event::ColorRequest(index, format) => {
                let colour = if index == 257 { BACKGROUND } else { FOREGROUND };
                inbox.heard.answers.extend_from_slice(format(colour).as_bytes());
            }
            Event::TextAreaSizeRequest(format) => {
                if let Some(Size { cols, rows }) = size {
                    let window =
                        WindowSize { num_lines: rows, num_cols: cols, cell_width: 0, cell_height: 0 };
                    inbox.heard.answers.extend_from_slice(format(window).as_bytes());
                }
            }
            Event::Bell => inbox.heard.bell = true,
            Event::Title(title) => inbox.title = Some(title),
            Event::ResetTitle => inbox.title = None,
            // The clipboard is that of a person's terminal.
            Event::ClipboardStore(..) | Event::ClipboardLoad(..) => {}
            Event::MouseCursorDirty | Event::CursorBlinkingChange | Event::Wakeup => {}
            Event::Exit | Event::ChildExit(_) => {}
        }
    }
}

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.rows)
    }

    fn columns(&self) -> usize {
        usize::from(self.cols)
    }
}

/// A screen as text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Screen {
    pub cols: u16,
    pub rows: u16,
    /// The rows without the blanks at their ends, joined by newlines; blank rows at the bottom are left out.
    pub text: String,
    pub cursor: Cursor,
    #[serde(default)]
    pub title: String,
    /// The program has the alternate screen, as editors and pagers do.
    #[serde(default)]
    pub alternate: bool,
}

/// From 0, at the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}

pub struct Model {
    term: Term<Events>,
    parser: Processor,
    events: Events,
    size: Size,
    lines: usize,
    /// Plain output that is not drawn yet.
    undrawn: Vec<u8>,
    footprint: Footprint,
    bounded: Bounded,
    /// Characters beyond ASCII since the marks were thinned.
    marks: usize,
}

impl Model {
    pub fn new(size: Size) -> Model {
        Model::with_scrollback(size, Bounds::default().scrollback_lines)
    }

    pub fn with_scrollback(size: Size, lines: usize) -> Model {
        let events = Events::default();
        events.0.borrow_mut().size = Some(size);
        let config = Config { scrolling_history: lines, kitty_keyboard: true, ..Config::default() };
        let term = Term::new(config, &size, events.clone());
        Model {
            term,
            parser: Processor::new(),
            events,
            size,
            lines,
            undrawn: Vec::new(),
            footprint: Footprint::default(),
            bounded: Bounded::default(),
            marks: 0,
        }
    }

    /// Follows some output, which ends between characters and sequences. Plain output asks nothing of its terminal, and is
    /// drawn later: when it is looked at, when `draw` is called, or when there is much of it.
    pub fn feed(&mut self, bytes: &[u8]) -> Heard {
        if self.held_until().is_none() && !self.bounded.is_within() && unseen::is_plain(bytes) {
            self.undrawn.extend_from_slice(bytes);
            if self.undrawn.len() > UNDRAWN_BYTES_MAX {
                self.forget_unseen();
            }
        } else {
            self.draw();
            self.footprint.follow(bytes);
            self.advance(bytes);
        }
        std::mem::take(&mut self.events.0.borrow_mut().heard)
    }

    /// Whether some output is not drawn yet.
    pub fn is_undrawn(&self) -> bool {
        !self.undrawn.is_empty()
    }

    /// Makes room without drawing, where much of it will not be seen.
    fn forget_unseen(&mut self) {
        let undrawn = std::mem::take(&mut self.undrawn);
        let seen = self.seen(&undrawn).concat();
        if seen.len() <= UNDRAWN_BYTES_MAX / 2 {
            self.undrawn = seen;
        } else {
            self.undrawn = undrawn;
            self.draw();
        }
    }

    /// What there is to draw of plain output.
    fn seen<'a>(&mut self, plain: &'a [u8]) -> Vec<&'a [u8]> {
        let rows = usize::from(self.size.rows);
        let has_region = !plain.is_empty() && repaint::region(&mut self.term) != (0, rows);
        if has_region { vec![plain] } else { unseen::seen(plain, rows, rows + self.lines) }
    }

    /// Draws what is not drawn yet.
    pub fn draw(&mut self) {
        let undrawn = std::mem::take(&mut self.undrawn);
        for piece in self.seen(&undrawn) {
            self.advance(piece);
        }
    }

    /// Draws bytes, of which the terminal keeps no more than a bound.
    fn advance(&mut self, bytes: &[u8]) {
        for piece in self.bounded.pieces(bytes) {
            self.parser.advance(&mut self.term, piece);
        }
        self.marks += bytes.iter().filter(|byte| **byte >= 0xc0).count();
        if self.marks > MARKS_MAX {
            self.marks = 0;
            repaint::on_both_screens(&mut self.term, |grid| repaint::thin_marks(grid, MARKS_OF_CELL_MAX));
        }
    }

    /// When the program has asked for its output to be shown at once and the end of it does not come: until then it is
    /// held back.
    pub fn held_until(&self) -> Option<Instant> {
        self.parser.sync_timeout().sync_timeout()
    }

    /// Shows what is held back.
    pub fn release(&mut self) -> Heard {
        self.draw();
        if self.held_until().is_some() {
            self.parser.stop_sync(&mut self.term);
        }
        std::mem::take(&mut self.events.0.borrow_mut().heard)
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn resize(&mut self, size: Size) {
        self.release();
        self.size = size;
        self.events.0.borrow_mut().size = Some(size);
        self.term.resize(size);
    }

    pub fn title(&self) -> String {
        self.events.0.borrow().title.clone().unwrap_or_default()
    }

    /// How the program wants the cursor keys.
    pub fn cursor_keys(&self) -> CursorKeys {
        let is_application = self.term.mode().contains(alacritty_terminal::term::TermMode::APP_CURSOR);
        if is_application { CursorKeys::Application } else { CursorKeys::Normal }
    }

    /// Output that paints this screen, with its modes, on any terminal of the same size; before it, so many lines of
    /// scrollback.
    pub fn repaint(&mut self, scrollback: usize) -> Vec<u8> {
        self.release();
        let title = self.title();
        repaint::paint(&mut self.term, scrollback, &title, &self.footprint)
    }

    /// Output that paints what fits into a smaller window, which is as after a repaint: the columns from the left, and the rows
    /// that end with the cursor where those from the top do not reach it. Nothing wraps or scrolls.
    pub fn clipped(&mut self, window: Size) -> Vec<u8> {
        self.release();
        repaint::clip(&self.term, window.rows, window.cols)
    }

    /// Lines of scrollback there are.
    pub fn scrollback(&mut self) -> usize {
        self.draw();
        self.term.grid().history_size()
    }

    pub fn screen(&mut self) -> Screen {
        self.release();
        let grid = self.term.grid();
        let mut rows: Vec<String> = (0..grid.screen_lines()).map(|line| row_text(&self.term, line)).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        let point = grid.cursor.point;
        let mode = self.term.mode();
        Screen {
            cols: self.size.cols,
            rows: self.size.rows,
            text: rows.join("\n"),
            cursor: Cursor {
                row: u16::try_from(point.line.0).unwrap_or_default(),
                col: u16::try_from(point.column.0).unwrap_or_default(),
                visible: mode.contains(alacritty_terminal::term::TermMode::SHOW_CURSOR),
            },
            title: self.title(),
            alternate: mode.contains(alacritty_terminal::term::TermMode::ALT_SCREEN),
        }
    }
}
fn row_text(term: &Term<Events>, line: usize) -> String {
    let grid = term.grid();
    let row = &grid[Line(i32::try_from(line).unwrap_or_default())];
    let mut text = String::new();
    let mut column = 0;
    while column < grid.columns() {
        let (cell, is_whole) = (&row[Column(column)], repaint::is_whole(row, column));
        column += if is_whole { 2 } else { 1 };
        let halves = Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER;
        if cell.c.is_control() || (cell.flags.intersects(halves) && !is_whole) {
            text.push(' ');
            continue;
        }
        text.push(cell.c);
        text.extend(cell.zerowidth().into_iter().flatten());
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::super::bounded::OSC_BYTES_MAX;
    use super::*;

    #[test]
    fn questions_are_answered_and_the_bell_is_heard() {
        let mut model = Model::new(Size::new(20, 5));
        let heard = model.feed(b"ab\x1b[6n\x07\x1b[c");
        assert_eq!(heard, Heard { answers: b"\x1b[1;3R\x1b[?6c".to_vec(), bell: true });
        assert_eq!(model.feed(b"x"), Heard::default());
        assert_eq!(model.feed(b"\x1b]11;?\x07").answers, b"\x1b]11;rgb:0000/0000/0000\x07");
        assert_eq!(model.feed(b"\x1b[18t").answers, b"\x1b[8;5;20t");
    }

    #[test]
    fn a_screen_as_text_has_wide_and_combining_characters_the_cursor_and_the_title() {
        let mut model = Model::new(Size::new(10, 4));
        model.feed("\x1b]2;work\x07one\r\n界e\u{301}!  \x1b[?25l".as_bytes());
        let screen = model.screen();
        assert_eq!(screen.text, "one\n界e\u{301}!");
        assert_eq!(screen.cursor, Cursor { row: 1, col: 6, visible: false });
        assert_eq!((screen.title.as_str(), screen.alternate), ("work", false));
        model.feed(b"\x1b[?1049h\x1b[Hedit");
        assert_eq!((model.screen().text.as_str(), model.screen().alternate), ("edit", true));
    }

    #[test]
    fn a_flood_of_lines_looks_as_if_every_line_had_been_drawn() {
        let flood = |from: u32| -> String {
            let line = |n: u32| match n % 7 {
                0 => format!("{n} a line that is longer than the screen is wide\r\n"),
                1 => format!("\x1b[1;3{}m{n} 界\x1b[K\r\n", n % 8),
                2 => format!("{n}\x1b[0m\tback\r\n"),
                _ => format!("{n}\r\n"),
            };
            (from..from + 400).map(line).collect()
        };
        // At the top, in the middle of a line, within regions that scroll, on the alternate screen.
        let befores = ["", "ab\r\ncd", "\x1b[2;4r\x1b[3;1H", "\x1b[1;3r\x1b[2;5H", "\x1b[?1049h\x1b[3;3H"];
        // Narrow, where lines wrap, and wide, where the first line that is kept is the first that was fed.
        for (cols, before) in [20, 60].into_iter().flat_map(|cols| befores.map(|before| (cols, before))) {
            let size = Size::new(cols, 5);
            let (mut model, mut drawn) = (Model::with_scrollback(size, 30), Model::with_scrollback(size, 30));
            for text in [before, &flood(1), "\x1b[31mend\x1b[2;2Hx", &flood(500), &flood(900), "last"] {
                model.feed(text.as_bytes());
                model.forget_unseen();
                for line in text.split_inclusive('\n') {
                    drawn.feed(line.as_bytes());
                    drawn.draw();
                }
            }
            assert_eq!(model.scrollback(), drawn.scrollback(), "{cols} {before:?}");
            let both = [&mut model, &mut drawn].map(|model| String::from_utf8(model.repaint(30)).unwrap());
            assert_eq!(both[0], both[1], "{cols} {before:?}");
        }
    }

    #[test]
    fn what_is_left_out_of_a_flood_moves_nothing() {
        let lines = |count: usize, line: &str| line.repeat(count);
        let without_cr = format!("{}q\r\n{}END", lines(10, "ab\n"), lines(35, "line\n"));
        let below = |n: usize| format!("{n} {}\r\n", lines(if n == 20 { 15 } else { n % 7 }, "z"));
        let below: String = (0..200).map(below).collect();
        for (before, flood) in [("", without_cr.as_str()), ("\x1b[1;2r\x1b[5;1H", &below)] {
            let size = Size::new(20, 5);
            let (mut model, mut drawn) = (Model::with_scrollback(size, 30), Model::with_scrollback(size, 30));
            for text in [before, flood] {
                model.feed(text.as_bytes());
                for line in text.split_inclusive('\n') {
                    drawn.feed(line.as_bytes());
                    drawn.draw();
                }
            }
            let both = [&mut model, &mut drawn].map(|model| String::from_utf8(model.repaint(30)).unwrap());
            assert_eq!(both[0], both[1], "{before:?}");
        }
    }

    #[test]
    fn a_window_that_is_too_small_gets_the_left_of_the_rows_down_to_the_cursor() {
        let mut model = Model::new(Size::new(20, 5));
        model.feed("\x1b[41m1234567890abc\x1b[m\r\nlong enough to be wrapped\r\n12345界\r\nlast".as_bytes());
        let mut shown = |window: Size| {
            let mut small = Model::new(window);
            small.feed(b"something else\x1b[H");
            let fresh = Model::new(window).repaint(0);
            small.feed(&[fresh, model.clipped(window)].concat());
            small.screen()
        };
        let narrow = shown(Size::new(6, 7));
        assert_eq!(narrow.text, "123456\nlong e\napped\n12345\nlast");
        assert_eq!((narrow.cursor.row, narrow.cursor.col, narrow.cursor.visible), (4, 4, true));
        let low = shown(Size::new(30, 2));
        assert_eq!((low.text.as_str(), low.cursor.row), ("12345界\nlast", 1));
        assert!(!shown(Size::new(4, 2)).cursor.visible);
        let repainted = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(repainted(&model.clipped(Size::new(6, 9))).contains("\x1b[0;41m123456"));
    }

    #[test]
    fn a_flood_of_combining_characters_leaves_some_on_each_cell_of_both_screens() {
        let mut model = Model::new(Size::new(10, 3));
        let marks = "\u{301}".repeat(MARKS_MAX / 2 + 1);
        // On the screen that is not shown too.
        model.feed(format!("\x1b[4;31mne\x1b[m{marks}\x1b[?1049h\x1b[Hx{marks}").as_bytes());
        assert_eq!(model.screen().text.chars().count(), 1 + MARKS_OF_CELL_MAX);
        model.feed(b"\x1b[?1049l");
        assert_eq!(model.screen().text.chars().count(), 2 + MARKS_OF_CELL_MAX);
        assert!(String::from_utf8(model.repaint(0)).unwrap().contains("\x1b[0;4;31mne"));
    }

    #[test]
    fn an_osc_without_an_end_takes_bounded_memory_and_the_next_sequence_is_seen() {
        let mut model = Model::new(Size::new(10, 3));
        model.feed(b"a\x1b]2;");
        let piece = vec![b't'; 256 * 1024];
        for _ in 0..64 {
            model.feed(&piece);
        }
        assert!(model.undrawn.is_empty());
        model.feed(b"\x07b");
        assert_eq!((model.screen().text.as_str(), model.title().len()), ("ab", OSC_BYTES_MAX - "2;".len()));
    }

    #[test]
    fn output_that_is_to_be_shown_at_once_is_not_held_for_ever() {
        let mut model = Model::new(Size::new(10, 2));
        model.feed(b"\x1b[?2026hhalf");
        assert!(model.held_until().is_some());
        assert_eq!(model.screen().text, "half");
        assert_eq!(model.held_until(), None);
    }
}
