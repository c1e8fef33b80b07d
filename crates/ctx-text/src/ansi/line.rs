//! The line that a program draws: text at its end, or redrawn cell by cell.

use super::Params;

/// The part of a line that can still be redrawn. What a longer line pushes out of it is final.
pub const LINE_CHARS_MAX: usize = 32 * 1024;

/// How far to the right the cursor moves where the line has no text yet. A terminal stops it at its width, and there
/// is none here: this is wider than one, and a few bytes that move the cursor make no more spaces than this.
const COLUMNS_MAX: usize = 512;

/// The line being drawn.
#[derive(Default)]
pub(super) struct Line {
    text: String,
    /// How many characters `text` has.
    chars: usize,
    /// Where the next character goes; never beyond `chars` by more than the spaces it would need.
    pub cursor: usize,
    /// `text` as cells, while the line is being redrawn.
    cells: Vec<char>,
    redrawn: bool,
}

impl Line {
    pub fn print(&mut self, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        if self.cursor == self.chars && !self.redrawn {
            self.append(text, out);
        } else {
            self.overwrite(text, out);
        }
    }

    /// The common case: text at the end of the line. What does not fit is made final.
    fn append(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            let room = LINE_CHARS_MAX - self.chars.min(LINE_CHARS_MAX);
            let (chars, len) = prefix(rest, room);
            let (now, later) = rest.split_at(len);
            self.text.push_str(now);
            self.chars += chars;
            self.cursor = self.chars;
            rest = later;
            if !rest.is_empty() {
                out.push_str(&self.text);
                self.end();
            }
        }
    }

    fn overwrite(&mut self, text: &str, out: &mut String) {
        self.use_cells();
        for char in text.chars() {
            if self.cursor >= LINE_CHARS_MAX {
                out.extend(self.cells.drain(..));
                self.cursor = 0;
            }
            if self.cells.len() < self.cursor {
                self.cells.resize(self.cursor, ' ');
            }
            match self.cells.get_mut(self.cursor) {
                Some(cell) => *cell = char,
                None => self.cells.push(char),
            }
            self.cursor += 1;
        }
        self.chars = self.cells.len();
    }

    /// Erasing and moving within the line.
    pub fn move_cursor(&mut self, action: u8, params: &Params) {
        if params.private {
            return;
        }
        let count = params.first().max(1);
        match action {
            b'C' => self.cursor = (self.cursor + count).min(self.column_max().max(self.cursor)),
            b'D' => self.cursor = self.cursor.saturating_sub(count),
            b'G' | b'`' => self.cursor = (count - 1).min(self.column_max()),
            b'K' | b'J' => self.erase(params.first()),
            b'P' => self.delete(count),
            _ => {}
        }
    }

    /// Where a move to the right ends at the latest: within the text of the line it may go anywhere.
    fn column_max(&self) -> usize {
        self.chars.max(COLUMNS_MAX - 1)
    }

    pub fn is_blank(&self) -> bool {
        self.chars == 0 && self.cursor == 0 && !self.redrawn
    }

    fn erase(&mut self, part: usize) {
        if part == 0 && self.cursor >= self.chars {
            return;
        }
        self.use_cells();
        match part {
            0 => self.cells.truncate(self.cursor),
            1 => {
                for cell in self.cells.iter_mut().take(self.cursor + 1) {
                    *cell = ' ';
                }
            }
            _ => self.cells.clear(),
        }
        self.chars = self.cells.len();
    }

    fn delete(&mut self, count: usize) {
        self.use_cells();
        let from = self.cursor.min(self.cells.len());
        let to = (from + count).min(self.cells.len());
        self.cells.drain(from..to);
        self.chars = self.cells.len();
    }

    fn use_cells(&mut self) {
        if !self.redrawn {
            self.cells.clear();
            self.cells.extend(self.text.chars());
            self.redrawn = true;
        }
    }

    pub fn new_line(&mut self, out: &mut String) {
        self.flush(out);
        out.push('\n');
        self.end();
    }

    /// Writes the line's last state. Spaces that blanked an older state are no text.
    pub fn flush(&mut self, out: &mut String) {
        if self.redrawn {
            let len = self.cells.iter().rposition(|cell| *cell != ' ').map_or(0, |at| at + 1);
            push_cells(&self.cells[..len], out);
        } else {
            out.push_str(&self.text);
        }
    }

    pub fn end(&mut self) {
        self.text.clear();
        self.cells.clear();
        self.chars = 0;
        self.cursor = 0;
        self.redrawn = false;
    }
}

/// Most cells are ASCII, and a run of them is written at once.
fn push_cells(cells: &[char], out: &mut String) {
    out.reserve(cells.len());
    for run in cells.chunks(64) {
        let mut bytes = [0; 64];
        for (byte, cell) in bytes.iter_mut().zip(run) {
            // What is beyond ASCII becomes a byte that is no text alone.
            *byte = u8::try_from(*cell).unwrap_or(u8::MAX);
        }
        match bytes.get(..run.len()).filter(|bytes| bytes.is_ascii()).map(std::str::from_utf8) {
            Some(Ok(text)) => out.push_str(text),
            _ => out.extend(run),
        }
    }
}

/// How many characters of `text`, at most `max`, and how many bytes they are.
fn prefix(text: &str, max: usize) -> (usize, usize) {
    if text.len() <= max {
        return (text.chars().count(), text.len());
    }
    if text.as_bytes().get(..max).is_some_and(<[u8]>::is_ascii) {
        return (max, max);
    }
    match text.char_indices().nth(max) {
        Some((len, _)) => (max, len),
        None => (text.chars().count(), text.len()),
    }
}
