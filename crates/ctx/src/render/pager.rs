//! The pager, as git uses one: `$PAGER` or `less`, told to keep colours and to go by itself when all fits on a screen.
//!
//! Where none can be started, stdout shows the same. How the pager ended says nothing of the command.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use crate::client::runtime;
use crate::failure::Failure;
use crate::talk::Interrupts;

/// Keeps colours, goes by itself when all fits on a screen, and leaves what was read on the terminal; unless the user
/// has said how it is to be.
const SETTINGS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];
/// What a shell leaves with when it cannot run a command.
const NOT_RUN: [i32; 2] = [126, 127];

/// Somewhere to write to that a person can scroll.
pub struct Pager {
    child: Child,
}

/// How a pager ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paged {
    /// Someone has read it, or as much as they wanted.
    Shown,
    /// The command could not be run: nothing was shown.
    NotRun,
}

impl Pager {
    /// None where stdout is to be used: none is wanted, or there is no shell to start it.
    pub fn open() -> Option<Pager> {
        let command = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
        if matches!(command.trim(), "" | "cat") {
            return None;
        }
        // `$PAGER` may have arguments; the shell knows how they are written.
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::piped());
        for (name, value) in SETTINGS {
            if std::env::var_os(name).is_none() {
                shell.env(name, value);
            }
        }
        let child = shell.spawn().ok()?;
        ignore_interrupts();
        Some(Pager { child })
    }

    /// Waits until the reader is done.
    pub fn close(mut self) -> Result<Paged, Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(|error| Failure::io("the pager", error))?;
        let not_run = status.code().is_some_and(|code| NOT_RUN.contains(&code));
        Ok(if not_run { Paged::NotRun } else { Paged::Shown })
    }
}

/// Ctrl-C is the pager's: it has the terminal, and we must not leave before it does.
fn ignore_interrupts() {
    if let Ok(runtime) = runtime() {
        let _inside = runtime.enter();
        // Once asked for, the signal never ends the process again.
        let _ = Interrupts::new();
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.child.stdin {
            Some(stdin) => stdin.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // It has the terminal until it ends. After a close there is nothing left to wait for.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
