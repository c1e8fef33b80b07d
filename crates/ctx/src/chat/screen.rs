//! Where the chat writes: straight to stdout, or above the line that is being edited.
//!
//! Above the editor only whole rows can be written. Text that streams in is therefore kept until a row is full, or until
//! nothing has come for a moment; rows break between words. A row that is written is never touched again, so neither a
//! new size of the terminal nor a suspended process can damage it.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use crate::output;

/// Takes a whole row, with its line end.
pub type Printer = Box<dyn FnMut(String) -> io::Result<()> + Send>;

pub struct Screen {
    /// None: stdout itself.
    above: Option<Printer>,
    /// What is not written yet.
    row: Vec<u8>,
    /// The row was ended before its line was: the line end that may come is not another one.
    ended_early: bool,
}

impl Screen {
    pub fn new(above: Option<Printer>) -> Screen {
        Screen { above, row: Vec::new(), ended_early: false }
    }

    /// From here on there is no editor to write above.
    pub fn leave_editor(&mut self) {
        self.above = None;
    }

    /// Whether text waits for the end of its row.
    pub fn has_part(&self) -> bool {
        !self.row.is_empty()
    }

    /// Nothing has come for a moment: what there is is shown.
    pub fn show_part(&mut self) -> io::Result<()> {
        if !self.row.is_empty() {
            self.row.push(b'\n');
            self.print(self.row.len())?;
            self.ended_early = true;
        }
        Ok(())
    }

    /// Prints this many bytes of the row.
    fn print(&mut self, length: usize) -> io::Result<()> {
        let rest = self.row.split_off(length.min(self.row.len()));
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.row, rest)).into_owned();
        match &mut self.above {
            Some(print) => print(text),
            None => io::stdout().write_all(text.as_bytes()),
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.above.is_none() {
            return io::stdout().write(bytes);
        }
        let mut new = bytes;
        if self.ended_early && !bytes.is_empty() {
            new = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.ended_early = false;
        }
        self.row.extend_from_slice(new);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.above.is_none() {
            return io::stdout().flush();
        }
        if let Some(end) = self.row.iter().rposition(|byte| *byte == b'\n') {
            self.print(end + 1)?;
        }
        let width = output::width().unwrap_or(80);
        while let Some(end) = full_row(&String::from_utf8_lossy(&self.row), width) {
            self.row.insert(end, b'\n');
            self.print(end + 1)?;
        }
        Ok(())
    }
}

/// Where the text is to be broken, if it does not fit a row: behind the last blank that does, else where the row ends.
fn full_row(text: &str, width: usize) -> Option<usize> {
    let (mut wide, mut blank) = (0, None);
    for (at, c) in text.char_indices() {
        wide += c.width().unwrap_or(0);
        if wide > width {
            return blank.or((at > 0).then_some(at));
        }
        if c == ' ' {
            blank = Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn rows_break_between_words_and_count_wide_characters_twice() {
        assert_eq!(full_row("fits", 4), None);
        assert_eq!(full_row("two words", 5), Some(4));
        assert_eq!(full_row("overlong", 4), Some(4));
        assert_eq!(full_row("日本語", 4), Some(6), "two of them fit");
    }

    #[test]
    fn what_streams_in_comes_out_in_rows_and_no_word_is_lost() {
        let rows = Arc::new(Mutex::new(Vec::new()));
        let kept = rows.clone();
        let mut screen = Screen::new(Some(Box::new(move |row| {
            kept.lock().unwrap().push(row);
            Ok(())
        })));
        for piece in ["one\ntw", "o"] {
            screen.write_all(piece.as_bytes()).unwrap();
            screen.flush().unwrap();
        }
        assert_eq!(*rows.lock().unwrap(), ["one\n"]);
        screen.show_part().unwrap();
        // The line ends only now: that is no empty line.
        screen.write_all(b"\n").unwrap();
        screen.write_all("three\n".as_bytes()).unwrap();
        screen.flush().unwrap();
        assert_eq!(rows.lock().unwrap().concat(), "one\ntwo\nthree\n");
        assert!(!screen.has_part());
    }
}
