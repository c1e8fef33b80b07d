//! What the screen of `ctx watch` shows, and what a key does to it. Pure: no terminal, no files, no clock.

use std::collections::{HashMap, HashSet};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::block::{Block, Tone, wrap};

/// Narrower screens show one of the two sides at a time.
pub const BOTH_SIDES: u16 = 60;
/// Columns of the list.
pub const LIST_WIDTH: u16 = 30;

/// Terminals drop what is longer: in base64 this is just below 100,000 bytes.
const COPY_MAX: usize = 74_000;

/// A shell or a session in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub key: String,
    pub name: String,
    pub state: String,
    pub age: String,
    pub mark: Mark,
}

/// What the list says with a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Busy,
    Open,
    Bad,
    Over,
}

/// A row of the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which block it is part of.
    pub block: usize,
    pub tone: Tone,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    List,
    Transcript,
}

/// What is being typed at the foot of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Search,
    Filter,
}

/// What is left to be done by whoever has the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Nothing,
    /// The transcript of another item is wanted.
    Load,
    Copy(String),
    Suspend,
    Quit,
}

#[derive(Debug)]
pub struct Model {
    items: Vec<Item>,
    chosen: Option<String>,
    blocks: Vec<Block>,
    /// The blocks that the filter leaves, in rows.
    pub rows: Vec<Row>,
    /// The row that the keys act on.
    pub at: usize,
    pub side: Side,
    /// The block that is shown alone and whole, and its first row on the screen.
    pub open: Option<(u64, usize)>,
    pub asks: Option<(Asks, String)>,
    pub search: String,
    list_filter: String,
    filter: String,
    pub says: String,
    width: u16,
    height: u16,
}

impl Model {
    pub fn new() -> Model {
        Model {
            items: Vec::new(),
            chosen: None,
            blocks: Vec::new(),
            rows: Vec::new(),
            at: 0,
            side: Side::List,
            open: None,
            asks: None,
            search: String::new(),
            list_filter: String::new(),
            filter: String::new(),
            says: String::new(),
            width: 80,
            height: 24,
        }
    }

    /// The shells and sessions that there are now. The chosen one stays chosen, and whoever walks in the list finds all at
    /// their places: only what is new comes first.
    pub fn set_items(&mut self, mut items: Vec<Item>) -> Act {
        if self.side == Side::List {
            let places: HashMap<&str, usize> =
                self.items.iter().enumerate().map(|(at, item)| (item.key.as_str(), at + 1)).collect();
            items.sort_by_key(|item| places.get(item.key.as_str()).copied().unwrap_or(0));
        }
        self.items = items;
        self.choose_visible()
    }

    /// Chooses the first item where the one chosen is not in the list.
    fn choose_visible(&mut self) -> Act {
        let visible = self.visible();
        if visible.iter().any(|item| Some(&item.key) == self.chosen.as_ref()) {
            return Act::Nothing;
        }
        let first = visible.first().map(|item| item.key.clone());
        self.choose(first)
    }

    fn choose(&mut self, key: Option<String>) -> Act {
        if key == self.chosen {
            return Act::Nothing;
        }
        self.chosen = key;
        self.open = None;
        self.blocks.clear();
        self.rows.clear();
        self.at = 0;
        Act::Load
    }

    pub fn chosen(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// The items that the filter leaves.
    pub fn visible(&self) -> Vec<&Item> {
        let wanted = self.list_filter.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&wanted);
        self.items.iter().filter(|item| holds(&item.name) || holds(&item.state)).collect()
    }

    /// How many there are without the filter.
    pub fn listed(&self) -> usize {
        self.items.len()
    }

    /// Where the chosen item is among the visible ones.
    pub fn chosen_at(&self) -> Option<usize> {
        self.visible().iter().position(|item| Some(&item.key) == self.chosen.as_ref())
    }

    /// The transcript of the chosen item. Whoever is at its end stays there, everyone else where they are.
    pub fn set_blocks(&mut self, blocks: &[Block]) {
        let follows = self.at + 1 >= self.rows.len();
        let place = self.rows.get(self.at).and_then(|row| {
            let first = self.rows.iter().position(|other| other.block == row.block)?;
            Some((self.blocks.get(row.block)?.id, self.at - first))
        });
        self.blocks = blocks.to_vec();
        self.lay_out();
        let kept = place.filter(|_| !follows).and_then(|(id, below)| {
            let first = self.rows.iter().position(|row| self.id_of(row) == Some(id))?;
            Some(first + below)
        });
        self.at = kept.unwrap_or(usize::MAX).min(self.rows.len().saturating_sub(1));
    }

    fn id_of(&self, row: &Row) -> Option<u64> {
        self.blocks.get(row.block).map(|block| block.id)
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        if (width, height) != (self.width, self.height) {
            (self.width, self.height) = (width, height);
            self.again();
        }
    }

    /// Lays the same blocks out under other rules.
    fn again(&mut self) {
        let blocks = self.blocks.clone();
        self.set_blocks(&blocks);
    }

