//! Both directions between a person's terminal and a holder, until the program ends, the person leaves or either goes.
//!
//! One thread polls the keyboard, the holder and signals: a key that goes through fewer hands is echoed sooner.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ctx_terminal::{End, FromHolder, Hello, Mode, Model, Polled, Size, ToHolder, VERSION, without_questions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGWINCH;

use super::keys::{Act, Keys, leaves};
use super::raw::{Keyboard, Screen, put, size};
use super::signals::{Caught, GO};

/// How long a line over the screen is shown.
const OVERLAID: Duration = Duration::from_secs(3);
/// While more than this waits for the holder, the keyboard is not read.
const TYPED_BYTES_MAX: usize = 64 * 1024;

/// As what to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    Writer,
    Watcher,
}

/// How an attachment ended.
#[derive(Debug)]
pub enum Left {
    Detached,
    Ended(Box<End>),
    /// The holder is gone without a word.
    Lost,
    /// This process was told to go.
    Signalled,
}

/// Joins this terminal to a holder. The terminal is as it was when this returns.
pub fn attach(stream: UnixStream, who: As) -> io::Result<Left> {
    let keyboard = Keyboard::raw();
    // Who only watches needs no keyboard.
    if let (Err(error), As::Writer) = (&keyboard, who) {
        return Err(io::Error::new(error.kind(), "this is not a terminal"));
    }
    let mut attached = Attached::new(stream, who, Screen::take()?, keyboard.ok())?;
    let left = attached.run();
    // A terminal that is gone shows nothing more.
    let _ = attached.lift_overlay();
    left
}

/// A line over the last one of the screen.
struct Overlay {
    /// None: a fresh screen is on its way, without it.
    until: Option<Instant>,
    /// The screen below it, as the program has painted it.
    below: Model,
}

/// The program's screen, in a window that is too small for it.
struct Cut {
    screen: Model,
    sizes: Misfit,
}

/// The sizes of the program's terminal and of a window that does not hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Misfit {
    terminal: Size,
    window: Size,
}

impl Cut {
    /// What the window shows after some more output, without its last rows.
    fn show(&mut self, bytes: &[u8], rows_left: u16) -> Vec<u8> {
        let heard = self.screen.feed(bytes);
        let Size { cols, rows } = self.sizes.window;
        let mut shown = self.screen.clipped(Size::new(cols, rows.saturating_sub(rows_left)));
        if heard.bell {
            shown.push(0x07);
        }
        shown
    }
}

struct Attached {
    holder: Polled,
    who: As,
    keys: Keys,
    overlay: Option<Overlay>,
    /// The size of the program's terminal, as its holder has said it.
    terminal: Option<Size>,
    cut: Option<Cut>,
    /// What is to lie over the next fresh screen.
    text: Option<String>,
    is_shown: bool,
    /// It is given back before the keyboard, which forgets what the terminal has answered until then.
    screen: Screen,
    keyboard: Option<Keyboard>,
    /// The keyboard has not ended.
    is_typing: bool,
}

impl Attached {
    fn new(stream: UnixStream, who: As, screen: Screen, keyboard: Option<Keyboard>) -> io::Result<Attached> {
        let mode = if who == As::Writer { Mode::Write } else { Mode::Watch };
        let hello = Hello { version: VERSION, mode, size: size(), scrollback: 0 };
        let holder = Polled::new(stream, hello)?;
        let (keys, text) = (Keys::default(), Some(hint(who, keyboard.is_some()).to_owned()));
        let is_typing = keyboard.is_some();
        let (overlay, terminal, cut, is_shown) = (None, None, None, false);
        Ok(Attached {
            holder,
            who,
            keys,
            overlay,
            terminal,
            cut,
            text,
            is_shown,
            screen,
            keyboard,
            is_typing,
        })
    }

