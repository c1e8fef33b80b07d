//! What a shell has for snapshots: where they are kept, and the directory that they are of.

use std::path::PathBuf;

use ctx_snapshot::{Snapshots, Workspace};

/// Where snapshots are kept, and of which directories there may be some.
#[derive(Clone)]
pub struct SnapshotSetup {
    pub snapshots: Snapshots,
    /// A workspace lies in one of them; where there is none, in the server's directory.
    pub roots: Vec<PathBuf>,
    /// The same on other machines and in containers; where there is none, in the home directory there.
    pub remote_roots: Vec<PathBuf>,
}

impl std::fmt::Debug for SnapshotSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotSetup").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// A shell's workspace.
pub(super) struct ShellWorkspace {
    pub workspace: Workspace,
    pub with_ignored: bool,
}
