//! The one error type at the edge: what a command ends with, as an exit code and words for a person.
//!
//! Modules below keep their own errors; each is turned into a failure here, once, with a code of the table.

use std::io::{self, Write};
use std::process::ExitCode;

use ctx_session::Code;
use ctx_views::ViewError;
use ctx_views::read::ReadError;

use crate::output;

/// How a command ended, other than well.
#[derive(Debug)]
pub enum Failure {
    /// Something to say: the message, and what to do about it.
    Said { code: Code, message: String, hint: Option<String> },
    /// All was said already; only the exit code is left.
    Told { exit: u8 },
    /// Whoever read our output has gone. Nobody is left to tell, and nothing went wrong.
    ReaderGone,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure::Said { code, message: message.into(), hint: None }
    }

    /// Adds what to do next.
    pub fn hint(self, text: impl Into<String>) -> Failure {
        match self {
            Failure::Said { code, message, .. } => Failure::Said { code, message, hint: Some(text.into()) },
            Failure::Told { .. } | Failure::ReaderGone => self,
        }
    }

    /// Something on this machine did not work: a file, a terminal, a socket.
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

    /// Says it on stderr, in a few lines, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        if let Failure::Said { code, message, hint } = self {
            let paint = output::Paint::for_stderr();
            // The code belongs to what went wrong, not to the list that may follow it.
            let (message, rest) = message.split_once('\n').unwrap_or((message, ""));
            let mut lines =
                format!("{} {message} {}\n", paint.red("error:"), paint.dim(&format!("({code})")));
            if !rest.is_empty() {
                lines.push_str(&format!("{rest}\n"));
            }
            if let Some(hint) = hint {
                lines.push_str(&format!("{} {hint}\n", paint.bold("hint:")));
            }
            // If stderr is gone too, the exit code has to do.
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
