//! Files beneath a root: every path is opened under an open directory, and no link is followed.
//!
//! A name planted in the way of a daemon that runs as root must not lead it elsewhere, so nothing here takes an
//! absolute path but the root itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_journal::Owner;
use ctx_journal::access::{Kind, let_read};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::ViewError;

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// What a small file is written to before it takes its place. One writer per directory, so one name is enough,
/// and what a crash leaves behind is used again by the next write.
const BESIDE: &str = ".new";
/// More than any of the files that are read whole: `meta.json`, `cwd`, index files.
const CONTENTS_BYTES_MAX: u64 = 16 << 20;
/// What is made is the daemon's alone, until someone is let read it.
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR: Mode = Mode::RWXU;
/// Room for the names of a session's directory.
const LISTING_BYTES: usize = 2048;

/// The root of the tree, held open.
#[derive(Debug, Clone)]
pub struct RootDir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

impl RootDir {
    pub fn open(path: &Path) -> Result<RootDir, ViewError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| ViewError::io(path, "open the root", error))?;
        Ok(RootDir { fd: Arc::new(fd), path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory beneath the root.
    pub(crate) fn dir(&self, relative: &Path) -> Result<Dir, ViewError> {
        let path = self.path.join(relative);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&*self.fd, relative, flags, Mode::empty(), BENEATH)
            .map_err(|error| ViewError::io(&path, "open the directory", error))?;
        Ok(Dir { fd, path })
    }

    /// The inode of a file beneath the root, mixed with the time of its last change, and its length.
    pub fn identity(&self, relative: &Path) -> Result<(u64, u64), ViewError> {
        let wrong = |error| ViewError::io(&self.path.join(relative), "look at the file", error);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&*self.fd, relative, flags, Mode::empty(), BENEATH).map_err(wrong)?;
        let stat = rustix::fs::fstat(&fd).map_err(wrong)?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let changed =
            number(stat.st_ctime).wrapping_mul(1_000_000_000).wrapping_add(stat.st_ctime_nsec as u64);
        // SQLite's integers are signed.
        Ok(((stat.st_ino.rotate_left(32) ^ changed) >> 1, number(stat.st_size)))
    }

    /// Opens a directory beneath the root that may not be there.
    pub(crate) fn dir_if_there(&self, relative: &Path) -> Result<Option<Dir>, ViewError> {
        found(self.dir(relative))
    }
}

