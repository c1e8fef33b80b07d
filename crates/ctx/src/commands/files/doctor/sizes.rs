//! How much of the disk each kind of file takes.

use std::io::ErrorKind;
use std::path::Path;

use super::finding::Report;
use crate::root::Root;
use crate::shell_logs::Shelf;
use crate::snapshots;

/// A line for each kind that there is.
pub fn look(root: &Root, report: &mut Report) {
    let state = root.path.join(".state");
    let all = size(&root.path);
    let own = Shelf::for_reading(root).unwrap_or_default();
    let own: Vec<_> = own.iter().map(Shelf::state_dir).filter(|dir| *dir != state).collect();
    let kinds = [
        ("snapshots", size(&state.join(snapshots::NAME))),
        ("shells", size(&state.join("shell"))),
        ("terminals", size(&state.join("hold"))),
        ("index", size(&state.join("index.db")).plus(size(&state.join("index.db-wal")))),
    ];
    let known: u64 = kinds.iter().map(|(_, size)| size.bytes).sum();
    let rest = Size { bytes: all.bytes.saturating_sub(known), ..all };
    let own = own.iter().map(|dir| size(&dir.join(snapshots::NAME))).reduce(Size::plus);
    let own = own.map(|size| ("snapshots of shells outside of the root", size));
    let kinds = kinds.into_iter().chain([("sessions and the rest", rest)]).chain(own);
    let told: Vec<String> = kinds.map(|(kind, size)| format!("{kind} {}", size.shown())).collect();
    report.fact("sizes", told.join(", "));
}

/// What could be counted, and whether there is something that could not.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    is_unreadable: bool,
}

impl Size {
    fn plus(self, other: Size) -> Size {
        Size { bytes: self.bytes + other.bytes, is_unreadable: self.is_unreadable || other.is_unreadable }
    }

    fn shown(self) -> String {
        let counted = match self.bytes {
            0 if self.is_unreadable => return "unreadable".to_owned(),
            0..=9_999 => format!("{} B", self.bytes),
            10_000..=9_999_999 => format!("{} KB", self.bytes / 1_000),
            _ => format!("{} MB", self.bytes / 1_000_000),
        };
        if self.is_unreadable { format!("{counted} + unreadable") } else { counted }
    }
}

fn size(path: &Path) -> Size {
    counted(path)
        .unwrap_or_else(|error| Size { bytes: 0, is_unreadable: error.kind() != ErrorKind::NotFound })
}

fn counted(path: &Path) -> std::io::Result<Size> {
    let data = path.symlink_metadata()?;
    if data.is_dir() {
        let entries = std::fs::read_dir(path)?.flatten();
        return Ok(entries.map(|entry| size(&entry.path())).fold(Size::default(), Size::plus));
    }
    Ok(Size { bytes: if data.is_file() { data.len() } else { 0 }, is_unreadable: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "12345").unwrap();
        assert_eq!(size(dir.path()).shown(), "5 B");
        assert_eq!(size(&dir.path().join("not-there")).shown(), "0 B");
        // Root may read everything, but not a name that is too long.
        let unreadable = size(&dir.path().join("x".repeat(300)));
        assert_eq!(unreadable.shown(), "unreadable");
        assert_eq!(unreadable.plus(size(dir.path())).shown(), "5 B + unreadable");
    }
}
