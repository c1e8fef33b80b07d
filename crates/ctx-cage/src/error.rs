//! Why a cage could not be made or changed.

use std::path::PathBuf;

use ctx_session::{Code, Refusal};

#[derive(Debug, thiserror::Error)]
pub enum CageError {
    #[error(
        "bubblewrap is not installed: there is no `bwrap` in PATH, and without it nothing runs in a cage"
    )]
    NoBwrap,
    #[error("the cage needs {}, which uid {uid} cannot open: {error}", path.display())]
    Source { path: PathBuf, uid: u32, error: std::io::Error },
    #[error("the cage did not start{detail}")]
    NotStarted { detail: String },
    #[error("the filter of system calls cannot be made: {0}")]
    Filter(String),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
    #[error("{0}")]
    Input(String),
}

impl CageError {
    pub(super) fn io(what: impl Into<String>, error: impl Into<std::io::Error>) -> CageError {
        CageError::Io { what: what.into(), error: error.into() }
    }

    pub fn code(&self) -> Code {
        match self {
            CageError::NoBwrap => Code::Ehostdown,
            CageError::Source { error, .. } if error.kind() == std::io::ErrorKind::NotFound => Code::Enoent,
            CageError::Source { .. } => Code::Eacces,
            CageError::NotStarted { .. } => Code::Enoexec,
            CageError::Filter(_) | CageError::Io { .. } => Code::Eio,
            CageError::Input(_) => Code::Einval,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CageError::NoBwrap => Some(
                "install the package `bubblewrap` (0.8 or newer): `apt install bubblewrap`, `dnf install bubblewrap`",
            ),
            CageError::Source { .. } => Some(
                "the processes of a cage have the rights of its owner, and never root's: let that user open it",
            ),
            CageError::NotStarted { .. } => Some("`ctx doctor` says what this machine has for cages"),
            CageError::Filter(_) | CageError::Io { .. } | CageError::Input(_) => None,
        }
    }
}

impl From<CageError> for Refusal {
    fn from(error: CageError) -> Refusal {
        Refusal::new(error.code(), error.to_string())
    }
}
