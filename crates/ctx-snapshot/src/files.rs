//! The port to the files of a workspace: those of this machine (`local`), those on another or in a container
//! (`ctx-host/src/remote/files`).
//!
//! Paths are from the workspace on. An error of the kind `NotConnected` says that no file can be reached any more. No method follows a symbolic link, on the way or at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};

use super::ignored::Ignored;
use super::tree::{Outer, RelPath, Tree};

/// What tells without reading a file that it is the one that was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    /// Nanoseconds since the epoch.
    pub mtime: i64,
    pub ctime: i64,
    pub ino: u64,
    pub dev: u64,
}

/// Something that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub kind: FoundKind,
    pub mode: u32,
    pub stat: Stat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundKind {
    File,
    Dir,
    Link {
        target: Vec<u8>,
    },
    /// A socket, a pipe or a device.
    Other,
}

/// A longer path is left out: with the name of a file beside it, and from the root on elsewhere, it could not be opened.
pub const PATH_BYTES_MAX: usize = 3 << 10;
pub const TOO_LONG: &str = "its path is too long";

/// What is met on a walk.
#[derive(Debug, Default)]
pub struct Walk {
    pub found: BTreeMap<RelPath, Found>,
    pub outer: Vec<Outer>,
    pub left_out: BTreeMap<RelPath, String>,
    /// Directories that hold something that is no part of the walk.
    pub crowded: BTreeSet<RelPath>,
}

impl Walk {
    /// Adds a directory whose mode is known, and nothing of what is in it.
    pub fn add_closed(&mut self, path: RelPath, met: Found, why: String) {
        self.crowded.insert(path.clone());
        self.left_out.insert(path.clone(), why);
        self.found.insert(path, met);
    }
}

/// A walk with the content of every file known.
#[derive(Debug, Default)]
pub struct Walked {
    pub tree: Tree,
    pub stats: HashMap<RelPath, Stat>,
    pub crowded: BTreeSet<RelPath>,
}

/// What a walk goes to.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkOptions<'a> {
    pub with_ignored: bool,
    /// Looked at as well, whatever the rules say.
    pub also: Option<&'a BTreeSet<RelPath>>,
    /// More than these are too many.
    pub files_max: usize,
    /// Rules of an earlier time: what they did not ignore is part of the walk, whatever the rules say now.
    pub earlier: Option<&'a Ignored>,
}

impl WalkOptions<'_> {
    /// Whether a path is left alone. `rules`: those that hold now.
    pub fn leaves(&self, rules: &Ignored, path: &[u8], is_dir: bool) -> bool {
        let is_ignored = match self.earlier {
            None => rules.has(path, is_dir),
            // A directory that one of the two ignores was gone into.
            Some(earlier) => rules.has_within(path, is_dir) && earlier.has_within(path, is_dir),
        };
        !self.with_ignored && is_ignored
    }
}

/// The files of a workspace.
pub trait Files: Send + Sync {
    /// All that is there and is not ignored.
    fn walk(&self, options: WalkOptions<'_>) -> io::Result<Walk>;

    /// A regular file, and what it is at this moment.
    fn open(&self, path: &[u8]) -> io::Result<(Box<dyn Read>, Stat)>;

    /// None: nothing is there.
    fn look(&self, path: &[u8]) -> io::Result<Option<Found>>;

    /// Writes a new file with this mode. Stretches of zeroes may become holes.
    fn write(&self, path: &[u8], mode: u32, content: &mut dyn Read) -> io::Result<()>;

    fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()>;

    /// Puts a file or link into the place of another, which is gone then.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;

    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()>;

    /// A directory must be empty.
    fn remove(&self, path: &[u8], is_dir: bool) -> io::Result<()>;

    /// Sets the mode of a directory; of the workspace itself, where the path is empty.
    fn set_mode(&self, dir: &[u8], mode: u32) -> io::Result<()>;

    /// Returns when all that was written is on disk.
    fn sync(&self) -> io::Result<()>;
}
