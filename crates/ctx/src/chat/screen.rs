//! Where the chat writes: straight to stdout, or above the line that is being edited.
//!
//! Above the editor only whole rows can be written, and they break between words. Text that stops in the middle of a row is
//! shown after a moment as far as it goes, and that row is written anew when there is more of it: what a terminal shows
//! does not depend on when the pieces came. A row that is full is never touched again, so neither a new size of the
//! terminal nor a suspended process can damage it.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use crate::output;

/// Rows for the terminal: one that may grow yet, or whole ones.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    pub is_part: bool,
}

/// Takes rows, with their line ends.
pub type Printer = Box<dyn FnMut(Row) -> io::Result<()> + Send>;

/// How often the editor has put something below what was printed, and how wide the terminal is.
type Moment = (u64, Option<usize>);

/// Goes to the row above and empties it.
const OVER: &str = "\x1b[A\r\x1b[2K";

/// The part of a row that was printed last, and when.
#[derive(Debug, Default)]
pub struct Last {
    part: Option<(String, Moment)>,
    /// What stood there when the terminal got another width, which has broken it anew: it is not printed again.
    rewrapped: String,
}

impl Last {
    /// What is to be printed for a row: over the part of it that stands above the editor, or where something else stands
    /// there by now, below that.
    pub fn printed(&mut self, row: Row, now: Moment) -> Option<String> {
        let before = self.part.take();
        if row.is_part {
            self.part = Some((row.text.clone(), now));
        }
        match before {
            Some((shown, then)) if then.0 == now.0 && then.1 != now.1 => {
                self.rewrapped = shown.trim_end_matches('\n').to_owned();
                Some(self.not_rewrapped(&row))
            }
            // Of what was broken anew, nothing may stand in the row above.
            Some((shown, then)) if then == now => {
                let stands = without(&shown, &self.rewrapped).is_none_or(|(rest, _)| rest.trim() != "");
                let text = self.not_rewrapped(&row);
                Some(if stands { format!("{OVER}{text}") } else { text })
            }
            Some((shown, _)) => {
                self.rewrapped.clear();
                Some(row.text.strip_prefix(shown.as_str()).unwrap_or(&row.text).to_owned())
            }
            None => Some(self.not_rewrapped(&row)),
        }
        .filter(|text| !text.is_empty())
    }

    /// What is new in a row.
    fn not_rewrapped(&mut self, row: &Row) -> String {
        if self.rewrapped.is_empty() {
            return row.text.clone();
        }
        let (text, left) = match without(&row.text, &self.rewrapped) {
            // What stands there has a row's end already.
            Some((rest, left)) => {
                let rest = rest.strip_prefix('\n').unwrap_or(rest);
                (from_word(&row.text, rest).to_owned(), left.to_owned())
            }
            None => (row.text.clone(), String::new()),
        };
        // A part comes again.
        if !row.is_part {
            self.rewrapped = left;
        }
        text
    }
}

/// The end of a text, with the whole of the word that it begins in.
fn from_word<'a>(text: &'a str, rest: &'a str) -> &'a str {
    if rest.is_empty() || rest.starts_with(char::is_whitespace) {
        return rest;
    }
    let before = text.len().checked_sub(rest.len()).and_then(|at| text.get(..at)).unwrap_or_default();
    let start = before.rfind([' ', '\n']).map_or(0, |blank| blank + 1);
    text.get(start..).unwrap_or(rest)
}

/// What a text has beyond another that it begins with, wherever its rows break, and what it lacks of that one. None: it
/// does not begin with it.
fn without<'a>(text: &'a str, known: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut rest, mut left) = (text, known);
    while let (Some(c), Some(k)) = (rest.chars().next(), left.chars().next()) {
        match c {
            _ if c == k => left = left.get(k.len_utf8()..)?,
            '\n' => {}
            _ => return None,
        }
        rest = rest.get(c.len_utf8()..)?;
    }
    Some((rest, left))
}

pub struct Screen {
    /// None: stdout itself.
    above: Option<Printer>,
    /// What is not written yet.
    row: String,
    /// How much of it was shown as a part.
    shown: usize,
    /// How wide the terminal is now.
    width: fn() -> Option<usize>,
}

impl Screen {
    pub fn new(above: Option<Printer>) -> Screen {
        Screen { above, row: String::new(), shown: 0, width: output::width }
    }

    /// From here on there is no editor to write above.
    pub fn leave_editor(&mut self) {
        self.above = None;
    }

    /// Whether text waits for the end of its row.
    pub fn has_part(&self) -> bool {
        self.row.len() > self.shown
    }

    /// Nothing has come for a moment: what there is is shown.
    pub fn show_part(&mut self) -> io::Result<()> {
        // The terminal may be narrower than when the text came: a part has one row, or the row above is not all of it.
        self.flush()?;
        if self.has_part() {
            self.shown = self.row.len();
            self.print(Row { text: format!("{}\n", self.row), is_part: true })?;
        }
        Ok(())
    }

