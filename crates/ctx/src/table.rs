//! A table that fits the terminal: columns as wide as they need, the last one gives way.

use unicode_width::UnicodeWidthStr;

use crate::output::Paint;
use crate::words;

/// Between two columns.
pub const GAP: usize = 2;
/// A last column narrower than this is not worth a line break either.
pub const LAST_MIN: usize = 8;

/// What a cell says, and how it is painted. Its width is that of the plain text.
#[derive(Debug, Clone)]
pub struct Cell {
    plain: String,
    painted: Option<String>,
}

impl Cell {
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { plain: text.into(), painted: None }
    }

    pub fn painted(plain: impl Into<String>, painted: String) -> Cell {
        Cell { plain: plain.into(), painted: Some(painted) }
    }

    pub fn width(&self) -> usize {
        self.plain.width()
    }
}

/// The lines of the table. Without a width (a pipe) nothing is cut.
pub fn render(head: &[&str], rows: Vec<Vec<Cell>>, width: Option<usize>, paint: Paint) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = head.len();
    let head: Vec<Cell> = head.iter().map(|word| Cell::painted(*word, paint.bold(word))).collect();
    let lines: Vec<&Vec<Cell>> = std::iter::once(&head).chain(&rows).collect();
    let wide = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(Cell::width).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let before: usize = widths.iter().take(columns.saturating_sub(1)).map(|width| width + GAP).sum();
    let last = width.map(|width| width.saturating_sub(before).max(LAST_MIN));
    let mut text = String::new();
    for line in lines {
        let mut shown = String::new();
        for (at, (cell, wide)) in line.iter().zip(&widths).enumerate() {
            let is_last = at + 1 == columns;
            let plain = match last.filter(|_| is_last) {
                Some(max) => words::shorten(&cell.plain, max),
                None => cell.plain.clone(),
            };
            shown.push_str(cell.painted.as_deref().unwrap_or(&plain));
            if !is_last {
                shown.push_str(&" ".repeat(wide.saturating_sub(cell.width()) + GAP));
            }
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        let row = |name: &str, title: &str| vec![Cell::new(name), Cell::new(title)];
        vec![row("coder/default", "a rather long title for a session"), row("x/y", "")]
    }

    #[test]
    fn columns_line_up() {
        expect![[r"
            SESSION        TITLE
            coder/default  a rather long title for a session
            x/y
        "]]
        .assert_eq(&render(&["SESSION", "TITLE"], rows(), None, Paint::off()));
    }

    #[test]
    fn characters_that_take_two_places_are_counted_as_two() {
        let row = |name: &str, title: &str| vec![Cell::new(name), Cell::new(title)];
        let rows = vec![row("你好", "漢字の題名はとても長い"), row("plain", "title")];
        expect![[r"
            NAME   TITLE
            你好   漢字の題…
            plain  title
        "]]
        .assert_eq(&render(&["NAME", "TITLE"], rows, Some(17), Paint::off()));
    }

    #[test]
    fn the_last_column_gives_way_to_the_terminal() {
        let text = render(&["SESSION", "TITLE"], rows(), Some(30), Paint::off());
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("a rather long…"), "{text}");
    }

    #[test]
    fn no_rows_no_table() {
        assert_eq!(render(&["SESSION"], Vec::new(), None, Paint::off()), "");
    }
}
