//! What the line editor has drawn, for a terminal that gets another width.
//!
//! The editor counts the rows of its line in the old width and erases that many. A terminal that wraps its rows anew shows
//! another number of them: with too few erased, the first rows of a draft stand twice; with too many, what stands above is
//! lost. So what is drawn is erased here first, in the new width, and the editor gets the empty rows that it counts on.

use unicode_width::UnicodeWidthChar;

/// Columns between tab stops.
const TAB: usize = 8;

/// The line that stands behind the prompt, and how wide the terminal was when the editor placed it.
#[derive(Debug, Default)]
pub struct Drawn {
    prompt: String,
    /// None: nothing is drawn yet.
    line: Option<String>,
    columns: usize,
    /// What was put below the line since, such as a list of completions.
    turn: u64,
}

impl Drawn {
    /// A prompt is about to be drawn.
    pub fn begin(&mut self, prompt: &str) {
        *self = Drawn { prompt: prompt.to_owned(), ..Drawn::default() };
    }

    /// The editor is about to draw its line. What is to be written before, if the terminal has another width by now.
    pub fn before(
        &mut self,
        line: &str,
        at: usize,
        columns: usize,
        turn: u64,
        rewraps: bool,
    ) -> Option<String> {
        let is_same = self.line.as_deref() == Some(line) && self.turn == turn;
        let old = self.columns;
        if is_same && old != columns {
            self.columns = columns;
            return Some(self.erase(line, at, (old, columns), rewraps));
        }
        // A key may come before the editor hears of the new width. Then it draws its line anew, unless that is one row in both.
        let shown = self.line.as_deref().map(|line| place(&format!("{}{line}", self.prompt), old));
        if shown.is_none_or(|(row, column)| row == 0 && column < columns.min(old)) {
            self.columns = columns;
        }
        (self.line, self.turn) = (Some(line.to_owned()), turn);
        None
    }

    fn erase(&self, line: &str, at: usize, (old, new): (usize, usize), rewraps: bool) -> String {
        let whole = format!("{}{line}", self.prompt);
        let mut left = format!("{}{}", self.prompt, line.get(..at).unwrap_or(line));
        let (cursor, end) = (editors_row(&left, old), editors_row(&whole, old));
        // Behind a line that fills its last row, the editor has begun another row.
        if at == line.len() && place(&whole, old).1 == old {
            left.push('\n');
        }
        let mut above = place(&left, new).0;
        if !rewraps {
            // Where the terminal may have cut its rows in place of wrapping them anew, rather a row too few.
            above = above.min(cursor);
        }
        let up = |rows: usize| if rows == 0 { String::new() } else { format!("\x1b[{rows}A") };
        format!("{}\r\x1b[J{}{}", up(above), "\n".repeat(end), up(end.saturating_sub(cursor)))
    }
}

/// The row and column behind a text. A row that is full is not left before something follows.
fn place(text: &str, columns: usize) -> (usize, usize) {
    let (mut row, mut column) = (0, 0);
    for c in text.chars() {
        let wide = match c {
            '\n' => {
                (row, column) = (row + 1, 0);
                continue;
            }
            '\t' => TAB - column % TAB,
            c => c.width().unwrap_or(0),
        };
        column += wide;
        if column > columns {
            (row, column) = (row + 1, wide);
        }
    }
    (row, column)
}

/// The row of the place behind a text, as the editor counts: it leaves a row that is full.
fn editors_row(text: &str, columns: usize) -> usize {
    let (row, column) = place(text, columns);
    row + usize::from(column == columns)
}

/// Whether the terminal is known to wrap its rows anew when it gets another width.
pub fn is_rewrapping() -> bool {
    const THEIRS: [&str; 8] = [
        "VTE_VERSION",
        "KONSOLE_VERSION",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "ALACRITTY_WINDOW_ID",
        "GHOSTTY_RESOURCES_DIR",
        "ITERM_SESSION_ID",
        "WT_SESSION",
    ];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    // In tmux it is tmux that shows the rows. xterm and screen cut them, and may have been started from another terminal.
    is_set("TMUX") || !(is_set("XTERM_VERSION") || is_set("STY")) && THEIRS.into_iter().any(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written before a line of so many letters, with the cursor behind it or at its beginning, is drawn anew.
    fn erased(letters: usize, is_at_end: bool, (old, new): (usize, usize), rewraps: bool) -> Option<String> {
        let (line, mut drawn) = ("x".repeat(letters), Drawn::default());
        let at = if is_at_end { letters } else { 0 };
        drawn.begin("s> ");
        assert_eq!(drawn.before(&line, at, old, 0, rewraps), None, "there is nothing to erase yet");
        drawn.before(&line, at, new, 0, rewraps)
    }

    #[test]
    fn what_is_erased_are_the_rows_that_the_terminal_shows_now() {
        for (letters, is_at_end, widths, wanted) in [
            // 68 columns: two rows become three, and the editor counts on two.
            (65, true, (40, 25), Some("\x1b[2A\r\x1b[J\n")),
            // Three become one.
            (65, true, (25, 70), Some("\r\x1b[J\n\n")),
            // From the first row.
            (65, false, (40, 25), Some("\r\x1b[J\n\x1b[1A")),
            // 80 columns fill two rows of 40; behind them is a third, and its end is one that stays.
            (77, true, (40, 50), Some("\x1b[2A\r\x1b[J\n\n")),
            // Rows that fill the new width do not begin another.
            (77, true, (50, 40), Some("\x1b[1A\r\x1b[J\n")),
            (65, true, (40, 40), None),
        ] {
            assert_eq!(erased(letters, is_at_end, widths, true).as_deref(), wanted, "{letters} {widths:?}");
        }
        // A terminal that may cut its rows: never more than there were.
        assert_eq!(erased(65, true, (40, 25), false).as_deref(), Some("\x1b[1A\r\x1b[J\n"));
        assert_eq!(erased(65, true, (25, 70), false).as_deref(), Some("\r\x1b[J\n\n"));
    }

    #[test]
    fn a_line_that_has_changed_or_has_a_list_below_it_is_where_the_editor_knows() {
        let mut drawn = Drawn::default();
        drawn.begin("s> ");
        assert_eq!(drawn.before("one", 3, 40, 0, true), None);
        assert_eq!(drawn.before("ones", 4, 20, 0, true), None);
        assert_eq!(drawn.before("ones", 4, 10, 1, true), None);
        assert_eq!(drawn.before("ones", 4, 20, 1, true).as_deref(), Some("\r\x1b[J"));
    }

    #[test]
    fn a_key_that_comes_before_the_editor_hears_of_the_new_width_changes_nothing() {
        let mut drawn = Drawn::default();
        drawn.begin("s> ");
        assert_eq!(drawn.before(&"x".repeat(64), 64, 40, 0, true), None);
        let line = "x".repeat(65);
        assert_eq!(drawn.before(&line, 65, 25, 0, true), None);
        assert_eq!(drawn.before(&line, 65, 25, 0, true).as_deref(), Some("\x1b[2A\r\x1b[J\n"));
    }
}
