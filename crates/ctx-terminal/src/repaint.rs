//! From a screen back to output: what a terminal must be sent to look and behave like the model.
//!
//! The lines are written as text that flows, scrollback first, so that they end where a terminal of the same size has
//! them, and a line that was wrapped is wrapped again. Then come the saved cursor, the alternate screen if the program
//! is on it, the modes, and at last the cursor. Not restored, because the model does not have it: tab stops that a
//! program has moved.

use std::io::Write;

use alacritty_terminal::Term;
use alacritty_terminal::event::EventListener;
use alacritty_terminal::grid::{Cursor, Dimensions, Grid, Row};
use alacritty_terminal::index::{Column, Line, Point};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags, Hyperlink};
use alacritty_terminal::vte::ansi::{
    CharsetIndex, Color, CursorShape, Handler, NamedColor, NamedPrivateMode, PrivateMode, StandardCharset,
};

use super::footprint::Footprint;

/// Everything that an earlier screen may have left: attributes, links, charsets, region, modes, alternate screen.
const BEGIN: &[u8] =
    b"\x1b[0m\x1b]8;;\x1b\\\x1b(B\x0f\x1b[?1049l\x1b[r\x1b[?6l\x1b[4l\x1b[?7h\x1b[?1l\x1b>\x1b[20l\
\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?2004l\x1b[H\x1b[J";

/// Modes that are on or off: their numbers for `CSI ? n h`. Those that are on by default come first.
const ON_BY_DEFAULT: &[(TermMode, u16)] =
    &[(TermMode::SHOW_CURSOR, 25), (TermMode::LINE_WRAP, 7), (TermMode::ALTERNATE_SCROLL, 1007)];
const OFF_BY_DEFAULT: &[(TermMode, u16)] = &[
    (TermMode::APP_CURSOR, 1),
    (TermMode::MOUSE_REPORT_CLICK, 1000),
    (TermMode::MOUSE_DRAG, 1002),
    (TermMode::MOUSE_MOTION, 1003),
    (TermMode::FOCUS_IN_OUT, 1004),
    (TermMode::UTF8_MOUSE, 1005),
    (TermMode::SGR_MOUSE, 1006),
    (TermMode::BRACKETED_PASTE, 2004),
];

/// Paints everything. The terminal is as it was when this returns. `footprint` is that of all output.
pub(super) fn paint<T: EventListener>(
    term: &mut Term<T>,
    scrollback: usize,
    title: &str,
    footprint: &Footprint,
) -> Vec<u8> {
    mend_halves(term.grid_mut());
    let mut brush = Brush { out: BEGIN.to_vec(), pen: Cell::default(), draws_lines: [false, false] };
    if term.mode().contains(TermMode::ALT_SCREEN) {
        // Only one screen can be read; going back to the alternate one clears it.
        let alternate = term.grid().clone();
        term.swap_alt();
        mend_halves(term.grid_mut());
        brush.lines(term.grid(), scrollback);
        brush.cursor(term.grid(), &term.grid().cursor, Line(0));
        term.swap_alt();
        *term.grid_mut() = alternate;
        brush.put(b"\x1b[?1049h");
        brush.charsets([false, false]);
        brush.attributes(&Cell::default());
        brush.put(b"\x1b[H\x1b[J");
        brush.lines(term.grid(), 0);
    } else {
        brush.lines(term.grid(), scrollback);
    }
    let saved = term.grid().saved_cursor.clone();
    if saved != Cursor::default() {
        brush.cursor(term.grid(), &saved, Line(0));
        brush.put(b"\x1b7");
    }
    brush.put(&footprint.unmodelled());
    brush.put(&footprint.without_colours());
    brush.colours(term);
    if !title.is_empty() {
        brush.write(format_args!("\x1b]2;{title}\x07"));
    }
    let region = region(term);
    let is_origin = term.mode().contains(TermMode::ORIGIN);
    if region != (0, term.screen_lines()) {
        // One line alone cannot be asked for: it is the last one, with a bottom beyond it.
        let bottom = if region.0 + 1 == region.1 { region.1 + 1 } else { region.1 };
        brush.write(format_args!("\x1b[{};{bottom}r", region.0 + 1));
    }
    if is_origin {
        brush.put(b"\x1b[?6h");
    }
    let top = if is_origin { Line(i32::try_from(region.0).unwrap_or_default()) } else { Line(0) };
    brush.cursor(term.grid(), &term.grid().cursor, top);
    brush.modes(term);
    brush.out
}

