//! How much of the disk each kind of file takes.

use std::path::Path;

use super::finding::Report;
use crate::root::Root;
use crate::snapshots;

/// A line for each kind that there is.
pub fn look(root: &Root, report: &mut Report) {
    let state = root.path.join(".state");
    let all = bytes(&root.path);
    let kinds = [
        ("snapshots", bytes(&state.join(snapshots::NAME))),
        ("shells", bytes(&state.join("shell"))),
        ("terminals", bytes(&state.join("hold"))),
        ("index", bytes(&state.join("index.db")) + bytes(&state.join("index.db-wal"))),
    ];
    let known: u64 = kinds.iter().map(|(_, bytes)| bytes).sum();
    let kinds = kinds.into_iter().chain([("sessions and the rest", all.saturating_sub(known))]);
    let told: Vec<String> = kinds.map(|(kind, bytes)| format!("{kind} {}", shown(bytes))).collect();
    report.fact("sizes", told.join(", "));
}

fn bytes(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(data) if data.is_dir() => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| bytes(&entry.path())).sum()
        }
        Ok(data) if data.is_file() => data.len(),
        Ok(_) | Err(_) => 0,
    }
}

fn shown(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
