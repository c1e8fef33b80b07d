//! What the journal needs of a file system, and nothing more.
//!
//! Paths are relative to a root, their parts joined by `/`; the empty path is the root itself. Errors are
//! those of the operating system: the journal tells a full disk from other failures by their number.

use std::io;
use std::os::fd::BorrowedFd;

use crate::access::Foreign;
use crate::path::Owner;

/// How much is copied at once by hand.
const COPY_BYTES: usize = 1 << 20;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made when it is missing.
    Create(Owner),
    /// To read and write; must not exist.
    CreateNew(Owner),
}

/// Whether a rename may take the place of what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    Yes,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// A tree of files beneath a root.
pub trait Disk: Send + Sync + 'static {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Makes one directory; `false` when it was there.
    fn make_dir(&self, path: &str, owner: Owner) -> io::Result<bool>;

    /// Makes the directory's entries durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    fn rename(&self, from: &str, to: &str, replace: Replace) -> io::Result<()>;

    fn remove_file(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>>;

    /// Whether an open file, or a directory on the way to it, is not the daemon's alone: then which, and why. A disk
    /// that nobody else writes has none.
    fn foreign(&self, path: &str, file: &dyn DiskFile) -> io::Result<Option<(String, Foreign)>> {
        let _ = (path, file);
        Ok(None)
    }
}

/// An open file. It stays the same file when its path is renamed. Dropping it gives its lock back.
pub trait DiskFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads some bytes at an offset; 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes bytes at an offset in one call; fewer than asked for means there was no room.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes contents and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    /// Asks that bytes from `offset` on be read from the device again and not from memory, so that what is
    /// read after a sync that failed is what is really there. Advice: a disk may not be able to.
    fn forget_cached(&self, offset: u64) -> io::Result<()>;

    /// Takes the file's one lock; `false` when someone else has it.
    fn try_lock(&self) -> io::Result<bool>;

    /// Gives the lock back before the file is dropped.
    fn unlock(&self);

    /// Whether a path still leads to the file; one that was removed or replaced would be written for nobody.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// What tells this file from any other that a path may lead to.
    fn id(&self) -> io::Result<u64>;

    /// The file as the kernel knows it, where there is one: it can copy between files by itself.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whom the file is kept for, so that what is made beside it can be kept for the same.
    fn owner(&self) -> io::Result<Owner>;
}

/// Reads until the buffer is full or the file ends; how much was read.
pub(crate) fn read_full(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Reads a whole file that may have at most `max` bytes. The length that a file claims is not trusted with an
/// allocation: a hole of terabytes costs its maker nothing.
pub(crate) fn read_whole(file: &dyn DiskFile, max: u64) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    if len > max {
        return Err(too_large(len, max));
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(io::Error::other)?;
    bytes.resize(len, 0);
    let got = read_full(file, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// A file that is larger than anything ctx writes: damage, or someone else's doing.
pub(crate) fn too_large(bytes: u64, max: u64) -> io::Error {
    let message = format!("it has {bytes} bytes, and ctx writes at most {max}");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

/// Writes all bytes or fails; a short write is a full disk.
pub(crate) fn write_full(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    if file.write_at(bytes, offset)? == bytes.len() { Ok(()) } else { Err(no_space()) }
}

/// What the kernel copies at once.
const KERNEL_COPY_BYTES: usize = 2 << 20;

/// Copies bytes from one file into another. The kernel does it where it can, without a copy at all on file
/// systems that share blocks until one of the files is written to.
pub(crate) fn copy_range(
    from: &dyn DiskFile,
    offset: u64,
    len: u64,
    to: &dyn DiskFile,
    at: u64,
) -> io::Result<()> {
    let mut done = match (from.as_fd(), to.as_fd()) {
        (Some(from), Some(to)) => copy_by_kernel(from, offset, len, to, at)?,
        _ => 0,
    };
    let mut chunk = vec![0; COPY_BYTES.min(usize::try_from(len - done).unwrap_or(COPY_BYTES))];
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(usize::MAX).min(chunk.len());
        let room = chunk.get_mut(..want).unwrap_or_default();
        if read_full(from, room, offset + done)? < want {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_full(to, room, at + done)?;
        done += want as u64;
    }
    Ok(())
}

/// Has the kernel write a part of a file out while more is copied, so that the sync that follows finds little left to
/// do. Only a matter of time: where it does not, that sync does it all.
fn begin_writing(file: BorrowedFd<'_>, offset: u64, len: u64) {
    let _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
}

/// How much the kernel has copied; less than asked for where it cannot between these two files.
fn copy_by_kernel(
    from: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    to: BorrowedFd<'_>,
    at: u64,
) -> io::Result<u64> {
    use rustix::io::Errno;
    let (mut read, mut written) = (offset, at);
    while read - offset < len {
        let want = usize::try_from(len - (read - offset)).unwrap_or(usize::MAX).min(KERNEL_COPY_BYTES);
        let start = written;
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), want) {
            Ok(0) => break,
            Ok(count) if count == KERNEL_COPY_BYTES => begin_writing(to, start, count as u64),
            Ok(_) | Err(Errno::INTR) => (),
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read - offset)
}

pub(crate) fn no_space() -> io::Error {
    io::Error::from(rustix::io::Errno::NOSPC)
}

/// Whether an error says that there is no room: the disk's, or the user's share of it.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(rustix::io::Errno::NOSPC.raw_os_error())
        || number == Some(rustix::io::Errno::DQUOT.raw_os_error())
}
