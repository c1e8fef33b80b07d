//! What a person does at the terminal: lines and keys.
//!
//! The terminal stays as it is: lines are edited by the kernel, Ctrl-C and Ctrl-\ are signals. But for one thing, which
//! harms nobody if it is left so by who is killed: such a key does not throw away what the terminal has not shown yet.

use std::io::IsTerminal;
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios};
use rustix::termios::{tcflush, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Lines that come this close to each other were pasted: one message.
const PASTE: Duration = Duration::from_millis(30);
/// Lines that wait to be read.
const LINES: usize = 256;

pub struct Hands {
    lines: Option<mpsc::Receiver<String>>,
    /// For who can type.
    _keeps: Option<KeepsOutput>,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What was done.
pub enum Done {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, Ctrl-\, or the terminal is gone.
    Leave,
}

impl Hands {
    pub fn new() -> Result<Hands, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", error));
        let is_ours = has_keyboard();
        Ok(Hands {
            lines: is_ours.then(keyboard),
            _keeps: is_ours.then(KeepsOutput::begin).flatten(),
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Whether anything can be typed here.
    pub fn can_type(&self) -> bool {
        self.lines.is_some()
    }

    /// Nothing is lost if this is dropped before it returns, but for the lines of an unfinished paste.
    pub async fn next(&mut self) -> Done {
        let line = async {
            match &mut self.lines {
                Some(lines) => lines.recv().await,
                None => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            line = line => line,
            _ = self.interrupt.recv() => {
                drop_half_a_line();
                return Done::Interrupt;
            }
            _ = self.quit.recv() => return Done::Leave,
            _ = self.terminate.recv() => return Done::Leave,
            _ = self.hangup.recv() => return Done::Leave,
        };
        first.map_or(Done::Leave, Done::Line)
    }

    /// The lines that came with a paste behind its first.
    pub async fn rest_of_paste(&mut self, first: String) -> String {
        let mut text = first;
        let Some(lines) = &mut self.lines else { return text };
        while let Ok(Some(line)) = tokio::time::timeout(PASTE, lines.recv()).await {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }
}

/// The terminal as it was, while Ctrl-C does not discard what was written and not read: text of a session that would
/// never be shown.
struct KeepsOutput(Termios);

impl KeepsOutput {
    /// None: it is so already, or the terminal is gone.
    fn begin() -> Option<KeepsOutput> {
        let stdin = std::io::stdin();
        let found = tcgetattr(&stdin).ok()?;
        if found.local_modes.contains(LocalModes::NOFLSH) {
            return None;
        }
        let mut ours = found.clone();
        ours.local_modes.insert(LocalModes::NOFLSH);
        tcsetattr(&stdin, OptionalActions::Now, &ours).ok()?;
        Some(KeepsOutput(found))
    }
}

impl Drop for KeepsOutput {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// What was typed before Ctrl-C and not sent is not meant any more. The terminal would have done so itself.
fn drop_half_a_line() {
    let stdin = std::io::stdin();
    if has_keyboard() {
        let _ = tcflush(&stdin, QueueSelector::IFlush);
    }
}

/// Whether stdin is a terminal, and ours to read: one who reads it in the background is stopped.
fn has_keyboard() -> bool {
    let stdin = std::io::stdin();
    stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp())
}

/// Reads lines on a thread of its own, because a terminal cannot be waited for otherwise.
fn keyboard() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