    fn run(&mut self) -> io::Result<Left> {
        let mut resized = Caught::new(&[SIGWINCH])?;
        let mut told_to_go = Caught::new(&GO)?;
        loop {
            let [from_holder, typed, resize, go] = self.wait(&resized, &told_to_go)?;
            if go && told_to_go.take() {
                return Ok(Left::Signalled);
            }
            if resize
                && resized.take()
                && let Some(size) = size()
            {
                self.holder.tell(&ToHolder::Resize(size));
                // Whether the terminal has followed.
                self.holder.tell(&ToHolder::Status);
                self.hide_overlay();
            }
            if typed && self.act_on_keys()? {
                return Ok(Left::Detached);
            }
            if from_holder {
                let is_there = self.holder.read();
                while let Some(said) = self.holder.hear()? {
                    if let Some(left) = self.show(said)? {
                        return Ok(left);
                    }
                }
                if !is_there {
                    return Ok(Left::Lost);
                }
            }
            self.holder.send();
            if self.overlaid_until().is_some_and(|until| until <= Instant::now()) {
                self.hide_overlay();
            }
        }
    }

    /// Until something has happened: the holder spoke, a key was typed, the size changed, this process is told to go.
    fn wait(&self, resized: &Caught, told_to_go: &Caught) -> io::Result<[bool; 4]> {
        let stdin = io::stdin();
        let has_room = self.is_typing && self.holder.sending() < TYPED_BYTES_MAX;
        let when = |wanted: bool, flags: PollFlags| if wanted { flags } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(&self.holder, PollFlags::IN | when(self.holder.sending() > 0, PollFlags::OUT)),
            PollFd::new(resized, PollFlags::IN),
            PollFd::new(told_to_go, PollFlags::IN),
            // Last: a keyboard that is not read would be reported again and again when it hangs up.
            PollFd::new(&stdin, PollFlags::IN),
        ];
        let left = self.overlaid_until().map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
        let waited = if has_room { &mut fds[..] } else { &mut fds[..3] };
        match poll(waited, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let [holder, resize, go, typed] = fds.map(|fd| fd.revents().intersects(happened));
        Ok([holder, typed, resize, go])
    }

