//! Snapshots: a directory's files saved outside of it, and brought back without losing what is there now.
//!
//! Pure: [`tree`] (what a snapshot says of the files), [`ignored`] (the rules of `.gitignore`), [`plan`] (what a restore
//! does, and what it leaves alone), [`history`] (what several runs changed together), [`keep`] (which snapshots go).
//! Around them: [`files`] is the port to the files of a workspace, [`local`] those of this machine; [`store`] keeps trees
//! and content ([`batch`] on its way there); [`take`] saves a tree and [`restore`] brings one back ([`doing`]: step by step), with a journal that outlives a crash.
//! [`Snapshots`] is the door; [`runs`] takes snapshots around the runs of sessions, and [`session`] says what these changed. `check` looks for damage.

mod batch;
mod check;
mod codec;
mod doing;
pub mod files;
pub mod history;
pub mod ignored;
pub mod keep;
pub mod local;
pub mod plan;
pub mod prune;
pub mod restore;
pub mod runs;
pub mod session;
pub mod store;
pub mod take;
pub mod tree;
pub mod workspace;

pub use plan::{Change, Changed, Kept, Plan, Report};
pub use restore::Prepared;
pub use store::{Info, Reason};
pub use tree::{Node, Tree};
pub use workspace::{Limits, Snapshots, Workspace};

use ctx_session::{Code, Refusal};
use std::io;
use std::path::PathBuf;

/// Why a snapshot was not taken or a restore not made. Nothing was changed, unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{path} cannot be a workspace: {why}", path = path.display())]
    NoWorkspace { path: PathBuf, why: String },
    #[error("no snapshot `{id}` of {workspace}; it may have been removed to make room")]
    NoSnapshot { id: String, workspace: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the snapshot store is damaged: {what}")]
    Damaged { what: String },
    #[error("{what}")]
    TooMuch { what: String },
    #[error("the snapshots of {path} are in use; try again in a moment", path = path.display())]
    Busy { path: PathBuf },
    #[error(transparent)]
    Rights(#[from] ctx_cage::rights::RightsError),
}

impl SnapshotError {
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> SnapshotError {
        let what = what.into();
        move |source| SnapshotError::Io { what, source }
    }

    pub fn code(&self) -> Code {
        match self {
            SnapshotError::NoWorkspace { .. } => Code::Einval,
            SnapshotError::NoSnapshot { .. } => Code::Enoent,
            SnapshotError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::Enospc,
                io::ErrorKind::PermissionDenied => Code::Eacces,
                io::ErrorKind::NotFound => Code::Enoent,
                io::ErrorKind::NotConnected => Code::Ehostdown,
                _ => Code::Eio,
            },
            SnapshotError::Damaged { .. } => Code::Eio,
            SnapshotError::TooMuch { .. } => Code::Emsgsize,
            SnapshotError::Busy { .. } => Code::Eagain,
            SnapshotError::Rights(_) => Code::Eacces,
        }
    }
}

impl From<SnapshotError> for Refusal {
    fn from(error: SnapshotError) -> Refusal {
        Refusal::new(error.code(), error.to_string())
    }
}
