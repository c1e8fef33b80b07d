//! Draws the screen of `ctx watch`: shells and sessions on the left, the transcript of one of them on the right.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::block::Tone;
use super::model::{Asks, Item, LIST_WIDTH, Mark, Model, Row, Side};
use crate::words;

/// Tells the keys where there is room for it.
const KEYS: &str = "Enter open  / search  n next  e failed  f filter  y copy  Tab side  q quit";
const KEYS_OPEN: &str = "Esc back  / search  n next  y copy  q quit";

pub fn draw(frame: &mut Frame<'_>, model: &Model, colours: bool) {
    let area = frame.area();
    let [body, foot] = split(area);
    let brush = Brush { buffer: frame.buffer_mut(), colours };
    let mut screen = Screen { brush, model };
    if let Some(rows) = model.open_rows() {
        screen.opened(body, &rows);
    } else if model.has_both() {
        let list = Rect { width: LIST_WIDTH.min(body.width), ..body };
        let bar = Rect { x: list.right(), width: 1, ..body };
        let rest = Rect { x: bar.right(), width: body.width.saturating_sub(LIST_WIDTH + 1), ..body };
        screen.list(list);
        for y in bar.top()..bar.bottom() {
            screen.brush.text(bar, y, "│", Style::new().add_modifier(Modifier::DIM));
        }
        screen.transcript(rest);
    } else {
        match model.side {
            Side::List => screen.list(body),
            Side::Transcript => screen.transcript(body),
        }
    }
    screen.foot(foot);
}

/// All rows but the last, and the last.
fn split(area: Rect) -> [Rect; 2] {
    let height = area.height.saturating_sub(1);
    [Rect { height, ..area }, Rect { y: area.y + height, height: area.height.min(1), ..area }]
}

struct Brush<'a> {
    buffer: &'a mut Buffer,
    colours: bool,
}

impl Brush<'_> {
    /// A line in an area, cut at its edge; gives the column behind it.
    fn text(&mut self, area: Rect, y: u16, text: &str, style: Style) -> u16 {
        if y >= area.bottom() || area.width == 0 {
            return area.x;
        }
        self.buffer.set_stringn(area.x, y, text, usize::from(area.width), style).0
    }

    fn colour(&self, style: Style, colour: Color) -> Style {
        if self.colours { style.fg(colour) } else { style }
    }

    fn tone(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Bad => self.colour(Style::new(), Color::Red),
        }
    }

    fn title(&mut self, area: Rect, text: &str, has_focus: bool) {
        let style = Style::new().add_modifier(if has_focus { Modifier::BOLD } else { Modifier::DIM });
        self.text(area, area.y, &words::shorten(text, usize::from(area.width)), style);
    }
}

struct Screen<'a> {
    brush: Brush<'a>,
    model: &'a Model,
}

