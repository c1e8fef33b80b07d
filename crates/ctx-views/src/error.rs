//! What can go wrong with a view. None of it is the session's fault, and none of it may stop one.

use std::io;
use std::path::{Path, PathBuf};

use ctx_journal::JournalError;

/// A view could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("{}: cannot {action}: {error}", path.display())]
    Io { path: PathBuf, action: &'static str, error: io::Error },
    /// The view has missed something, or has not been compared with the log yet.
    #[error("{}: behind its log; it has to catch up first", dir.display())]
    Stale { dir: PathBuf },
    #[error("the log cannot be read to catch up: {0}")]
    Log(#[from] JournalError),
}

impl ViewError {
    pub(crate) fn io(path: &Path, action: &'static str, error: impl Into<io::Error>) -> ViewError {
        ViewError::Io { path: path.to_owned(), action, error: error.into() }
    }

    /// Whether there was a link at the path, which is not followed.
    pub(crate) fn is_link(&self) -> bool {
        let looped = rustix::io::Errno::LOOP.raw_os_error();
        matches!(self, ViewError::Io { error, .. } if error.raw_os_error() == Some(looped))
    }

    /// Whether there was nothing at the path.
    pub fn is_not_found(&self) -> bool {
        match self {
            ViewError::Io { error, .. } => error.kind() == io::ErrorKind::NotFound,
            ViewError::Log(JournalError::NotThere { .. }) => true,
            ViewError::Stale { .. } | ViewError::Log(_) => false,
        }
    }
}