    /// Whether both sides fit.
    pub fn has_both(&self) -> bool {
        self.width >= BOTH_SIDES
    }

    /// Columns for the text of the transcript: one is the mark of the chosen block.
    fn text_width(&self) -> usize {
        let list = if self.has_both() { LIST_WIDTH + 1 } else { 0 };
        usize::from(self.width.saturating_sub(list + 1)).max(1)
    }

    /// Rows for a side: one is the title, one the foot.
    pub fn page(&self) -> usize {
        usize::from(self.height.saturating_sub(2)).max(1)
    }

    fn lay_out(&mut self) {
        let (wanted, width) = (self.filter.to_lowercase(), self.text_width());
        self.rows.clear();
        for (at, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.holds(&wanted)) {
            for line in block.lines(false) {
                let row = |text| Row { block: at, tone: line.tone, text };
                self.rows.extend(wrap(&line.text, width).into_iter().map(row));
            }
        }
    }

    /// Whether a block begins with this row.
    fn is_head(&self, at: usize) -> bool {
        let block = |at: usize| self.rows.get(at).map(|row| row.block);
        at.checked_sub(1).and_then(block) != block(at)
    }

    /// The block that the keys act on.
    pub fn block(&self) -> Option<&Block> {
        self.rows.get(self.at).and_then(|row| self.blocks.get(row.block))
    }

    /// The rows of the block that is shown alone.
    pub fn open_rows(&self) -> Option<Vec<Row>> {
        let (id, _) = self.open?;
        let (at, block) = self.blocks.iter().enumerate().find(|(_, block)| block.id == id)?;
        // It has the whole width of the screen.
        let width = usize::from(self.width).max(1);
        let lines = block.lines(true);
        let rows = lines.into_iter().flat_map(|line| {
            let row = move |text| Row { block: at, tone: line.tone, text };
            wrap(&line.text, width).into_iter().map(row)
        });
        Some(rows.collect())
    }

    /// What the filters are, for the titles.
    pub fn filter_of(&self, side: Side) -> &str {
        match side {
            Side::List => &self.list_filter,
            Side::Transcript => &self.filter,
        }
    }

