//! What can go wrong with a terminal, each with its code.

use std::io;

use ctx_cage::rights::RightsError;
use ctx_session::Code;

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("no terminal `{0}`")]
    NotFound(String),
    #[error("the terminal `{0}` has ended")]
    Ended(String),
    #[error("there is no program `{0}`")]
    NoProgram(String),
    #[error("a terminal named `{0}` is running; choose another name, or close it")]
    NameTaken(String),
    #[error("{message}")]
    Invalid { field: &'static str, message: String },
    #[error("{0}; type it again when the program has read some of it")]
    Refused(String),
    #[error("the holder of the terminal `{0}` does not answer: it is stopped, or the machine is very busy")]
    Silent(String),
    #[error("you have {0} terminals, which is the most; close one first")]
    TooMany(usize),
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error("cannot {what}: {error}")]
    Io { what: &'static str, error: io::Error },
}

impl TerminalError {
    pub fn code(&self) -> Code {
        match self {
            TerminalError::NotFound(_) | TerminalError::NoProgram(_) => Code::Enoent,
            TerminalError::Ended(_) => Code::Eshutdown,
            TerminalError::NameTaken(_) => Code::Eexist,
            TerminalError::Invalid { .. } => Code::Einval,
            TerminalError::TooMany(_) => Code::Ebusy,
            TerminalError::Refused(_) => Code::Eagain,
            TerminalError::Silent(_) => Code::Etimedout,
            TerminalError::Rights(_) => Code::Eacces,
            TerminalError::Io { .. } => Code::Eio,
        }
    }
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> TerminalError {
    move |error| TerminalError::Io { what, error }
}
