//! Where a log is beneath the root, and who its files belong to.

use std::fmt;

/// The file name of a log that has a directory of its own.
pub const EVENTS: &str = "events.jsonl";

/// The path of a log relative to the root, such as `home/0/agent/coder/session/default/events.jsonl`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPath(String);

/// Why a text is not the path of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not a log's path: {rule}")]
pub struct BadLogPath {
    pub path: String,
    pub rule: &'static str,
}

impl LogPath {
    /// Longer paths would not open.
    const BYTES_MAX: usize = 4000;

    pub fn new(path: impl Into<String>) -> Result<Self, BadLogPath> {
        let path = path.into();
        let rule = if path.is_empty() {
            "it is empty"
        } else if path.len() > Self::BYTES_MAX {
            "it is longer than 4000 bytes"
        } else if path.starts_with('/') {
            "it must be relative to the root"
        } else if path.contains('\0') {
            "it has a NUL in it"
        } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            "it must not have empty, `.` or `..` parts"
        } else {
            return Ok(LogPath(path));
        };
        Err(BadLogPath { path: path.chars().take(200).collect(), rule })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory the log is in; empty for the root.
    pub fn dir(&self) -> &str {
        parent_of(&self.0)
    }

    /// The log's own name.
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// Whether the directory is the log's own, so that it is moved and removed with the log.
    pub(crate) fn owns_dir(&self) -> bool {
        self.file_name() == EVENTS && !self.dir().is_empty()
    }

    /// The path of something beside the log.
    pub(crate) fn beside(&self, name: &str) -> String {
        join(self.dir(), name)
    }
}

/// The directory a path is in; empty for the root.
pub(crate) fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A path in a directory, where the empty directory is the root.
pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

impl fmt::Display for LogPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LogPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Whom the daemon keeps files for. It owns and writes them; they read them (`access`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// The user's own group.
    pub gid: u32,
    /// The group of the space that the files are in: then its members read them, and nobody else.
    pub space: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_beneath_the_root() {
        for good in ["events.jsonl", ".state/audit.jsonl", "home/0/agent/a.b/session/x y/events.jsonl"] {
            assert_eq!(LogPath::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "/etc/passwd", "a/../b", "..", "a//b", "a/./b", "a/", "a\0b"] {
            assert!(LogPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(LogPath::new("a/".repeat(3000)).is_err());
    }

    #[test]
    fn parts_of_a_path() {
        let log = LogPath::new("a/b/events.jsonl").unwrap();
        assert_eq!((log.dir(), log.file_name(), log.owns_dir()), ("a/b", "events.jsonl", true));
        assert_eq!(log.beside("blobs"), "a/b/blobs");
        let audit = LogPath::new("audit.jsonl").unwrap();
        assert_eq!((audit.dir(), audit.file_name(), audit.owns_dir()), ("", "audit.jsonl", false));
        assert_eq!(audit.beside("x"), "x");
    }
}
