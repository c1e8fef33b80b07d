//! The error type of the commands: an exit code, a message and a hint.
//!
//! Other modules have their own error types; each is converted into a `Failure` here, with a code of the error table.

use std::io::{self, Write};
use std::process::ExitCode;

use ctx_agent::nearest::nearest;
use ctx_session::Code;
use ctx_views::ViewError;
use ctx_views::read::ReadError;

use crate::output;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The message, and a hint about what to do next.
    Said { code: Code, message: String, hint: Option<String> },
    /// The command has printed the reason itself; only the exit code is left.
    Told { exit: u8 },
    /// The reader of our output has closed the pipe. That is not an error.
    ReaderGone,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure::Said { code, message: message.into(), hint: None }
    }

    /// Adds a hint about what to do next.
    pub fn hint(self, text: impl Into<String>) -> Failure {
        match self {
            Failure::Said { code, message, .. } => Failure::Said { code, message, hint: Some(text.into()) },
            Failure::Told { .. } | Failure::ReaderGone => self,
        }
    }

    /// Adds the known name that is nearest to the one that was typed, if one is near.
    pub fn did_you_mean<S: AsRef<str>>(mut self, word: &str, known: impl IntoIterator<Item = S>) -> Failure {
        let known: Vec<S> = known.into_iter().collect();
        if let Failure::Said { message, .. } = &mut self
            && let Some(near) = nearest(word, known.iter().map(S::as_ref))
        {
            message.push_str(&format!("; did you mean {near}?"));
        }
        self
    }

    /// An I/O error of a file, a terminal or a socket.
    pub fn io(what: impl std::fmt::Display, error: io::Error) -> Failure {
        let code = match error.kind() {
            io::ErrorKind::BrokenPipe => return Failure::ReaderGone,
            io::ErrorKind::NotFound => Code::Enoent,
            io::ErrorKind::PermissionDenied => Code::Eacces,
            io::ErrorKind::StorageFull => Code::Enospc,
            _ => Code::Eio,
        };
        Failure::new(code, format!("{what}: {error}"))
    }

    pub fn exit(&self) -> u8 {
        match self {
            Failure::Said { code, .. } => code.exit(),
            Failure::Told { exit } => *exit,
            Failure::ReaderGone => 0,
        }
    }

    /// Prints the message and the hint to stderr and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if let Failure::Said { code, message, hint } = self {
            let paint = output::Paint::for_stderr();
            // The code stands after the first line, not after a list that may follow it.
            let (message, rest) = message.split_once('\n').unwrap_or((message, ""));
            let mut lines =
                format!("{} {message} {}\n", paint.red("error:"), paint.dim(&format!("({code})")));
            if !rest.is_empty() {
                lines.push_str(&format!("{rest}\n"));
            }
            if let Some(hint) = hint {
                lines.push_str(&format!("{} {hint}\n", paint.bold("hint:")));
            }
            // If stderr is closed too, only the exit code remains.
            let _ = io::stderr().write_all(lines.as_bytes());
        }
        ExitCode::from(self.exit())
    }
}

/// Writing to stdout failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::io("cannot write the output", error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

impl From<ViewError> for Failure {
    fn from(error: ViewError) -> Failure {
        ReadError::from(error).into()
    }
}
