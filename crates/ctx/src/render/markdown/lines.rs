//! Words into lines: wrapped to a width, each line with the marks of the blocks it is in.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::Paint;

/// Narrower than this nothing is readable: deeply nested text goes over the edge instead.
const ROOM_MIN: usize = 8;

/// How deep in each kind of emphasis text is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub bold: u32,
    pub italic: u32,
    pub strike: u32,
    pub link: u32,
    pub code: bool,
}

impl Style {
    fn paint(self, text: &str, paint: Paint) -> String {
        let marks =
            [(self.bold > 0, "1"), (self.italic > 0, "3"), (self.link > 0, "4"), (self.strike > 0, "9")];
        let marks = marks.into_iter().chain([(self.code, "36")]);
        let codes: Vec<&str> = marks.filter(|(on, _)| *on).map(|(_, code)| code).collect();
        if codes.is_empty() || !paint.is_on() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", codes.join(";"))
    }
}

/// What goes before a line: once the mark of a block, then what takes its place.
struct Margin {
    first: Option<String>,
    rest: String,
}

/// A word with no space in it, in pieces of one style each.
#[derive(Default)]
struct Word {
    pieces: Vec<(String, Style)>,
}

impl Word {
    fn width(&self) -> usize {
        self.pieces.iter().map(|(text, _)| text.width()).sum()
    }

    /// Whether it is of a script that has no spaces and may be parted anywhere.
    fn has_wide(&self) -> bool {
        self.pieces.iter().any(|(text, _)| text.chars().any(is_wide))
    }

    /// Where it may be parted: after each wide character and before it.
    fn parts(&self) -> impl Iterator<Item = (&str, Style)> {
        self.pieces.iter().flat_map(|(text, style)| {
            let parts = text.split_inclusive(is_wide).flat_map(|part| {
                let last = part.char_indices().next_back().filter(|(_, c)| is_wide(*c));
                let (before, wide) = part.split_at(last.map_or(part.len(), |(at, _)| at));
                [before, wide]
            });
            parts.filter(|part| !part.is_empty()).map(|part| (part, *style))
        })
    }
}

fn is_wide(c: char) -> bool {
    c.width() == Some(2)
}

enum Item {
    Word(Word),
    Break,
}

pub struct Lines {
    pub style: Style,
    out: String,
    width: usize,
    paint: Paint,
    margins: Vec<Margin>,
    /// What waits to be wrapped.
    items: Vec<Item>,
    word: Word,
    /// An empty line is due before the next one.
    gap: bool,
}

impl Lines {
    pub fn new(width: usize, paint: Paint) -> Lines {
        let (items, margins) = (Vec::new(), Vec::new());
        let (style, word) = (Style::default(), Word::default());
        Lines { style, out: String::new(), width, paint, margins, items, word, gap: false }
    }

    pub fn text(&mut self, text: &str) {
        for (at, part) in text.split(char::is_whitespace).enumerate() {
            if at > 0 {
                self.space();
            }
            if !part.is_empty() {
                self.word.pieces.push((part.to_owned(), self.style));
            }
        }
    }

    pub fn space(&mut self) {
        if !self.word.pieces.is_empty() {
            self.items.push(Item::Word(std::mem::take(&mut self.word)));
        }
    }

    pub fn hard_break(&mut self) {
        self.space();
        self.items.push(Item::Break);
    }

    /// Whether the last word is this text.
    pub fn ends_with(&self, text: &str) -> bool {
        let last = self.word.pieces.iter().map(|(piece, _)| piece.as_str());
        last.collect::<String>() == text
    }

    /// What waits, as plain text on one line.
    pub fn take_text(&mut self) -> String {
        self.space();
        let words = std::mem::take(&mut self.items).into_iter().filter_map(|item| match item {
            Item::Word(word) => Some(word.pieces.into_iter().map(|(text, _)| text).collect::<String>()),
            Item::Break => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// How much fits on a line here.
    pub fn room(&self) -> usize {
        let margin: usize = self.margins.iter().map(|margin| margin.rest.width()).sum();
        self.width.saturating_sub(margin).max(ROOM_MIN.min(self.width.max(1)))
    }

    /// Begins a block whose lines have a mark before them.
    pub fn enter(&mut self, first: String, rest: String) {
        self.flush();
        self.margins.push(Margin { first: Some(first), rest });
    }

    pub fn leave(&mut self) {
        self.flush();
        // An item without text still shows.
        if self.margins.last().is_some_and(|margin| margin.first.is_some()) {
            self.verbatim("");
        }
        self.margins.pop();
    }

    /// Wraps what waits.
    pub fn flush(&mut self) {
        self.space();
        if self.items.is_empty() {
            return;
        }
        let room = self.room();
        let (mut line, mut used) = (String::new(), 0);
        for item in std::mem::take(&mut self.items) {
            let word = match item {
                Item::Word(word) => word,
                Item::Break => {
                    self.verbatim(&std::mem::take(&mut line));
                    used = 0;
                    continue;
                }
            };
            let width = word.width();
            if width > room && word.has_wide() {
                used = self.fill(&mut line, used, &word);
                continue;
            }
            if used > 0 && used + 1 + width > room {
                self.verbatim(&std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            for (text, style) in &word.pieces {
                line.push_str(&style.paint(text, self.paint));
            }
            used += width;
        }
        if used > 0 {
            self.verbatim(&line);
        }
    }

    /// Puts a word of a script without spaces into lines, as much into each as fits.
    fn fill(&mut self, line: &mut String, mut used: usize, word: &Word) -> usize {
        let room = self.room();
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        for (text, style) in word.parts() {
            if used > 0 && used + text.width() > room {
                self.verbatim(&std::mem::take(line));
                used = 0;
            }
            line.push_str(&style.paint(text, self.paint));
            used += text.width();
        }
        used
    }

    /// A line as it is.
    pub fn verbatim(&mut self, line: &str) {
        if std::mem::take(&mut self.gap) && !self.out.is_empty() {
            // A block that only begins now does not reach up into the empty line.
            let begun = self.margins.iter().take_while(|margin| margin.first.is_none());
            let marks: String = begun.map(|margin| margin.rest.as_str()).collect();
            self.out.push_str(marks.trim_end());
            self.out.push('\n');
        }
        let mut marks = String::new();
        for margin in &mut self.margins {
            marks.push_str(&margin.first.take().unwrap_or_else(|| margin.rest.clone()));
        }
        let marks = if marks.trim().is_empty() { marks } else { self.paint.dim(&marks) };
        let whole = format!("{marks}{line}");
        self.out.push_str(whole.trim_end());
        self.out.push('\n');
    }

    /// The next line stands apart from those before it.
    pub fn gap(&mut self) {
        self.gap = true;
    }

    pub fn finish(mut self) -> String {
        self.flush();
        self.out
    }
}
