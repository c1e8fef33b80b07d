//! The screen of `ctx watch`: takes the terminal, passes keys to the model, and gives the terminal back however it ends.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::News;
use super::draw::draw;
use super::model::{Act, Model};
use super::source::Source;
use crate::failure::Failure;
use crate::output::Paint;
use crate::root::Root;

/// Files are read at most this often, however often they change.
const EVERY: Duration = Duration::from_millis(100);
/// Ages grow by themselves.
const AGES: Duration = Duration::from_secs(1);

pub fn run(root: &Root) -> Result<(), Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, is_over.clone()).map_err(terminal_failed)?;
    }
    let mut news = News::of_shells(root)?;
    let mut source = Source::new(root);
    let mut model = Model::new();
    // Read before the terminal is taken: what is wrong can be said in words.
    model.set_items(source.items()?);
    let mut screen = Screen::take()?;
    let (mut looked, mut is_due, mut load) = (Instant::now(), true, true);
    while !is_over.load(Ordering::Relaxed) {
        if is_due && (load || looked.elapsed() >= EVERY) {
            model.set_items(source.items()?);
            news.ask(root);
            for dir in source.dirs() {
                news.watch(dir);
            }
            (looked, is_due, load) = (Instant::now(), false, true);
        }
        if load {
            let blocks = model.chosen().map(str::to_owned);
            if let Some(blocks) = blocks.and_then(|key| source.blocks(&key)) {
                model.set_blocks(blocks);
            }
            load = false;
        }
        screen.draw(&mut model)?;
        let wait = if is_due { EVERY.saturating_sub(looked.elapsed()) } else { news.patience().min(AGES) };
        let Some(is_news) = news.notices.wait_for_keys(wait)? else {
            // The terminal is gone: there is nothing to give back, and nobody to tell.
            std::process::exit(1);
        };
        is_due |= is_news || looked.elapsed() >= AGES;
        while event::poll(Duration::ZERO).map_err(terminal_failed)? {
            let Event::Key(key) = event::read().map_err(terminal_failed)? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match model.press(key) {
                Act::Nothing => {}
                Act::Load => load = true,
                Act::Copy(text) => screen.copy(&text)?,
                Act::Suspend => screen.suspend()?,
                Act::Quit => return Ok(()),
            }
        }
    }
    Ok(())
}

fn terminal_failed(error: std::io::Error) -> Failure {
    Failure::io("the terminal", error)
}

/// The terminal while it is ours; dropping it gives it back as it was.
struct Screen {
    terminal: DefaultTerminal,
    colours: bool,
}

impl Screen {
    fn take() -> Result<Screen, Failure> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore()).map_err(terminal_failed)?;
        Ok(Screen { terminal, colours: Paint::for_stdout().is_on() })
    }

    fn draw(&mut self, model: &mut Model) -> Result<(), Failure> {
        let colours = self.colours;
        let drawn = self.terminal.draw(|frame| {
            model.resize(frame.area().width, frame.area().height);
            draw(frame, model, colours);
        });
        drawn.map(drop).map_err(terminal_failed)
    }

    /// Asks the terminal to take a text into the clipboard: it works through ssh too.
    fn copy(&mut self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout();
        let text = BASE64_STANDARD.encode(text);
        write!(out, "\x1b]52;c;{text}\x07").and_then(|()| out.flush()).map_err(terminal_failed)
    }

    /// Stops as any program does on Ctrl-Z; `fg` brings it back.
    fn suspend(&mut self) -> Result<(), Failure> {
        self.give_back();
        kill_process(getpid(), Signal::TSTP).map_err(|error| terminal_failed(error.into()))?;
        enable_raw_mode().map_err(terminal_failed)?;
        execute!(std::io::stdout(), EnterAlternateScreen).map_err(terminal_failed)?;
        self.terminal.clear().map_err(terminal_failed)
    }

    fn give_back(&mut self) {
        // Nothing can be done where the terminal itself is gone.
        let _ = self.terminal.show_cursor();
        ratatui::restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}
