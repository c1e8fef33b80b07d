//! The pager: `$PAGER`, or `less`. Where neither can be started, stdout itself.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use crate::failure::Failure;

/// Keeps colours, goes by itself when all fits on a screen, and leaves what was read on the terminal.
const LESS: &str = "less -RFX";

/// Somewhere to write to that a person can scroll.
pub struct Pager {
    child: Option<Child>,
}

impl Pager {
    pub fn open() -> Pager {
        let wanted = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
        // A machine without less still shows what was asked for.
        let less = || format!("if command -v less >/dev/null; then exec {LESS}; else exec cat; fi");
        let command = wanted.unwrap_or_else(less);
        // `$PAGER` may have arguments; the shell knows how they are written.
        let child = Command::new("sh").args(["-c", &command]).stdin(Stdio::piped()).spawn();
        Pager { child: child.ok() }
    }

    /// Waits until the reader is done.
    pub fn close(mut self) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        drop(child.stdin.take());
        child.wait().map_err(|error| Failure::io("the pager", error))?;
        Ok(())
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(stdin) => stdin.write(bytes),
            None => io::stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(stdin) => stdin.flush(),
            None => io::stdout().flush(),
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // It has the terminal until it ends.
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