/// Paints what fits into a window on top of what it shows already.
pub(super) fn clip<T: EventListener>(term: &Term<T>, rows: u16, cols: u16) -> Vec<u8> {
    let (grid, cols) = (term.grid(), usize::from(cols));
    let rows = i32::from(rows).min(i32::try_from(grid.screen_lines()).unwrap_or_default());
    let Point { line, column } = grid.cursor.point;
    let first = (line.0 + 1 - rows).max(0);
    let mut brush =
        Brush { out: b"\x1b[?25l\x1b[0m".to_vec(), pen: Cell::default(), draws_lines: [false, false] };
    for row in 0..rows {
        brush.write(format_args!("\x1b[{};1H", row + 1));
        brush.clipped_row(&grid[Line(first + row)], cols);
    }
    brush.write(format_args!("\x1b[{};{}H", line.0 - first + 1, column.0.min(cols - 1) + 1));
    if term.mode().contains(TermMode::SHOW_CURSOR) && column.0 < cols {
        brush.put(b"\x1b[?25h");
    }
    brush.out
}

/// Half of a wide character, of which something took the other, is shown as a blank. The model has it as a half all the same,
/// and writing beside it has effects that no output can bring about on another terminal: so it becomes the blank that it is.
fn mend_halves(grid: &mut Grid<Cell>) {
    let halves = Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER;
    let last = i32::try_from(grid.screen_lines()).unwrap_or_default() - 1;
    for line in 0..=last {
        let is_wide_next = line < last && is_whole(&grid[Line(line + 1)], 0);
        let row = &mut grid[Line(line)];
        let mut column = 0;
        while column < row.len() {
            if is_whole(row, column) {
                column += 2;
                continue;
            }
            let cell = &mut row[Column(column)];
            let is_leading = cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) && is_wide_next;
            if cell.flags.intersects(halves) && !is_leading {
                cell.flags.remove(halves);
                cell.c = ' ';
            }
            column += 1;
        }
    }
}

/// Does something to the grid that is shown and to the other: going back to the alternate screen clears it.
pub(super) fn on_both_screens<T: EventListener>(term: &mut Term<T>, act: impl Fn(&mut Grid<Cell>)) {
    act(term.grid_mut());
    if term.mode().contains(TermMode::ALT_SCREEN) {
        let alternate = term.grid().clone();
        term.swap_alt();
        act(term.grid_mut());
        term.swap_alt();
        *term.grid_mut() = alternate;
    }
}

/// Takes the combining characters beyond so many off each cell.
pub(super) fn thin_marks(grid: &mut Grid<Cell>, most: usize) {
    let first = -i32::try_from(grid.history_size()).unwrap_or_default();
    let lines = i32::try_from(grid.screen_lines()).unwrap_or_default();
    for line in first..lines {
        for cell in &mut grid[Line(line)][..] {
            let Some(marks) = cell.zerowidth().filter(|marks| marks.len() > most).map(<[char]>::to_vec)
            else {
                continue;
            };
            let (link, underline) = (cell.hyperlink(), cell.underline_color());
            cell.extra = None;
            cell.set_hyperlink(link);
            cell.set_underline_color(underline);
            marks.into_iter().take(most).for_each(|mark| cell.push_zerowidth(mark));
        }
    }
}

/// The lines that scroll: the first, and the one after the last. The model does not show them, but with the origin mode
/// the cursor cannot leave them.
pub(super) fn region<T: EventListener>(term: &mut Term<T>) -> (usize, usize) {
    let cursor = term.grid().cursor.clone();
    let was_origin = term.mode().contains(TermMode::ORIGIN);
    let origin = PrivateMode::Named(NamedPrivateMode::Origin);
    term.set_private_mode(origin);
    term.goto(0, 0);
    let top = term.grid().cursor.point.line.0;
    term.goto(i32::from(i16::MAX), 0);
    let bottom = term.grid().cursor.point.line.0;
    if !was_origin {
        term.unset_private_mode(origin);
    }
    term.grid_mut().cursor = cursor;
    (usize::try_from(top).unwrap_or_default(), usize::try_from(bottom + 1).unwrap_or_default())
}

struct Brush {
    out: Vec<u8>,
    /// The attributes in effect.
    pen: Cell,
    /// Whether the charsets G0 and G1 are those with lines for letters.
    draws_lines: [bool; 2],
}

