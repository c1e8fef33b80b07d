//! The person's terminal: taken for raw input, and given back as it was whatever happens.

use std::io::{self, Write};

use ctx_terminal::{LEAVE, Size};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal in raw mode; dropping it gives the terminal back.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Fails where stdin is no terminal.
    pub fn take() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let taken = Raw { before };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(taken)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(LEAVE).and_then(|()| stdout.flush());
        // Answers to questions that nobody reads any more would show as text at the prompt.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The size of the terminal on stdout; None where it is none.
pub fn size() -> Option<Size> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| Size::new(size.ws_col, size.ws_row))
}
