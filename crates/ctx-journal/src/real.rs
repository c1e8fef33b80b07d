//! The real disk: files beneath a root directory that is held open.
//!
//! Every path is resolved beneath that directory by the kernel (`openat2`), never through a symbolic link, so
//! that nobody who can write somewhere in the tree leads the daemon out of it. What it makes is the daemon's own, and is
//! read by those whom it is kept for (`access`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::access::{Foreign, Kind, foreign_stat, kept_for, let_read};
use crate::disk::{DirEntry, Disk, DiskFile, OpenMode, Replace};
use crate::path::Owner;
use crate::writer::lock;

/// How often the kernel is asked again when a rename elsewhere disturbed it.
const RESOLVE_TRIES: u32 = 32;
/// Whose this is, the daemon is.
const STATE: &str = ".state";

/// Files beneath one directory.
pub struct RealDisk {
    root: OwnedFd,
    /// The daemon whose root it is.
    daemon: u32,
    /// Directories that are the daemon's alone. Nobody else can change that.
    own_dirs: Mutex<HashSet<String>>,
}

impl RealDisk {
    /// Holds an existing directory as the root. The root itself may be reached through links.
    pub fn new(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        // A daemon may keep its root in a directory of root's.
        let stat = rustix::fs::statat(&root, STATE, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.or_else(|_| rustix::fs::fstat(&root))?;
        Ok(RealDisk { root, daemon: stat.st_uid, own_dirs: Mutex::default() })
    }

    /// The first directory on the way to a path, the root itself aside, that is not the daemon's alone.
    fn foreign_dir(&self, path: &str) -> io::Result<Option<(String, Foreign)>> {
        for (end, _) in path.match_indices('/') {
            let dir = path.get(..end).unwrap_or_default();
            if lock(&self.own_dirs).contains(dir) {
                continue;
            }
            // Who may only pass through a directory can look at it too.
            let opened = self.resolve(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            let stat = rustix::fs::fstat(opened)?;
            if let Some(why) = foreign_stat(&stat, self.daemon) {
                return Ok(Some((dir.to_owned(), why)));
            }
            // A log's own directory is one of many, and is asked for seldom.
            if path.get(end + 1..).is_some_and(|rest| rest.contains('/')) {
                lock(&self.own_dirs).insert(dir.to_owned());
            }
        }
        Ok(None)
    }

    fn resolve(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, beneath) {
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) if tries < RESOLVE_TRIES => tries += 1,
                other => return Ok(other?),
            }
        }
    }

    fn directory(&self, path: &str) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// The directory that a path's last part is in, and that part.
    fn parent<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.directory(dir)?, name))
    }

    fn create(&self, path: &str, extra: OFlags, owner: Owner) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | extra;
        let file = self.resolve(path, flags, Mode::RUSR | Mode::WUSR)?;
        let_read(&file, Kind::File, owner)?;
        Ok(file)
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let fd = match mode {
            OpenMode::Read => self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?,
            OpenMode::Write => self.resolve(path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty())?,
            OpenMode::Create(owner) => self.create(path, OFlags::empty(), owner)?,
            OpenMode::CreateNew(owner) => self.create(path, OFlags::EXCL, owner)?,
        };
        Ok(Box::new(RealFile { fd, locked: AtomicBool::new(false) }))
    }

    fn make_dir(&self, path: &str, owner: Owner) -> io::Result<bool> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => (),
            Err(Errno::EXIST) => {
                return match self.foreign_dir(&format!("{path}/"))? {
                    None => Ok(false),
                    Some((dir, why)) => Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        format!("{dir} is in the way: {why}; move it out of the root"),
                    )),
                };
            }
            Err(error) => return Err(error.into()),
        }
        let_read(self.directory(path)?, Kind::Dir, owner)?;
        Ok(true)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.directory(path)?)?)
    }

    fn rename(&self, from: &str, to: &str, replace: Replace) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.parent(from)?, self.parent(to)?);
        let flags = match replace {
            Replace::Yes => RenameFlags::empty(),
            Replace::No => RenameFlags::NOREPLACE,
        };
        Ok(rustix::fs::renameat_with(from_dir, from, to_dir, to, flags)?)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        let dir = self.directory(path)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems do not say.
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                }
                _ => false,
            };
            // Nothing of ours has a name that is not text.
            if let Some(name) = name.to_str().ok().filter(|name| !matches!(*name, "." | "..")) {
                entries.push(DirEntry { name: name.to_owned(), is_dir });
            }
        }
        Ok(entries)
    }

    fn foreign(&self, path: &str, file: &dyn DiskFile) -> io::Result<Option<(String, Foreign)>> {
        let Some(fd) = file.as_fd() else { return Ok(None) };
        let stat = rustix::fs::fstat(fd)?;
        if let Some(why) = foreign_stat(&stat, self.daemon) {
            return Ok(Some((path.to_owned(), why)));
        }
        self.foreign_dir(path)
    }
}

struct RealFile {
    fd: OwnedFd,
    /// Whether the lock was ever taken: most files are only read.
    locked: AtomicBool,
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a regular file"));
        }
        u64::try_from(stat.st_size).map_err(io::Error::other)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pread(&self.fd, &mut *buf, offset))?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pwrite(&self.fd, bytes, offset))?)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.fd, len))?)
    }

    fn sync(&self) -> io::Result<()> {
        // Not asked again when a signal came: a sync that says it failed has failed.
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn forget_cached(&self, offset: u64) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.fd, offset, None, Advice::DontNeed)?)
    }

    fn try_lock(&self) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {
                self.locked.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn unlock(&self) {
        if !self.locked.swap(false, Ordering::Relaxed) {
            return;
        }
        // Said outright and not left to the close: a child process between fork and exec holds a copy of
        // the descriptor, and the lock with it. A failure leaves the lock to the close.
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.fd)?.st_nlink > 0)
    }

    fn id(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_ino)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn owner(&self) -> io::Result<Owner> {
        kept_for(&self.fd)
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