    /// Reads what was typed and does it; true: the person leaves.
    fn act_on_keys(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        // Not through the buffer of `std`, which a poll does not see.
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(n @ 1..) => self.act(buffer.get(..n).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) | Err(_) => {
                self.is_typing = false;
                Ok(false)
            }
        }
    }

    /// Shows what the holder says; Some: it was the last.
    fn show(&mut self, said: FromHolder) -> io::Result<Option<Left>> {
        match said {
            FromHolder::Output { bytes, .. } => {
                // A line over the screen stays.
                let rows_left = u16::from(self.overlay.is_some());
                let bytes = self.cut.as_mut().map(|cut| cut.show(&bytes, rows_left)).unwrap_or(bytes);
                if let Some(overlay) = &mut self.overlay {
                    overlay.below.feed(&bytes);
                }
                self.put(&bytes)?;
            }
            FromHolder::Repaint { bytes, .. } => {
                if !std::mem::replace(&mut self.is_shown, true) {
                    Attached::make_room()?;
                }
                self.overlay = None;
                let bytes = self.fitted(bytes);
                self.put(&bytes)?;
                if let Some(text) = self.text.take() {
                    self.lay_over(&text, &bytes)?;
                }
            }
            FromHolder::Idle { idle_ms } => {
                self.show_overlay(format!("nothing has happened here for {} minutes", idle_ms / 60_000));
            }
            FromHolder::End(end) => return Ok(Some(Left::Ended(Box::new(end)))),
            FromHolder::Refused(message) => return Err(io::Error::other(message)),
            // A fresh screen follows.
            FromHolder::Welcome(status) => self.terminal = Some(status.size),
            FromHolder::Resized(size) => self.fit(size),
            FromHolder::Status(status) => self.fit(status.size),
            // The bell is in the output already.
            FromHolder::Bell | FromHolder::Screen(_) | FromHolder::Unknown => {}
        }
        Ok(None)
    }

    fn misfit(&self) -> Option<Misfit> {
        let (terminal, window) = (self.terminal?, size()?);
        let is_small = terminal.cols > window.cols || terminal.rows > window.rows;
        is_small.then_some(Misfit { terminal, window })
    }

    /// The terminal has this size: where a window becomes too small for it, or large enough, a fresh screen is needed.
    fn fit(&mut self, terminal: Size) {
        self.terminal = Some(terminal);
        if self.misfit() != self.cut.as_ref().map(|cut| cut.sizes) {
            self.holder.tell(&ToHolder::Repaint);
        }
    }

    /// A fresh screen, or what of it fits into this window. Output that wraps and scrolls elsewhere would be scrambled.
    fn fitted(&mut self, screen: Vec<u8>) -> Vec<u8> {
        let before = self.cut.take().map(|cut| cut.sizes);
        let Some(sizes) = self.misfit() else { return screen };
        if before != Some(sizes) {
            self.text = Some(too_small(self.who, self.keyboard.is_some(), sizes));
        }
        let cut = self.cut.insert(Cut { screen: Model::with_scrollback(sizes.terminal, 0), sizes });
        [Model::with_scrollback(sizes.window, 0).repaint(0), cut.show(&screen, 0)].concat()
    }

    /// What was on the screen before goes up into the scrollback instead of being painted over.
    fn make_room() -> io::Result<()> {
        let Some(Size { rows, .. }) = size() else { return Ok(()) };
        put(format!("\x1b[{rows};1H{}", "\n".repeat(usize::from(rows))).as_bytes())
    }

    /// Shows output. A watcher's terminal is not asked, because its answers are not for the program.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.who {
            As::Writer => self.screen.show(bytes),
            As::Watcher => self.screen.show(&without_questions(bytes)),
        }
    }

    /// A line over a fresh screen, until a key is typed or a moment has passed.
    fn show_overlay(&mut self, text: String) {
        self.text = Some(text);
        self.holder.tell(&ToHolder::Repaint);
    }

    fn lay_over(&mut self, text: &str, screen: &[u8]) -> io::Result<()> {
        let Some(size) = size() else { return Ok(()) };
        let Size { cols, rows } = size;
        let mut below = Model::with_scrollback(size, 0);
        below.feed(screen);
        self.overlay = Some(Overlay { until: Some(Instant::now() + OVERLAID), below });
        let text: String = format!(" ctx: {text} ").chars().take(usize::from(cols)).collect();
        put(format!("\x1b7\x1b[?6l\x1b[{rows};1H\x1b[0;7m{text}\x1b[0m\x1b8").as_bytes())
    }

    fn overlaid_until(&self) -> Option<Instant> {
        self.overlay.as_ref()?.until
    }

    fn hide_overlay(&mut self) {
        if self.overlay.as_mut().and_then(|overlay| overlay.until.take()).is_some() {
            self.holder.tell(&ToHolder::Repaint);
        }
    }

    /// Takes the line away without the holder, which may have ended.
    fn lift_overlay(&mut self) -> io::Result<()> {
        match self.overlay.take() {
            Some(mut overlay) => self.put(&overlay.below.repaint(0)),
            None => Ok(()),
        }
    }

    /// Does what was typed; true: the person leaves.
    fn act(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.who == As::Watcher && leaves(bytes) {
            return Ok(true);
        }
        for act in self.keys.read(bytes) {
            match act {
                Act::Detach => return Ok(true),
                Act::Help => self.show_overlay(hint(self.who, true).to_owned()),
                Act::Send(bytes) if self.who == As::Writer => {
                    self.hide_overlay();
                    self.holder.tell(&ToHolder::Input(bytes));
                }
                // Answers of the watching terminal are not for the program.
                Act::Send(_) => {}
            }
        }
        Ok(false)
    }
}

/// The keys.
fn hint(who: As, has_keyboard: bool) -> &'static str {
    match who {
        As::Writer => "Ctrl-\\ d detaches, Ctrl-\\ Ctrl-\\ types it, Ctrl-\\ ? shows this",
        As::Watcher if has_keyboard => "watching; Ctrl-\\ d or q leaves",
        As::Watcher => "watching; Ctrl-C leaves",
    }
}

/// Why not all is shown, and what to do.
fn too_small(who: As, has_keyboard: bool, Misfit { terminal, window }: Misfit) -> String {
    let remedy = match who {
        As::Writer => "a key gives it your size",
        As::Watcher if has_keyboard => "make the window larger; q leaves",
        As::Watcher => "make the window larger; Ctrl-C leaves",
    };
    let (Size { cols, rows }, Size { cols: own_cols, rows: own_rows }) = (terminal, window);
    format!("cut: {cols}x{rows} in {own_cols}x{own_rows}; {remedy}")
}