impl Brush {
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = self.out.write_fmt(text);
    }

    /// The last lines of the scrollback and the whole screen, as text that flows.
    fn lines(&mut self, grid: &Grid<Cell>, scrollback: usize) {
        let first = -i32::try_from(scrollback.min(grid.history_size())).unwrap_or_default();
        let last = i32::try_from(grid.screen_lines()).unwrap_or_default() - 1;
        let mut is_wrapped = false;
        for line in first..=last {
            let row = &grid[Line(line)];
            // Half of one is a blank, which would fit beside it.
            let is_wide_next = line < last && is_whole(&grid[Line(line + 1)], 0);
            self.row(row, is_wrapped, is_wide_next);
            is_wrapped = line < last && row[Column(grid.columns() - 1)].flags.contains(Flags::WRAPLINE);
            if line < last && !is_wrapped {
                // A line feed that scrolls fills the new line with the background in effect.
                self.attributes(&Cell::default());
                self.put(b"\r\n");
            }
        }
    }

    /// `is_wide_next`: the next line begins with a wide character, which may have left the last column empty.
    fn row(&mut self, row: &Row<Cell>, is_wrapped: bool, is_wide_next: bool) {
        let mut inked = row.len();
        while inked > 0 && is_blank(&row[Column(inked - 1)]) {
            inked -= 1;
        }
        // The line above is wrapped only by a character on this one.
        let shown = if is_wrapped { inked.max(1) } else { inked };
        let mut column = 0;
        while column < shown {
            let cell = &row[Column(column)];
            let is_whole = is_whole(row, column);
            if !(is_wide_next && cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER)) {
                self.cell(cell, is_whole);
            }
            column += if is_whole { 2 } else { 1 };
        }
        if is_wrapped && column < row.len() {
            self.attributes(&Cell::default());
            self.put(b"\x1b[K");
        }
    }

    /// As much of a row as fits into so many columns; the rest of these is blank.
    fn clipped_row(&mut self, row: &Row<Cell>, cols: usize) {
        let mut column = 0;
        while column < row.len() {
            let is_whole = is_whole(row, column);
            let next = column + if is_whole { 2 } else { 1 };
            if next > cols {
                break;
            }
            self.cell(&row[Column(column)], is_whole);
            column = next;
        }
        self.attributes(&Cell::default());
        // Behind the last column this would erase that one.
        if column < cols {
            self.put(b"\x1b[K");
        }
    }

    /// A cell takes its own column, and a wide one that is whole the next. What is left of a wide character of which one
    /// half was deleted is a blank.
    fn cell(&mut self, cell: &Cell, is_whole: bool) {
        self.attributes(cell);
        let is_half = cell.flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
            || (cell.flags.contains(Flags::WIDE_CHAR) && !is_whole);
        if is_half || cell.c.is_control() {
            self.put(b" ");
            return;
        }
        self.character(cell.c);
        for mark in cell.zerowidth().into_iter().flatten() {
            self.character(*mark);
        }
    }

    fn character(&mut self, character: char) {
        self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Takes the attributes of a cell.
    fn attributes(&mut self, cell: &Cell) {
        let looks = |cell: &Cell| (cell.fg, cell.bg, cell.flags & LOOKS, cell.underline_color());
        if looks(cell) != looks(&self.pen) {
            self.put(b"\x1b[0");
            for (flag, code) in FLAGS {
                if cell.flags.contains(*flag) {
                    self.write(format_args!(";{code}"));
                }
            }
            self.colour(cell.fg, 30);
            self.colour(cell.bg, 40);
            if let Some(colour) = cell.underline_color() {
                self.colour(colour, 50);
            }
            self.put(b"m");
        }
        if cell.hyperlink() != self.pen.hyperlink() {
            match cell.hyperlink() {
                Some(link) => self.link(&link),
                None => self.put(b"\x1b]8;;\x1b\\"),
            }
        }
        self.pen = cell.clone();
    }

    fn link(&mut self, link: &Hyperlink) {
        self.write(format_args!("\x1b]8;id={};{}\x1b\\", link.id(), link.uri()));
    }

    /// `base` is 30 for the foreground, 40 for the background, 50 for underlines.
    fn colour(&mut self, colour: Color, base: u16) {
        let extended = base + 8;
        match colour {
            Color::Named(name) => match name as u16 {
                low @ 0..=7 => self.write(format_args!(";{}", base + low)),
                bright @ 8..=15 => self.write(format_args!(";{}", base + 60 + bright - 8)),
                // The default.
                _ => {}
            },
            Color::Indexed(index) => self.write(format_args!(";{extended};5;{index}")),
            Color::Spec(rgb) => self.write(format_args!(";{extended};2;{};{};{}", rgb.r, rgb.g, rgb.b)),
        }
    }

    /// Puts the cursor where it is, with its attributes and charsets. `top` is the line that is called 1.
    fn cursor(&mut self, grid: &Grid<Cell>, cursor: &Cursor<Cell>, top: Line) {
        let Point { line, mut column } = cursor.point;
        let last = Column(grid.columns() - 1);
        let (line, column_of_line) =
            (line.min(Line(grid.bottommost_line().0)).max(Line(0)), column.min(last));
        column = column_of_line;
        let is_wide = column.0 > 0 && is_whole(&grid[line], column.0 - 1);
        if cursor.input_needs_wrap && is_wide {
            column -= 1;
        }
        self.charsets([false, false]);
        self.write(format_args!("\x1b[{};{}H", (line.0 - top.0).max(0) + 1, column.0 + 1));
        if cursor.input_needs_wrap {
            // The next character goes to the next line: only writing the last one again says so.
            self.cell(&grid[line][column], is_wide);
        }
        let charset = |index| cursor.charsets[index] == StandardCharset::SpecialCharacterAndLineDrawing;
        self.charsets([charset(CharsetIndex::G0), charset(CharsetIndex::G1)]);
        self.attributes(&cursor.template);
    }

    /// Whether G0 and G1 draw lines.
    fn charsets(&mut self, wanted: [bool; 2]) {
        let [is_g0, is_g1] = std::mem::replace(&mut self.draws_lines, wanted);
        for (is, was, designator) in [(wanted[0], is_g0, '('), (wanted[1], is_g1, ')')] {
            if is != was {
                self.write(format_args!("\x1b{designator}{}", if is { '0' } else { 'B' }));
            }
        }
    }

    /// Colours that the program has given the terminal.
    fn colours<T>(&mut self, term: &Term<T>) {
        let palette = term.colors();
        for index in 0..256 {
            if let Some(rgb) = palette[index] {
                self.write(format_args!(
                    "\x1b]4;{index};rgb:{:02x}/{:02x}/{:02x}\x1b\\",
                    rgb.r, rgb.g, rgb.b
                ));
            }
        }
        for (name, code) in
            [(NamedColor::Foreground, 10), (NamedColor::Background, 11), (NamedColor::Cursor, 12)]
        {
            if let Some(rgb) = palette[name] {
                self.write(format_args!("\x1b]{code};rgb:{:02x}/{:02x}/{:02x}\x1b\\", rgb.r, rgb.g, rgb.b));
            }
        }
    }

    fn modes<T>(&mut self, term: &Term<T>) {
        let mode = *term.mode();
        for (flag, number) in ON_BY_DEFAULT {
            self.write(format_args!("\x1b[?{number}{}", if mode.contains(*flag) { 'h' } else { 'l' }));
        }
        for (_, number) in OFF_BY_DEFAULT.iter().filter(|(flag, _)| mode.contains(*flag)) {
            self.write(format_args!("\x1b[?{number}h"));
        }
        for (flag, sequence) in [
            (TermMode::INSERT, b"\x1b[4h".as_slice()),
            (TermMode::LINE_FEED_NEW_LINE, b"\x1b[20h"),
            (TermMode::APP_KEYPAD, b"\x1b="),
        ] {
            if mode.contains(flag) {
                self.put(sequence);
            }
        }
        let keyboard =
            (mode & TermMode::KITTY_KEYBOARD_PROTOCOL).bits() / TermMode::DISAMBIGUATE_ESC_CODES.bits();
        if keyboard != 0 {
            self.write(format_args!("\x1b[={keyboard};1u"));
        }
        let style = term.cursor_style();
        let shape = match style.shape {
            CursorShape::Block | CursorShape::HollowBlock | CursorShape::Hidden => 1,
            CursorShape::Underline => 3,
            CursorShape::Beam => 5,
        };
        let steady = u8::from(!style.blinking);
        if shape + steady != 2 {
            self.write(format_args!("\x1b[{} q", shape + steady));
        }
    }
}

