//! What a person or a script does: lines, keys and signals, from the line editor or from plain stdin.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::answer::Questions;
use super::editor::{self, Typing, Words};
use super::screen::Printer;
use crate::failure::Failure;

/// Lines that wait to be read.
const LINES: usize = 256;

/// Where lines come from.
enum Source {
    Editor(Typing),
    /// Stdin as it is: a pipe, or the terminal of one who only looks on.
    Plain(mpsc::Receiver<Done>),
    Nobody,
}

pub struct Hands {
    source: Source,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    Line(String),
    /// Ctrl-C or Escape.
    Interrupt,
    /// A line of the input is not UTF-8.
    NotText,
    /// Ctrl-D, Ctrl-\\, or a terminal that cannot be read any more.
    Leave,
    /// The terminal was closed.
    HungUp,
    /// There is no more input, of a script.
    End,
}

impl Hands {
    /// With the line editor, where a person types at a terminal and may send.
    pub fn at_editor(words: Words, questions: Arc<Questions>) -> Result<(Hands, Printer), Failure> {
        let (typing, printer) = editor::start(words, questions)?;
        Ok((Hands::with(Source::Editor(typing))?, printer))
    }

    /// Without it.
    pub fn plain() -> Result<Hands, Failure> {
        let stdin = std::io::stdin();
        // One who reads the terminal in the background is stopped.
        let is_ours = || tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp());
        let reads = !stdin.is_terminal() || is_ours();
        Hands::with(if reads { Source::Plain(lines()) } else { Source::Nobody })
    }

    fn with(source: Source) -> Result<Hands, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", error));
        Ok(Hands {
            source,
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// The editor shows its prompt and takes the next line, which may begin with what stood there when a key interrupted it.
    pub fn go_on(&self, prompt: &str, keeps_draft: bool) {
        if let Source::Editor(typing) = &self.source {
            typing.go_on(prompt, keeps_draft);
        }
    }

    /// The prompt of an editor that is still reading goes, so that what follows has a line of its own.
    pub fn clear_prompt(&self) {
        if let Source::Editor(typing) = &self.source {
            typing.clear_prompt();
        }
    }

    /// What is done next: a signal, or if one is wanted, a line. Nothing is lost if this is dropped before it returns.
    pub async fn next(&mut self, wants_line: bool) -> Done {
        let line = async {
            match &mut self.source {
                Source::Editor(typing) => typing.next().await,
                Source::Plain(lines) => match lines.recv().await {
                    Some(done) => done,
                    None => std::future::pending().await,
                },
                Source::Nobody => std::future::pending().await,
            }
        };
        tokio::select! {
            done = line, if wants_line => done,
            _ = self.interrupt.recv() => Done::Interrupt,
            _ = self.quit.recv() => Done::Leave,
            _ = self.terminate.recv() => Done::Leave,
            _ = self.hangup.recv() => Done::HungUp,
        }
    }
}

/// Reads lines on a thread of its own, because stdin cannot be waited for otherwise.
fn lines() -> mpsc::Receiver<Done> {
    let (sender, lines) = mpsc::channel(LINES);
    let is_terminal = std::io::stdin().is_terminal();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let done = match line {
                Ok(line) => Done::Line(line),
                // It was read to its end: the next line is another.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Done::NotText,
                Err(_) => break,
            };
            if sender.blocking_send(done).is_err() {
                return;
            }
        }
        let _ = sender.blocking_send(if is_terminal { Done::Leave } else { Done::End });
    });
    lines
}
