//! The real disk: files beneath a root directory that is held open.
//!
//! Every path is resolved beneath that directory by the kernel (`openat2`), never through a symbolic link, so
//! that nobody who can write somewhere in the tree leads the daemon out of it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{getegid, geteuid};

use crate::disk::{DirEntry, Disk, DiskFile, OpenMode, Replace};
use crate::path::Owner;

/// How often the kernel is asked again when a rename elsewhere disturbed it.
const RESOLVE_TRIES: u32 = 32;

/// Files beneath one directory.
pub struct RealDisk {
    root: OwnedFd,
}

impl RealDisk {
    /// Holds an existing directory as the root. The root itself may be reached through links.
    pub fn new(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(RealDisk { root: rustix::fs::open(root, flags, Mode::empty())? })
    }

    /// Who the daemon runs as: the owner of everything that is its own.
    pub fn own() -> Owner {
        Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() }
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
        if let Some(foreign) = foreign(owner) {
            set_owner(&file, foreign.uid, foreign.gid, Mode::RUSR | Mode::WUSR | Mode::RGRP)?;
        }
        Ok(file)
    }
}

/// The owner, when files must be handed over to them: only root can, and only to others.
fn foreign(owner: Owner) -> Option<Owner> {
    (geteuid().is_root() && owner.uid != 0).then_some(owner)
}

fn set_owner(fd: impl AsFd, uid: u32, gid: u32, mode: Mode) -> io::Result<()> {
    use rustix::fs::{Gid, Uid};
    rustix::fs::fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(rustix::fs::fchmod(&fd, mode)?)
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
            Err(Errno::EXIST) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if let Some(owner) = foreign(owner) {
            let group = Mode::RWXU | Mode::RGRP | Mode::XGRP;
            set_owner(self.directory(path)?, 0, owner.gid, group)?;
        }
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
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(Owner { uid: stat.st_uid, gid: stat.st_gid })
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
