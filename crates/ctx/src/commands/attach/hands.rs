//! What a person does at the terminal: lines and keys.
//!
//! The terminal stays as it is: lines are edited by the kernel, Ctrl-C and Ctrl-\ are signals. So there is nothing to
//! restore, however this ends.

use std::io::IsTerminal;
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Lines that come this close to each other were pasted: one message.
const PASTE: Duration = Duration::from_millis(30);
/// Lines that wait to be read.
const LINES: usize = 256;

pub struct Hands {
    lines: Option<mpsc::Receiver<String>>,
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
        Ok(Hands {
            lines: has_keyboard().then(keyboard),
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
            _ = self.interrupt.recv() => return Done::Interrupt,
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
