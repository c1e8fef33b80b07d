//! Markdown laid out for a terminal: `pulldown-cmark` says what the text means, this says how it looks.
//!
//! Text is wrapped to a width; code is not. The marks that carry meaning without colours (`#`, bullets, the bar of a
//! quote) stay, so that a terminal without colours shows the same.

mod lines;
mod open;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use crate::output::Paint;
use lines::{Lines, Style};
pub use open::left_open;

/// A text as lines of at most this width, where its words and its code allow it.
pub fn render(text: &str, width: usize, paint: Paint) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut layout = Layout {
        lines: Lines::new(width, paint),
        paint,
        lists: Vec::new(),
        code: None,
        table: None,
        links: Vec::new(),
    };
    for event in Parser::new_ext(text, options) {
        layout.event(event);
    }
    layout.lines.finish()
}

struct Layout {
    lines: Lines,
    paint: Paint,
    /// The number that the next item of each open list gets; None: a bullet.
    lists: Vec<Option<u64>>,
    /// The text of the code block that is open.
    code: Option<String>,
    table: Option<Table>,
    /// Where each open link leads.
    links: Vec<String>,
}

#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Layout {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.styled(&code, |style| style.code = true),
            Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::Html(text)
            | Event::InlineHtml(text) => {
                self.text(&text);
            }
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]")),
            Event::SoftBreak => self.lines.space(),
            Event::HardBreak => self.lines.hard_break(),
            Event::Rule => {
                let bar = "─".repeat(self.lines.room().min(40));
                self.lines.verbatim(&self.paint.dim(&bar));
                self.lines.gap();
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.lines.style.bold += 1;
                self.text(&format!("{} ", "#".repeat(level as usize)));
            }
            Tag::BlockQuote(_) => self.lines.enter("│ ".to_owned(), "│ ".to_owned()),
            Tag::CodeBlock(kind) => {
                self.lines.flush();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.lines.verbatim(&self.paint.dim(&format!("  {language}")));
                }
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.lines.flush();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.lines.flush();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.lines.style.italic += 1,
            Tag::Strong => self.lines.style.bold += 1,
            Tag::Strikethrough => self.lines.style.strike += 1,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.lines.style.link += 1;
                self.links.push(dest_url.into_string());
            }
            Tag::Paragraph
            | Tag::HtmlBlock
            | Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::FootnoteDefinition => self.block_ends(),
            TagEnd::Heading(_) => {
                self.lines.style.bold = self.lines.style.bold.saturating_sub(1);
                self.block_ends();
            }
            TagEnd::BlockQuote(_) => {
                self.lines.leave();
                self.lines.gap();
            }
            TagEnd::CodeBlock => self.code_ends(),
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.lines.gap();
                }
            }
            TagEnd::Item => self.lines.leave(),
            TagEnd::Table => self.table_ends(),
            TagEnd::TableCell => {
                let cell = self.lines.take_text();
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Emphasis => self.lines.style.italic = self.lines.style.italic.saturating_sub(1),
            TagEnd::Strong => self.lines.style.bold = self.lines.style.bold.saturating_sub(1),
            TagEnd::Strikethrough => self.lines.style.strike = self.lines.style.strike.saturating_sub(1),
            TagEnd::Link | TagEnd::Image => self.link_ends(),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => self.lines.flush(),
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some(code) => code.push_str(text),
            None => self.lines.text(text),
        }
    }

    fn styled(&mut self, text: &str, change: impl FnOnce(&mut Style)) {
        let before = self.lines.style;
        change(&mut self.lines.style);
        self.text(text);
        self.lines.style = before;
    }

    fn item(&mut self) {
        self.lines.flush();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            Some(None) | None => "• ".to_owned(),
        };
        let rest = " ".repeat(mark.width());
        self.lines.enter(mark, rest);
    }

    fn block_ends(&mut self) {
        self.lines.flush();
        self.lines.gap();
    }

    fn code_ends(&mut self) {
        let code = self.code.take().unwrap_or_default();
        for line in code.lines() {
            let line = if line.is_empty() { String::new() } else { format!("    {line}") };
            self.lines.verbatim(&self.paint.cyan(&line));
        }
        self.lines.gap();
    }

    /// A link that shows something else than where it leads says that too.
    fn link_ends(&mut self) {
        self.lines.style.link = self.lines.style.link.saturating_sub(1);
        let target = self.links.pop().unwrap_or_default();
        if !target.is_empty() && !self.lines.ends_with(&target) {
            self.text(&format!(" ({target})"));
        }
    }

    fn table_ends(&mut self) {
        let Some(Table { rows }) = self.table.take() else { return };
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width()).max();
        let widths: Vec<usize> = (0..columns).map(|at| width_of(at).unwrap_or(0)).collect();
        let between = columns.saturating_sub(1) * " │ ".width();
        if widths.iter().sum::<usize>() + between > self.lines.room() {
            return self.table_as_list(&rows);
        }
        for (number, row) in rows.iter().enumerate() {
            let cells = widths.iter().enumerate().map(|(at, width)| {
                let cell = row.get(at).map_or("", String::as_str);
                format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width())))
            });
            let line = cells.collect::<Vec<_>>().join(" │ ");
            let line = line.trim_end();
            self.lines.verbatim(&if number == 0 { self.paint.bold(line) } else { line.to_owned() });
            if number == 0 {
                let bars: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.lines.verbatim(&self.paint.dim(&bars.join("─┼─")));
            }
        }
        self.lines.gap();
    }

    /// A table that is wider than the terminal: each row by itself, a line for each cell.
    fn table_as_list(&mut self, rows: &[Vec<String>]) {
        let Some((head, rows)) = rows.split_first() else { return };
        for row in rows {
            for (at, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                if let Some(name) = head.get(at).filter(|name| !name.is_empty()) {
                    self.lines.style.bold += 1;
                    self.text(&format!("{name}: "));
                    self.lines.style.bold = self.lines.style.bold.saturating_sub(1);
                }
                self.text(cell);
                self.lines.flush();
            }
            self.lines.gap();
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn plain(text: &str, width: usize) -> String {
        render(text, width, Paint::off())
    }

    #[test]
    fn headings_paragraphs_lists_quotes_and_code() {
        let text = "# Title\nSome *plain* text that is\nlonger than **one** line.\n\n1. first\n2. second with more words\n   - inner\n\n> quoted words that go on\n\n```rust\nfn main() {\n\n    long_call(with, many, arguments);\n}\n```\nend `code`";
        expect![[r#"
            # Title

            Some plain text that is
            longer than one line.

            1. first
            2. second with more
               words
               • inner

            │ quoted words that go
            │ on

              rust
                fn main() {

                    long_call(with, many, arguments);
                }

            end code
        "#]]
        .assert_eq(&plain(text, 24));
    }

    #[test]
    fn tables_links_tasks_and_rules() {
        let text = "| a | long head |\n|---|---|\n| 1 | x |\n\n[docs](http://d) <http://e>\n\n- [x] done\n- [ ] open\n\n---\n~~gone~~";
        expect![[r#"
            a │ long head
            ──┼──────────
            1 │ x

            docs (http://d) http://e

            • [x] done
            • [ ] open

            ────────────────────────────────────────

            gone
        "#]]
        .assert_eq(&plain(text, 60));
    }

    #[test]
    fn wide_characters_count_for_what_they_take() {
        assert_eq!(plain("日本 語日 本語", 5), "日本\n語日\n本語\n");
        assert_eq!(
            plain("a 日本語をtower話す", 6),
            "a 日本\n語を\ntower\n話す\n",
            "there are no spaces to wait for"
        );
    }

    #[test]
    fn a_table_that_is_too_wide_is_shown_row_by_row() {
        let table = "|name|what it is|\n|-|-|\n|disk|full of images|\n|build|flaky|";
        assert!(plain(table, 40).contains("name  │ what it is"));
        let narrow = plain(table, 20);
        assert_eq!(narrow, "name: disk\nwhat it is: full of\nimages\n\nname: build\nwhat it is: flaky\n");
    }

    #[test]
    fn emphasis_is_seen_where_there_are_colours() {
        let text = render("**b** *i* `c`", 80, Paint::on());
        assert_eq!(text, "\u{1b}[1mb\u{1b}[0m \u{1b}[3mi\u{1b}[0m \u{1b}[36mc\u{1b}[0m\n");
    }

    #[test]
    fn any_text_is_laid_out_and_none_of_its_words_is_lost() {
        let awkward = [
            "",
            "\n\n",
            "*",
            "**a",
            "```",
            "```\nx",
            "> > 1. - deep\n>  more",
            "|a|\n|-|",
            "[",
            "<b>html</b>",
            "a\\\nb",
            "1.",
            "- \n- x",
            "\u{202e}abc",
            "# ",
            "&amp; &lt;",
            "~~~~",
            "[x]: y\n[x]",
            "    indented",
        ];
        for text in awkward {
            for width in [0, 1, 7, 80] {
                plain(text, width);
            }
        }
        let words = "every single word of this is to be found again";
        let shown = plain(words, 9);
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), words.split(' ').collect::<Vec<_>>());
        assert!(shown.lines().all(|line| line.width() <= 9), "{shown}");
    }
}
