//! What can go wrong with a log. Every message names the file.

use std::io;

use ctx_session::Code;

use crate::access::Foreign;
use crate::path::LogPath;

/// A log could not be made, opened, read, moved or removed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{log}: no such log")]
    NotThere { log: LogPath },
    #[error("{log}: already exists")]
    AlreadyThere { log: LogPath },
    #[error("{log}: another process has it open for writing; stop the other daemon, or wait")]
    Locked { log: LogPath },
    #[error(
        "{log}: line {line} has format version {version}, and this ctx knows {}: a newer ctx wrote it; upgrade ctx",
        crate::FORMAT_VERSION
    )]
    TooNew { log: LogPath, line: u64, version: u64 },
    #[error(
        "{log}: it has {bytes} bytes, and no log of ctx has more than {}; restore it from a backup, or move it out of the root",
        crate::format::LOG_BYTES_MAX
    )]
    TooLarge { log: LogPath, bytes: u64 },
    #[error("{log}: no space left on the disk; free some space and try again")]
    NoSpace { log: LogPath },
    #[error("{log}: record {index} of the command cannot be stored: {reason}")]
    BadBody { log: LogPath, index: usize, reason: String },
    #[error("{log}: blob sha256-{sha256} is missing")]
    NoBlob { log: LogPath, sha256: String },
    #[error("{log}: the content of blob sha256-{sha256} does not match its name")]
    BadBlob { log: LogPath, sha256: String },
    #[error("{log}: no record {seq}; `ctx log` lists the records")]
    NoRecord { log: LogPath, seq: u64 },
    #[error("{log}: record {seq} is in the middle of a command, which ends with record {end}")]
    InsideCommand { log: LogPath, seq: u64, end: u64 },
    #[error("{path}: {why}, so nothing in it is believed and it is not opened; `ctx doctor` says what to do")]
    Foreign { log: LogPath, path: String, why: Foreign },
    #[error("{path}: cannot {action}: {error}")]
    Io { path: String, action: &'static str, error: io::Error },
}

impl JournalError {
    /// Whether the file is there and cannot be read as it is: trying again changes nothing.
    pub fn is_unreadable(&self) -> bool {
        use rustix::io::Errno;
        let lasting =
            [Errno::ACCESS, Errno::PERM, Errno::ISDIR, Errno::NOTDIR, Errno::LOOP, Errno::NXIO, Errno::XDEV];
        match self {
            JournalError::TooLarge { .. } => true,
            JournalError::Io { error, .. } => {
                lasting.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
            }
            _ => false,
        }
    }

    /// Whether the log is gone or unreadable.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, JournalError::NotThere { .. }) || self.is_unreadable()
    }

    pub fn code(&self) -> Code {
        match self {
            JournalError::NotThere { .. } | JournalError::NoBlob { .. } | JournalError::NoRecord { .. } => {
                Code::Enoent
            }
            JournalError::InsideCommand { .. } => Code::Einval,
            JournalError::Foreign { .. } => Code::Eacces,
            JournalError::AlreadyThere { .. } => Code::Eexist,
            JournalError::Locked { .. } => Code::Ebusy,
            JournalError::NoSpace { .. } => Code::Enospc,
            JournalError::BadBody { .. } => Code::Emsgsize,
            JournalError::TooNew { .. }
            | JournalError::TooLarge { .. }
            | JournalError::BadBlob { .. }
            | JournalError::Io { .. } => Code::Eio,
        }
    }
}

/// A command was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Nothing was written, and the writer can be used again.
    #[error("{log}: no space left on the disk; free some space and try again")]
    NoSpace { log: LogPath },
    /// The disk failed. Whether this command is there is known only after the log was opened again.
    #[error("{log}: {reason}; nothing more is written to it until it is opened again")]
    Poisoned { log: LogPath, reason: String },
    /// Someone else was faster. Nothing was written.
    #[error("{log}: record {expected} was expected next, and it is {next}")]
    Conflict { log: LogPath, expected: u64, next: u64 },
    /// Nothing was written.
    #[error("{log}: the command has {bytes} bytes, and {max} is the most")]
    TooLarge { log: LogPath, bytes: usize, max: usize },
    /// Nothing was written. A mistake in the caller.
    #[error("{log}: record {index} of the command cannot be stored: {reason}")]
    BadBody { log: LogPath, index: usize, reason: String },
}

impl AppendError {
    pub fn code(&self) -> Code {
        match self {
            AppendError::NoSpace { .. } => Code::Enospc,
            AppendError::Poisoned { .. } | AppendError::BadBody { .. } => Code::Eio,
            AppendError::Conflict { .. } => Code::Ebusy,
            AppendError::TooLarge { .. } => Code::Emsgsize,
        }
    }
}