    pub fn press(&mut self, mut key: KeyEvent) -> Act {
        self.says.clear();
        // A terminal says the same for Alt and a key as for Esc and then the key.
        if key.modifiers.contains(KeyModifiers::ALT) {
            key.modifiers.remove(KeyModifiers::ALT);
            self.press(KeyCode::Esc.into());
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Act::Quit,
                KeyCode::Char('z') => return Act::Suspend,
                KeyCode::Char('d') => return self.step(self.page() as isize / 2),
                KeyCode::Char('u') => return self.step(-(self.page() as isize) / 2),
                _ => return Act::Nothing,
            }
        }
        if self.asks.is_some() {
            return self.type_in(key.code);
        }
        match key.code {
            KeyCode::Char('q') => Act::Quit,
            KeyCode::Esc => self.back(),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-(self.page() as isize)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(self.page() as isize),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX / 2),
            KeyCode::Tab => self.turn(match self.side {
                Side::List => Side::Transcript,
                Side::Transcript => Side::List,
            }),
            KeyCode::Left | KeyCode::Char('h') => self.turn(Side::List),
            KeyCode::Right | KeyCode::Char('l') => self.turn(Side::Transcript),
            KeyCode::Enter if self.side == Side::List => self.turn(Side::Transcript),
            KeyCode::Enter => {
                self.open = self.open.xor(self.block().map(|block| (block.id, 0)));
                Act::Nothing
            }
            KeyCode::Char('/') => self.ask(Asks::Search),
            KeyCode::Char('f') if self.open.is_none() => self.ask(Asks::Filter),
            KeyCode::Char('n') => self.find(true),
            KeyCode::Char('N') => self.find(false),
            KeyCode::Char('e') => self.failed(true),
            KeyCode::Char('E') => self.failed(false),
            KeyCode::Char('y') => self.copy(|block| Some(block.output()).filter(|text| !text.is_empty())),
            KeyCode::Char('Y') => self.copy(|block| Some(block.command().to_owned())),
            _ => Act::Nothing,
        }
    }

    fn ask(&mut self, what: Asks) -> Act {
        let before = match what {
            Asks::Search => String::new(),
            Asks::Filter => self.filter_of(self.side).to_owned(),
        };
        self.asks = Some((what, before));
        Act::Nothing
    }

    fn type_in(&mut self, key: KeyCode) -> Act {
        let Some((what, mut typed)) = self.asks.take() else { return Act::Nothing };
        match key {
            KeyCode::Esc => return Act::Nothing,
            KeyCode::Enter => return self.typed(what, typed),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(c) => typed.push(c),
            _ => {}
        }
        self.asks = Some((what, typed));
        Act::Nothing
    }

    fn typed(&mut self, what: Asks, text: String) -> Act {
        match (what, self.side) {
            (Asks::Search, _) => {
                self.search = text;
                self.side = Side::Transcript;
                self.find(true)
            }
            (Asks::Filter, Side::List) => {
                self.list_filter = text;
                self.choose_visible()
            }
            (Asks::Filter, Side::Transcript) => {
                self.filter = text;
                self.again();
                Act::Nothing
            }
        }
    }

    /// Leaves what was entered last: the open block, a search, a filter.
    fn back(&mut self) -> Act {
        let filter = match self.side {
            Side::List => &mut self.list_filter,
            Side::Transcript => &mut self.filter,
        };
        if self.open.take().is_some() || !std::mem::take(&mut self.search).is_empty() {
            return Act::Nothing;
        }
        if filter.is_empty() {
            return self.turn(Side::List);
        }
        filter.clear();
        self.again();
        Act::Nothing
    }

    fn turn(&mut self, side: Side) -> Act {
        self.open = None;
        self.side = side;
        Act::Nothing
    }

    fn step(&mut self, by: isize) -> Act {
        if let (Some((id, top)), Some(rows)) = (self.open, self.open_rows()) {
            let last = rows.len().saturating_sub(self.page());
            self.open = Some((id, top.saturating_add_signed(by).min(last)));
            return Act::Nothing;
        }
        match self.side {
            Side::Transcript => {
                self.at = self.at.saturating_add_signed(by).min(self.rows.len().saturating_sub(1));
                Act::Nothing
            }
            Side::List => {
                let visible = self.visible();
                let last = visible.len().saturating_sub(1);
                let to = self.chosen_at().unwrap_or(0).saturating_add_signed(by).min(last);
                let key = visible.get(to).map(|item| item.key.clone());
                self.choose(key)
            }
        }
    }

    /// Goes to the next row that has what was searched for, around the end.
    fn find(&mut self, forward: bool) -> Act {
        let wanted = self.search.to_lowercase();
        if wanted.is_empty() {
            return Act::Nothing;
        }
        if let (Some((id, top)), Some(rows)) = (self.open, self.open_rows()) {
            let found = next(&rows, top, forward, |row| row.text.to_lowercase().contains(&wanted));
            self.open = Some((id, found.unwrap_or(top)));
            return self.say_if_none(found);
        }
        // What is folded is found too: then the head of its block is the place.
        let shows = |row: &&Row| row.text.to_lowercase().contains(&wanted);
        let shown: HashSet<usize> = self.rows.iter().filter(shows).map(|row| row.block).collect();
        let hides = |row: &Row| {
            !shown.contains(&row.block)
                && self.blocks.get(row.block).is_some_and(|block| block.holds(&wanted))
        };
        let is_place = |at: usize, row: &Row| shows(&row) || (self.is_head(at) && hides(row));
        let places: Vec<bool> = self.rows.iter().enumerate().map(|(at, row)| is_place(at, row)).collect();
        let found = next(&places, self.at, forward, |is| *is);
        self.at = found.unwrap_or(self.at);
        self.say_if_none(found)
    }

    fn say_if_none(&mut self, found: Option<usize>) -> Act {
        if found.is_none() {
            self.says = format!("`{}` is not here", self.search);
        }
        Act::Nothing
    }

    /// Goes to the next block that failed.
    fn failed(&mut self, forward: bool) -> Act {
        let here = self.rows.get(self.at).map(|row| row.block);
        let heads = self.rows.iter().enumerate().filter(|(at, _)| self.is_head(*at));
        let heads: Vec<(usize, usize)> = heads.map(|(at, row)| (at, row.block)).collect();
        let at = heads.iter().position(|(_, block)| Some(*block) == here).unwrap_or(0);
        let fails = |(_, block): &(usize, usize)| self.blocks.get(*block).is_some_and(|block| block.failed);
        match next(&heads, at, forward, fails).and_then(|at| heads.get(at)) {
            Some((row, _)) => {
                (self.at, self.side, self.open) = (*row, Side::Transcript, None);
            }
            None => "no command failed here".clone_into(&mut self.says),
        }
        Act::Nothing
    }

    fn copy(&mut self, what: impl Fn(&Block) -> Option<String>) -> Act {
        match self.block().and_then(what) {
            Some(mut text) => {
                let all = text.len();
                text.truncate(text.floor_char_boundary(COPY_MAX));
                let part = if text.len() < all { "the first " } else { "" };
                self.says = format!("copied {part}{} characters", text.chars().count());
                Act::Copy(text)
            }
            None => {
                "there is nothing to copy here".clone_into(&mut self.says);
                Act::Nothing
            }
        }
    }
}

/// The next place that is wanted after this one, around the end, and this one itself last.
fn next<T>(all: &[T], at: usize, forward: bool, wanted: impl Fn(&T) -> bool) -> Option<usize> {
    let len = all.len();
    let step = |by: usize| if forward { (at + by) % len } else { (at + len - by) % len };
    (1..=len).map(step).find(|place| all.get(*place).is_some_and(&wanted))
}

#[cfg(test)]
pub mod tests;