impl Screen<'_> {
    fn list(&mut self, area: Rect) {
        let model = self.model;
        let visible = model.visible();
        let title = match model.filter_of(Side::List) {
            "" => format!("shells and sessions: {}", visible.len()),
            filter => format!("{} of {} with `{filter}`", visible.len(), model.listed()),
        };
        self.brush.title(area, &title, model.side == Side::List);
        let chosen = model.chosen_at().unwrap_or(0);
        let top = first_row(chosen, visible.len(), model.page());
        for (item, y) in visible.iter().skip(top).zip(area.y + 1..area.bottom()) {
            self.item(Rect { y, height: 1, ..area }, item);
        }
    }

    fn item(&mut self, area: Rect, item: &Item) {
        let is_chosen = self.model.chosen() == Some(item.key.as_str());
        let (sign, style) = match item.mark {
            Mark::Busy => ("●", self.brush.colour(Style::new(), Color::Green)),
            Mark::Open => ("○", Style::new()),
            Mark::Bad => ("✗", self.brush.colour(Style::new(), Color::Red)),
            Mark::Over => (" ", Style::new().add_modifier(Modifier::DIM)),
        };
        let style = if is_chosen { style.add_modifier(Modifier::REVERSED) } else { style };
        // The age stands at the right edge, and the state gives way before the name does.
        let width = usize::from(area.width).saturating_sub(2);
        let left = words::shorten(&item.name, width.saturating_sub(item.age.width() + 1));
        let room = width.saturating_sub(left.width() + item.age.width() + 2);
        let state = if room >= 4 { words::shorten(&item.state, room) } else { String::new() };
        let gap = " ".repeat(width.saturating_sub(left.width() + 1 + state.width() + item.age.width()));
        self.brush.text(area, area.y, &format!("{sign} {left} {state}{gap}{}", item.age), style);
    }

    fn transcript(&mut self, area: Rect) {
        let model = self.model;
        let chosen = model.chosen_at().and_then(|at| model.visible().get(at).copied().cloned());
        let Some(item) = chosen else {
            self.brush.title(area, "nothing to show yet", false);
            return;
        };
        let filter = filtered(model.filter_of(Side::Transcript));
        let title = format!("{}  {}{filter}", item.name, item.state);
        self.brush.title(area, &title, model.side == Side::Transcript);
        let top = first_row(model.at, model.rows.len(), model.page());
        let here = model.rows.get(model.at).map(|row| row.block);
        let is_on = model.side == Side::Transcript;
        for ((at, row), y) in model.rows.iter().enumerate().skip(top).zip(area.y + 1..area.bottom()) {
            let mark = if is_on && Some(row.block) == here { "▌" } else { " " };
            self.brush.text(Rect { width: area.width.min(1), ..area }, y, mark, Style::new());
            let line = Rect { x: area.x + 1, y, width: area.width.saturating_sub(1), height: 1 };
            self.row(line, row, is_on && at == model.at);
        }
    }

    fn opened(&mut self, area: Rect, rows: &[Row]) {
        let top = self.model.open.map_or(0, |(_, top)| top);
        let last = rows.len().min(top + self.model.page());
        let title = format!("lines {} to {last} of {}", top + 1, rows.len());
        self.brush.title(area, &title, true);
        for (row, y) in rows.iter().skip(top).zip(area.y + 1..area.bottom()) {
            self.row(Rect { y, height: 1, ..area }, row, false);
        }
    }

    /// A row, with what was searched for in it marked.
    fn row(&mut self, area: Rect, row: &Row, is_here: bool) {
        let mut style = self.brush.tone(row.tone);
        if is_here {
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        self.brush.text(area, area.y, &row.text, style);
        let wanted = self.model.search.to_lowercase();
        // Where small letters are longer than large ones, places in the text do not agree.
        let lower = row.text.to_lowercase();
        if wanted.is_empty() || lower.len() != row.text.len() {
            return;
        }
        for (at, found) in lower.match_indices(&wanted) {
            let before = row.text.get(..at).map_or(0, UnicodeWidthStr::width);
            let wide = row.text.get(at..at + found.len()).map_or(0, UnicodeWidthStr::width);
            let (before, wide) = (columns(before), columns(wide));
            let hit = Rect { x: area.x.saturating_add(before), width: wide, ..area };
            self.brush
                .buffer
                .set_style(hit.intersection(area), Style::new().add_modifier(Modifier::REVERSED));
        }
    }

    fn foot(&mut self, area: Rect) {
        let model = self.model;
        let (text, style) = match (&model.asks, model.says.as_str()) {
            (Some((Asks::Search, typed)), _) => (format!("/{typed}▏"), Style::new()),
            (Some((Asks::Filter, typed)), _) => (format!("filter: {typed}▏"), Style::new()),
            (None, "") => {
                let keys = if model.open.is_some() { KEYS_OPEN } else { KEYS };
                (words::shorten(keys, usize::from(area.width)), Style::new().add_modifier(Modifier::DIM))
            }
            (None, says) => (words::shorten(says, usize::from(area.width)), Style::new()),
        };
        // Of what is typed the end matters.
        let over = text.width().saturating_sub(usize::from(area.width));
        let from = text
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| text.get(..*at).is_some_and(|hidden| hidden.width() >= over));
        self.brush.text(area, area.y, text.get(from.unwrap_or(0)..).unwrap_or_default(), style);
    }
}

