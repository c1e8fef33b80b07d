//! The person's terminal: its keyboard and its screen, given back as they were whatever happens.

use std::io::{self, IsTerminal, Write};

use ctx_terminal::{ENTER, Footprint, Size};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal on stdin in another mode; dropping it gives the terminal back.
pub struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// In raw mode. Fails where stdin is no terminal.
    pub fn raw() -> io::Result<Keyboard> {
        Keyboard::take(Termios::make_raw)
    }

    /// What is typed is not shown; Ctrl-C is still a signal.
    pub fn quiet() -> io::Result<Keyboard> {
        Keyboard::take(|modes| modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON))
    }

    fn take(change: impl FnOnce(&mut Termios)) -> io::Result<Keyboard> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        change(&mut modes);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        Ok(Keyboard { before })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Answers to questions that nobody reads any more would show as text at the prompt.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Stdout, where a program's output is shown. Where it is a terminal, dropping it takes back what the output has left there.
pub struct Screen {
    footprint: Option<Footprint>,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        if !io::stdout().is_terminal() {
            return Ok(Screen { footprint: None });
        }
        put(ENTER)?;
        Ok(Screen { footprint: Some(Footprint::default()) })
    }

    pub fn is_terminal(&self) -> bool {
        self.footprint.is_some()
    }

    /// Shows output, which ends between characters and sequences.
    pub fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(footprint) = &mut self.footprint {
            footprint.follow(bytes);
        }
        put(bytes)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(footprint) = &self.footprint {
            let _ = put(&footprint.leave());
        }
    }
}

/// Shows bytes at once.
pub fn put(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// The size of the terminal on stdout; None where it is none.
pub fn size() -> Option<Size> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| Size::new(size.ws_col, size.ws_row))
}