/// A directory beneath the root, held open for the time of one operation.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open(&self, name: &str, flags: OFlags, mode: Mode, action: &'static str) -> Result<File, ViewError> {
        rustix::fs::openat2(&self.fd, name, flags | OFlags::CLOEXEC, mode, BENEATH)
            .map(File::from)
            .map_err(|error| ViewError::io(&self.path_of(name), action, error))
    }

    /// The file to read, if it is there.
    pub(crate) fn read(&self, name: &str) -> Result<Option<File>, ViewError> {
        // A pipe planted here must not hold the reader up.
        found(self.open(name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty(), "open the file"))
    }

    /// The same, and nothing for a link, which is in the way of a file of ours and is not followed.
    pub(crate) fn read_ours(&self, name: &str) -> Result<Option<File>, ViewError> {
        match self.read(name) {
            Err(error) if error.is_link() => Ok(None),
            read => read,
        }
    }

    /// The contents of a small file, if it is there.
    pub(crate) fn contents(&self, name: &str) -> Result<Option<Vec<u8>>, ViewError> {
        let Some(file) = self.read(name)? else { return Ok(None) };
        let failed = |error| ViewError::io(&self.path_of(name), "read the file", error);
        let mut bytes = Vec::new();
        file.take(CONTENTS_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > CONTENTS_BYTES_MAX {
            return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
        }
        Ok(Some(bytes))
    }

    /// Whether all these names are in the directory.
    pub(crate) fn has_all(&self, names: &[&str]) -> bool {
        let mut buffer = Vec::with_capacity(LISTING_BYTES);
        let mut entries = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        let mut missing = names.len();
        while let Some(Ok(entry)) = entries.next() {
            missing -= usize::from(names.iter().any(|name| name.as_bytes() == entry.file_name().to_bytes()));
        }
        missing == 0
    }

    pub(crate) fn is_there(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether a small file is there and holds this and no more.
    pub(crate) fn holds(&self, name: &str, bytes: &[u8]) -> bool {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let Ok(file) = self.open(name, flags, Mode::empty(), "open the file") else { return false };
        let mut found = vec![0; bytes.len() + 1];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut found));
        read.is_ok_and(|len| found.get(..len) == Some(bytes))
    }

    /// The file to read and append to; made when it is missing, and in the place of a link.
    pub(crate) fn append(&self, name: &str, owner: Owner) -> Result<File, ViewError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK;
        match self.open(name, flags, Mode::empty(), "open the file") {
            Ok(file) => return Ok(file),
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_link() => self.remove(name)?,
            Err(error) => return Err(error),
        }
        self.make(name, flags | OFlags::CREATE | OFlags::EXCL, owner)
    }

    fn make(&self, name: &str, flags: OFlags, owner: Owner) -> Result<File, ViewError> {
        let file = self.open(name, flags, FILE, "make the file")?;
        let_read(&file, Kind::File, owner)
            .map_err(|error| ViewError::io(&self.path_of(name), "let its user read the file", error))?;
        Ok(file)
    }

    /// Puts a small file in place of the one that is there, in one step.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8], owner: Owner) -> Result<(), ViewError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
        let mut beside = self.make(BESIDE, flags, owner)?;
        beside
            .write_all(bytes)
            .map_err(|error| ViewError::io(&self.path_of(name), "write the file", error))?;
        rustix::fs::renameat(&self.fd, BESIDE, &self.fd, name)
            .map_err(|error| ViewError::io(&self.path_of(name), "replace the file", error))
    }

    /// The same where it happens often: the old file stays beside as a spare, and is written to the next time. A
    /// rename over a file makes ext4 write the new one out at once, which takes a hundred times as long.
    pub(crate) fn swap(&self, name: &str, bytes: &[u8], owner: Owner) -> Result<(), ViewError> {
        let spare = spare_of(name);
        let wrong = |error: io::Error| ViewError::io(&self.path_of(name), "write the file", error);
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let make = || self.make(&spare, flags | OFlags::CREATE | OFlags::EXCL, owner);
        let file = match self.open(&spare, flags, Mode::empty(), "open the file") {
            Ok(file) => file,
            Err(error) if error.is_not_found() => make()?,
            // Someone put a link in the file's place, and the last swap has brought it here.
            Err(error) if error.is_link() => self.remove(&spare).and_then(|()| make())?,
            Err(error) => return Err(error),
        };
        file.write_all_at(bytes, 0).map_err(wrong)?;
        if file.metadata().map_err(wrong)?.len() != bytes.len() as u64 {
            file.set_len(bytes.len() as u64).map_err(wrong)?;
        }
        drop(file);
        match rustix::fs::renameat_with(&self.fd, &spare, &self.fd, name, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // There is nothing to swap with, or the file system cannot.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::renameat(&self.fd, &spare, &self.fd, name)
                    .map_err(|error| ViewError::io(&self.path_of(name), "replace the file", error))
            }
            Err(error) => Err(ViewError::io(&self.path_of(name), "replace the file", error)),
        }
    }

    /// Removes what [`Dir::swap`] left beside a file.
    pub(crate) fn remove_spare(&self, name: &str) -> Result<(), ViewError> {
        self.remove(&spare_of(name))
    }

    /// When a file, or this directory itself as `.`, last changed: seconds and nanoseconds.
    pub(crate) fn changed_at(&self, name: &str) -> Result<Option<(i64, u64)>, ViewError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((stat.st_mtime, stat.st_mtime_nsec))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(ViewError::io(&self.path_of(name), "look at the file", error)),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), ViewError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(ViewError::io(&self.path_of(name), "remove the file", error)),
        }
    }

    /// Opens a directory in this one; makes it when it is missing.
    pub(crate) fn make_dir(&self, name: &str, owner: Owner) -> Result<Dir, ViewError> {
        let path = self.path_of(name);
        let made = match rustix::fs::mkdirat(&self.fd, name, DIR) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(ViewError::io(&path, "make the directory", error)),
        };
        let dir = self.dir(name)?;
        if made {
            let_read(&dir.fd, Kind::Dir, owner)
                .map_err(|error| ViewError::io(&path, "let its user read the directory", error))?;
        }
        Ok(dir)
    }

    pub(crate) fn dir(&self, name: &str) -> Result<Dir, ViewError> {
        let path = self.path_of(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), BENEATH)
            .map_err(|error| ViewError::io(&path, "open the directory", error))?;
        Ok(Dir { fd, path })
    }

    /// The names in this directory that are text, with whether each is a directory.
    pub(crate) fn names(&self) -> Result<Vec<(String, bool)>, ViewError> {
        let wrong = |error| ViewError::io(&self.path, "list the directory", error);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                names.push((name.to_owned(), self.is_dir(name, entry.file_type())));
            }
        }
        Ok(names)
    }

    /// Some file systems do not say what an entry is.
    fn is_dir(&self, name: &str, told: FileType) -> bool {
        match told {
            FileType::Directory => true,
            FileType::Unknown => rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            _ => false,
        }
    }
}

fn spare_of(name: &str) -> String {
    format!(".{name}.new")
}

/// Nothing there is an answer, not an error.
fn found<T>(opened: Result<T, ViewError>) -> Result<Option<T>, ViewError> {
    match opened {
        Ok(it) => Ok(Some(it)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
