//! The person's terminal: taken for raw input, and given back as it was whatever happens.

use std::io::{self, Write};

use ctx_terminal::{ENTER, Footprint, Size};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal in raw mode; dropping it gives the terminal back.
pub struct Raw {
    before: Termios,
    footprint: Footprint,
}

impl Raw {
    /// Fails where stdin is no terminal.
    pub fn take() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let taken = Raw { before, footprint: Footprint::default() };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        put(ENTER)?;
        Ok(taken)
    }

    /// Follows what is shown, so that it can be taken back.
    pub fn follow(&mut self, bytes: &[u8]) {
        self.footprint.follow(bytes);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = put(&self.footprint.leave());
        // Answers to questions that nobody reads any more would show as text at the prompt.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
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