fn columns(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

fn filtered(filter: &str) -> String {
    if filter.is_empty() { String::new() } else { format!(" with `{filter}`") }
}

/// The first row on the screen, so that the one that matters is on it, in the middle where there is enough on both sides.
fn first_row(at: usize, len: usize, page: usize) -> usize {
    at.saturating_sub(page / 2).min(len.saturating_sub(page))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::shell::watch::block::{Block, Line};
    use crate::commands::shell::watch::model::tests::{command, item, model, press};

    fn drawn(model: &mut Model, width: u16, height: u16, colours: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = |frame: &mut Frame<'_>| {
            model.resize(frame.area().width, frame.area().height);
            draw(frame, model, colours);
        };
        terminal.draw(frame).unwrap();
        terminal.backend().buffer().clone()
    }

    fn shows(model: &mut Model, width: u16, height: u16, wanted: &Expect) {
        let buffer = drawn(model, width, height, false);
        let mut text = String::new();
        for y in 0..height {
            // The second column of a wide character is a blank cell.
            let (mut line, mut skip) = (String::new(), 0);
            for x in 0..width {
                let symbol = buffer[(x, y)].symbol();
                if skip == 0 {
                    line.push_str(symbol);
                    skip = symbol.width().saturating_sub(1);
                } else {
                    skip -= 1;
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        wanted.assert_eq(&text);
    }

    #[test]
    fn both_sides_the_marks_and_the_folded_output() {
        let mut model = model();
        press(&mut model, "e");
        shows(
            &mut model,
            78,
            14,
            &expect![[r#"
            shells and sessions: 3        │1_local  open
            ○ 1_local open              3s│ $ one
            ● 2_local running           3s│ one line 1
            ○ coder/x open              3s│ one line 2
                                          │ exit code
                                          │▌$ two
                                          │▌two line 1
                                          │▌two line 2
                                          │▌two line 3
                                          │▌two line 4
                                          │▌two line 5
                                          │▌… 20 lines, Enter opens them
                                          │▌two line 26
            Enter open  / search  n next  e failed  f filter  y copy  Tab side  q quit
        "#]],
        );
    }

    #[test]
    fn forty_columns_show_one_side_at_a_time() {
        let mut model = model();
        shows(
            &mut model,
            40,
            8,
            &expect![[r#"
            shells and sessions: 3
            ○ 1_local open                        3s
            ● 2_local running                     3s
            ○ coder/x open                        3s



            Enter open  / search  n next  e failed…
        "#]],
        );
        press(&mut model, "\t");
        shows(
            &mut model,
            40,
            8,
            &expect![[r#"
            1_local  open
             two line 28
             two line 29
             two line 30
             exit code
            ▌$ three
            ▌exit code
            Enter open  / search  n next  e failed…
        "#]],
        );
    }

    #[test]
    fn wide_characters_end_at_the_edge_and_are_found() {
        let mut model = Model::new();
        model.set_items(vec![item("a", "1_ssh_漢字の長い名前のマシン@build", Mark::Busy)]);
        let mut block = command(1, "echo 漢字", 0, false);
        block.body = vec![Line {
            tone: Tone::Plain,
            text: "漢字とかな交じりの文章がここに続いて折り返される".into(),
        }];
        model.set_blocks(&[block]);
        press(&mut model, "\t/かな\n");
        shows(
            &mut model,
            60,
            6,
            &expect![[r#"
            shells and sessions: 1        │1_ssh_漢字の長い名前のマシン…
            ● 1_ssh_漢字の長い名前のマ… 3s│▌$ echo 漢字
                                          │▌漢字とかな交じりの文章がここ
                                          │▌に続いて折り返される
                                          │▌exit code
            Enter open  / search  n next  e failed  f filter  y copy  T…
        "#]],
        );
        let buffer = drawn(&mut model, 60, 6, false);
        let marked: String = buffer
            .content()
            .iter()
            .filter(|cell| cell.modifier.contains(Modifier::REVERSED) && cell.symbol() != " ")
            .map(|cell| cell.symbol())
            .filter(|symbol| "かな".contains(symbol))
            .collect();
        assert_eq!(marked, "かな");
    }

    #[test]
    fn an_open_output_has_the_whole_screen_and_a_search_its_foot() {
        let mut model = model();
        press(&mut model, "e\njj");
        shows(
            &mut model,
            62,
            6,
            &expect![[r#"
            lines 3 to 6 of 32
            two line 2
            two line 3
            two line 4
            two line 5
            Esc back  / search  n next  y copy  q quit
        "#]],
        );
        press(&mut model, "/two line 2");
        shows(
            &mut model,
            30,
            3,
            &expect![[r#"
            lines 3 to 3 of 32
            two line 2
            /two line 2▏
        "#]],
        );
    }

    #[test]
    fn without_colours_there_is_none_and_no_size_is_too_small() {
        let mut model = model();
        press(&mut model, "e");
        let has_colour = |buffer: &Buffer| buffer.content().iter().any(|cell| cell.fg != Color::Reset);
        assert!(has_colour(&drawn(&mut model, 80, 24, true)));
        assert!(!has_colour(&drawn(&mut model, 80, 24, false)));
        for (width, height) in [(0, 0), (1, 1), (2, 2), (5, 1), (61, 2), (31, 3)] {
            drawn(&mut model, width, height, true);
            press(&mut model, "\n");
            drawn(&mut model, width, height, true);
            press(&mut model, "\n");
        }
        let blocks: &[Block] = &[];
        model.set_blocks(blocks);
        drawn(&mut model, 80, 24, true);
    }
}
