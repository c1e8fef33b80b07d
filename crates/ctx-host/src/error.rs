//! What can go wrong with a shell, each with its code from the one table.

use std::path::PathBuf;

use ctx_session::Code;

/// Why a shell did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    #[error("no shell `{id}`: session_list shows the ones there are")]
    NoShell { id: String },
    #[error(
        "the shell `{id}` was closed after {idle_secs} seconds without a command: make a new one with session_create"
    )]
    Reaped { id: String, idle_secs: u64 },
    #[error("no output of call {call} in `{id}`: {why}")]
    NoOutput { id: String, call: u64, why: &'static str },
    #[error("{message}")]
    Invalid {
        /// What of the request is to blame.
        field: &'static str,
        message: String,
    },
    #[error("{what} is {bytes} bytes long; at most {max} are allowed: put it in a file and name that")]
    TooLong { what: &'static str, bytes: usize, max: usize },
    #[error("{message}")]
    Denied { message: String },
    #[error("{max} shells are open, which is the limit: destroy one with session_destroy")]
    TooMany { max: usize },
    #[error("{waiting} commands wait for `{id}` already: wait for one of them, or use another shell")]
    Crowded { id: String, waiting: usize },
    #[error("the shell `{id}` was closed: {why}; make a new one with session_create")]
    Closed { id: String, why: String },
    #[error("no shell could be started in {}: {source}", cwd.display())]
    Start { cwd: PathBuf, source: std::io::Error },
    #[error("the shell {} is not a program that can be run: name another with --shell", path.display())]
    NoProgram { path: PathBuf },
    #[error(
        "{} does not run commands as a POSIX shell does ({why}): name another with --shell", path.display()
    )]
    NotAShell { path: PathBuf, why: String },
    #[error("neither bash nor sh was found in PATH: install bash")]
    NoInterpreter,
    #[error("the output could not be kept in {}: {source}", path.display())]
    Spool { path: PathBuf, source: std::io::Error },
    #[error("the shell's log cannot be written: {message}")]
    Log { message: String },
    #[error(
        "command {call} runs in `{id}`: wait for its end or stop it with session_interrupt, then restore"
    )]
    Busy { id: String, call: u64 },
    #[error(transparent)]
    Snapshot(ctx_snapshot::SnapshotError),
    #[error("{message}")]
    Unreachable { message: String },
    #[error(transparent)]
    Cage(ctx_cage::CageError),
    #[error("the request was cancelled")]
    Cancelled,
}

impl ShellError {
    /// The code that clients act on.
    pub fn code(&self) -> Code {
        match self {
            ShellError::NoShell { .. } | ShellError::Reaped { .. } | ShellError::NoOutput { .. } => {
                Code::Enoent
            }
            ShellError::Invalid { .. } => Code::Einval,
            ShellError::TooLong { .. } => Code::Emsgsize,
            ShellError::Denied { .. } => Code::Eacces,
            ShellError::TooMany { .. } | ShellError::Crowded { .. } | ShellError::Busy { .. } => Code::Ebusy,
            ShellError::Closed { .. } | ShellError::Unreachable { .. } => Code::Ehostdown,
            ShellError::Start { .. }
            | ShellError::NoProgram { .. }
            | ShellError::NotAShell { .. }
            | ShellError::NoInterpreter => Code::Enoexec,
            ShellError::Spool { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Code::Enospc
            }
            ShellError::Spool { .. } | ShellError::Log { .. } => Code::Eio,
            ShellError::Snapshot(error) => error.code(),
            ShellError::Cage(error) => error.code(),
            ShellError::Cancelled => Code::Eintr,
        }
    }

    pub(crate) fn destroyed(id: &str) -> Self {
        ShellError::Closed { id: id.to_owned(), why: "it was destroyed".to_owned() }
    }

    pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        ShellError::Invalid { field, message: message.into() }
    }
}
