//! Tidy: rules about the repository that no compiler checks. Each is a function from the tree to complaints, and
//! `tests/tidy.rs` holds that there are none.

pub mod cycles;
pub mod edges;
pub mod source;

use std::path::{Path, PathBuf};

/// Something that is not as it should be, where it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    pub path: PathBuf,
    /// From 1; 0 for the file as a whole.
    pub line: usize,
    pub message: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

/// Every Rust file under a directory, in order.
pub fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return files };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_build = path.file_name().is_some_and(|name| name == "target" || name == "node_modules");
        if path.is_dir() && !is_build {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}
