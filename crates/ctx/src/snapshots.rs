//! Where snapshots of files are kept, for every command and for the daemon.

use std::path::{Path, PathBuf};

use ctx_host::SnapshotSetup;
use ctx_snapshot::restore::Pending;
use ctx_snapshot::{Limits, Snapshots};

use crate::config::{Shells, SnapshotsConfig};
use crate::root::Root;

/// Below a root's `.state`, or below a state directory of the user's own.
pub const NAME: &str = "snapshot";

/// The snapshots in a directory of ctx, and the root whose logs say which restores were meant.
pub fn at(state: &Path, root: &Root, config: &SnapshotsConfig) -> Snapshots {
    let limits = Limits { budget_bytes: u64::from(config.budget_mib.get()) << 20, ..Limits::default() };
    let of_log = root.clone();
    let apart = vec![root.path.clone(), state.to_owned()];
    Snapshots::new(state.join(NAME), apart, limits, Box::new(move |pending| is_recorded(&of_log, pending)))
}

/// The snapshots of a root.
pub fn of_root(root: &Path, config: &SnapshotsConfig) -> Snapshots {
    at(&root.join(".state"), &Root { path: root.to_owned() }, config)
}

/// What shells keep their snapshots with.
pub fn of_shells(state: &Path, root: &Root, config: &SnapshotsConfig, shells: &Shells) -> SnapshotSetup {
    let dirs = |text: &str| text.split(':').filter(|root| !root.is_empty()).map(PathBuf::from).collect();
    let (roots, remote_roots) = (dirs(&shells.workspace_roots), dirs(&shells.remote_workspace_roots));
    SnapshotSetup { snapshots: at(state, root, config), roots, remote_roots }
}

/// Whether a session's log has the record that a restore waits for. A log that is gone does not have it.
fn is_recorded(root: &Root, pending: Pending) -> bool {
    let Pending { session, restore, uid } = pending;
    let Ok(reader) = root.reader() else { return false };
    let found = reader.resolve(uid, &session.to_string()).and_then(|session| reader.records(&session));
    let Ok(records) = found else { return false };
    records.iter().any(|record| record.body.restore() == Some(restore))
}