    fn print(&mut self, row: Row) -> io::Result<()> {
        match &mut self.above {
            Some(print) => print(row),
            None => io::stdout().write_all(row.text.as_bytes()),
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.above.is_none() {
            return io::stdout().write(bytes);
        }
        self.row.push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.above.is_none() {
            return io::stdout().flush();
        }
        let (text, rest) = rows(&self.row, (self.width)().unwrap_or(80));
        if !text.is_empty() {
            (self.row, self.shown) = (rest, 0);
            self.print(Row { text, is_part: false })?;
        }
        Ok(())
    }
}

/// The whole rows of a text, and what is left of it.
fn rows(text: &str, width: usize) -> (String, String) {
    let (mut whole, mut rest) = (String::new(), text);
    loop {
        let line = rest.split_inclusive('\n').next().unwrap_or_default();
        // Lines of ours are painted, and have commands in them that one may want to copy.
        let full = if line.contains('\x1b') { None } else { full_row(line.trim_end_matches('\n'), width) };
        let (row, after) = match full {
            Some(end) => rest.split_at_checked(end).unwrap_or((rest, "")),
            None if line.ends_with('\n') => rest.split_at_checked(line.len()).unwrap_or((rest, "")),
            None => return (whole, rest.to_owned()),
        };
        whole.push_str(row);
        if full.is_some() {
            whole.push('\n');
        }
        rest = after;
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
        let (whole, rest) = rows("one two three\nfour five si", 8);
        assert_eq!((whole.as_str(), rest.as_str()), ("one two \nthree\nfour \n", "five si"));
    }

    /// The rows that a terminal of 80 columns shows after these pieces, each followed by a pause or not.
    fn shown(pieces: &[(&str, bool)]) -> String {
        let rows = Arc::new(Mutex::new((Last::default(), String::new())));
        let kept = rows.clone();
        let mut screen = Screen::new(Some(Box::new(move |row| {
            let (last, all) = &mut *kept.lock().unwrap();
            let text = last.printed(row, (0, Some(80))).unwrap_or_default();
            match text.strip_prefix(OVER) {
                Some(text) => {
                    let start = all.trim_end_matches('\n').rfind('\n').map_or(0, |end| end + 1);
                    all.truncate(start);
                    all.push_str(text);
                }
                None => all.push_str(&text),
            }
            Ok(())
        })));
        for (piece, pause) in pieces {
            screen.write_all(piece.as_bytes()).unwrap();
            screen.flush().unwrap();
            if *pause {
                screen.show_part().unwrap();
                assert!(!screen.has_part());
            }
        }
        rows.lock().unwrap().1.clone()
    }

    #[test]
    fn what_streams_in_comes_out_in_the_same_rows_whenever_it_comes() {
        let long = "word ".repeat(20);
        for pauses in [true, false] {
            let pieces = ["un", "believ", "able", "\nsecond\nthi", "rd ", &long, "\n"];
            let pieces: Vec<_> = pieces.iter().map(|piece| (*piece, pauses)).collect();
            let all = shown(&pieces);
            let wanted =
                format!("unbelievable\nsecond\nthird {}\n{}\n", "word ".repeat(14), "word ".repeat(6));
            assert_eq!(all, wanted, "{pauses}");
        }
    }

    #[test]
    fn text_that_came_before_the_terminal_was_narrower_has_a_row_for_each_part() {
        thread_local! { static WIDTH: std::cell::Cell<usize> = const { std::cell::Cell::new(40) }; }
        let rows = Arc::new(Mutex::new(Vec::new()));
        let printed = rows.clone();
        let mut screen = Screen::new(Some(Box::new(move |row| {
            printed.lock().unwrap().push(row);
            Ok(())
        })));
        screen.width = || Some(WIDTH.get());
        screen.write_all(b"one two three four").unwrap();
        screen.flush().unwrap();
        WIDTH.set(10);
        screen.show_part().unwrap();
        let row = |text: &str, is_part| Row { text: text.to_owned(), is_part };
        assert_eq!(*rows.lock().unwrap(), [row("one two \n", false), row("three four\n", true)]);
    }

    #[test]
    fn in_another_width_what_stands_there_is_not_printed_again() {
        let part = |text: &str| Row { text: format!("{text}\n"), is_part: true };
        let whole = |text: &str| Row { text: format!("{text}\n"), is_part: false };
        let mut last = Last::default();
        let (wide, narrow) = ((0, Some(80)), (0, Some(10)));
        assert_eq!(last.printed(part("alpha beta gam"), wide).as_deref(), Some("alpha beta gam\n"));
        // The terminal is narrow now; the rows are broken anew, and what is new stands below, in whole words.
        assert_eq!(last.printed(whole("alpha "), narrow), None);
        assert_eq!(last.printed(part("beta gamma"), narrow).as_deref(), Some("gamma\n"));
        assert_eq!(last.printed(part("beta gamma "), narrow).as_deref(), Some(&*format!("{OVER}gamma \n")));
        assert_eq!(
            last.printed(whole("beta gamma \ndelta"), narrow).as_deref(),
            Some(&*format!("{OVER}gamma \ndelta\n"))
        );
        assert_eq!(last.printed(whole("alpha"), narrow).as_deref(), Some("alpha\n"), "it is forgotten");
        // Wider, with nothing new at first.
        assert_eq!(last.printed(part("four"), narrow).as_deref(), Some("four\n"));
        assert_eq!(last.printed(part("four"), wide), None);
        assert_eq!(last.printed(whole("four end."), wide).as_deref(), Some(" end.\n"));
    }

    #[test]
    fn below_a_line_that_was_typed_meanwhile_the_row_comes_whole_and_only_if_it_has_grown() {
        let part = |text: &str| Row { text: text.to_owned(), is_part: true };
        let whole = |text: &str| Row { text: text.to_owned(), is_part: false };
        let mut last = Last::default();
        assert_eq!(last.printed(part("hel\n"), (0, None)).as_deref(), Some("hel\n"));
        assert_eq!(last.printed(whole("hello\n"), (1, None)).as_deref(), Some("hello\n"));
        assert_eq!(last.printed(part("hello\n"), (1, None)).as_deref(), Some("hello\n"));
        assert_eq!(last.printed(whole("hello\nmore\n"), (2, None)).as_deref(), Some("more\n"));
        assert_eq!(last.printed(part("x\n"), (2, None)).as_deref(), Some("x\n"));
        assert_eq!(last.printed(whole("x\n"), (3, None)), None, "it stands there");
    }
}
