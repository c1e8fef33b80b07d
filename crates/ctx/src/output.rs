//! Output of the commands: data goes to stdout, messages to stderr. Colours are used only on a terminal, and never if NO_COLOR is set.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::Duration;

use ctx_session::Code;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::Failure;

/// Whether and how to colour a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    pub fn for_stdout() -> Paint {
        Paint { on: io::stdout().is_terminal() && wanted() }
    }

    pub fn for_stderr() -> Paint {
        Paint { on: io::stderr().is_terminal() && wanted() }
    }

    /// Never colours.
    pub fn off() -> Paint {
        Paint { on: false }
    }

    /// Always colours.
    #[cfg(test)]
    pub fn on() -> Paint {
        Paint { on: true }
    }

    pub fn is_on(self) -> bool {
        self.on
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }
}

/// <https://no-color.org>: any value but an empty one disables colours.
fn wanted() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !no_color && !dumb
}

/// Buffered stdout; the caller flushes it.
pub fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Prints a line to stderr. An error is ignored: the command works without it.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The bell of the terminal that messages go to, for what needs a person.
pub fn ring() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\x07");
    }
}

/// What was typed at the terminal and nobody has read is forgotten, also half a line: it was not meant for what is asked now.
pub fn forget_typed() {
    // A terminal that is gone has nothing.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Sleeps for this time, and fails early if the reader of stdout has closed the pipe, which only a poll can notice.
pub fn pause(time: Duration) -> Result<(), Failure> {
    let stdout = io::stdout();
    // Only errors and hang-ups are polled for.
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let time = Timespec::try_from(time).ok();
    match rustix::event::poll(&mut watched, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(Failure::io("cannot wait", error.into())),
    }
    if watched.iter().any(is_gone) { Err(Failure::ReaderGone) } else { Ok(()) }
}

/// Whether a poll of stdout reports that the reader has closed it.
pub fn is_gone(stdout: &PollFd<'_>) -> bool {
    stdout.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Whether someone is at the terminal who can be asked.
pub fn is_person_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// A chat shows what a command prints, and tells it with this variable how wide its terminal is.
pub const SHOWN_WIDTH: &str = "_CTX_SHOWN_WIDTH";

/// Whether the terminal can do nothing but show lines.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The width of the terminal on stdout, if it is one, or if a chat shows the output in one.
pub fn width() -> Option<usize> {
    let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else {
        return std::env::var(SHOWN_WIDTH).ok()?.parse().ok().filter(|width| *width > 0);
    };
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Makes text from outside safe for a terminal: replaces control characters except line end and tab, and characters that
/// change the direction of text.
pub fn plain(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if steers(c) || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// Makes text from outside one line: every control character becomes a space, and none changes the direction of text.
pub fn one_line(text: &str) -> String {
    text.chars().map(on_a_line).collect()
}

/// A character as it may stand in a line.
pub fn on_a_line(c: char) -> char {
    match c {
        c if c.is_control() => ' ',
        c if turns(c) => '\u{fffd}',
        c => c,
    }
}

/// Whether a character changes the direction of the text after it, so that a line reads as something else than it is.
fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A line that was put together, colours and all, without what changes its direction.
pub fn unturned(line: &str) -> String {
    line.chars().map(|c| if turns(c) { '\u{fffd}' } else { c }).collect()
}

/// One JSON object as a line.
pub fn json_line(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(Code::Eio, error.to_string()))
}

/// JSON objects on stdout, one a line.
pub fn json_lines<T: serde::Serialize>(values: impl IntoIterator<Item = T>) -> Result<(), Failure> {
    values.into_iter().try_for_each(|value| json(&value))
}

/// One JSON object on a line of stdout.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    writeln!(io::stdout(), "{}", json_line(value)?)?;
    Ok(())
}