/// What of a cell's flags is an attribute.
const LOOKS: Flags = Flags::INVERSE
    .union(Flags::BOLD_ITALIC)
    .union(Flags::DIM)
    .union(Flags::HIDDEN)
    .union(Flags::STRIKEOUT)
    .union(Flags::ALL_UNDERLINES);

const FLAGS: &[(Flags, &str)] = &[
    (Flags::BOLD, "1"),
    (Flags::DIM, "2"),
    (Flags::ITALIC, "3"),
    (Flags::UNDERLINE, "4"),
    (Flags::DOUBLE_UNDERLINE, "4:2"),
    (Flags::UNDERCURL, "4:3"),
    (Flags::DOTTED_UNDERLINE, "4:4"),
    (Flags::DASHED_UNDERLINE, "4:5"),
    (Flags::INVERSE, "7"),
    (Flags::HIDDEN, "8"),
    (Flags::STRIKEOUT, "9"),
];

/// Whether there is a wide character with both of its halves.
pub(super) fn is_whole(row: &Row<Cell>, column: usize) -> bool {
    row[Column(column)].flags.contains(Flags::WIDE_CHAR)
        && column + 1 < row.len()
        && row[Column(column + 1)].flags.contains(Flags::WIDE_CHAR_SPACER)
}

/// A cell that nobody has written to.
fn is_blank(cell: &Cell) -> bool {
    let default = Cell::default();
    matches!(cell.c, ' ' | '\t')
        && (cell.fg, cell.bg, cell.flags) == (default.fg, default.bg, default.flags)
        && cell.extra.is_none()
}
