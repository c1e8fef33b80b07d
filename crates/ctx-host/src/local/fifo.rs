//! Pipes between us and an interpreter that it can open by name.
//!
//! It does so for every command, so that a script may do with its descriptors what it likes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use tokio::net::unix::pipe::{Receiver, Sender};

use super::random::random_bits;
use super::scratch::ScratchDir;

/// A larger pipe means fewer turns between a busy program and its reader. Not fatal where refused.
const PIPE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct NamedPipe {
    /// Goes with the pipe.
    file: PathBuf,
    ends: Option<PipeEnds>,
    /// A writing end that never waits.
    marks: Option<OwnedFd>,
}

/// Both ends of a pipe.
#[derive(Debug)]
pub(crate) struct PipeEnds {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

impl NamedPipe {
    pub fn open(scratch: &ScratchDir, user: Option<(u32, u32)>) -> std::io::Result<NamedPipe> {
        scratch.make()?;
        let path = scratch.path.join(format!("{:016x}", random_bits() as u64));
        if path.to_str().is_none() {
            return Err(std::io::Error::other("its name is not UTF-8, and a frame is"));
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR)?;
        let mut pipe = NamedPipe { file: path.clone(), ends: None, marks: None };
        // Without waiting, so that the first end needs no other; what a program gets must wait.
        let first = open(&path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let write = open(&path, OFlags::WRONLY)?;
        let read = open(&path, OFlags::RDONLY)?;
        drop(first);
        if let Some((uid, _)) = user {
            rustix::fs::fchown(&write, Some(rustix::fs::Uid::from_raw(uid)), None)?;
        }
        pipe.ends = Some(PipeEnds { read, write });
        Ok(pipe)
    }

    /// The name that leads to either end.
    pub fn name(&self) -> &Path {
        &self.file
    }

    /// Hands both ends over; from then on the pipe is as open as its new owners keep it.
    pub fn let_go(&mut self) -> std::io::Result<PipeEnds> {
        self.marks = None;
        self.ends.take().ok_or_else(gone)
    }

    fn ends(&self) -> std::io::Result<&PipeEnds> {
        self.ends.as_ref().ok_or_else(gone)
    }

    /// Whether the name still leads to the ends that are held.
    pub fn is_there(&self) -> bool {
        let Some(ends) = &self.ends else { return false };
        let (Ok(named), Ok(held)) = (rustix::fs::stat(&self.file), rustix::fs::fstat(&ends.write)) else {
            return false;
        };
        (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
    }

    /// The same pipe, ready for marks.
    pub fn with_marks(mut self) -> std::io::Result<NamedPipe> {
        self.marks = Some(reopen(&self.ends()?.write, OFlags::WRONLY)?);
        Ok(self)
    }

    /// Writes a mark, all of it or nothing. Not where there is no room for it, or the pipe is not ready for marks.
    pub fn put(&self, mark: &[u8]) -> bool {
        self.marks
            .as_ref()
            .is_some_and(|end| rustix::io::write(end, mark).is_ok_and(|count| count == mark.len()))
    }

    pub fn widen(&self) {
        let widened = self.ends.as_ref().map(|ends| fcntl_setpipe_size(&ends.write, PIPE_BYTES));
        if !matches!(widened, Some(Ok(_))) {
            tracing::debug!("the pipe keeps its usual size");
        }
    }

    /// Whether nothing in it waits to be read.
    pub fn is_empty(&self) -> bool {
        self.ends.as_ref().is_some_and(|ends| ioctl_fionread(&ends.read).is_ok_and(|bytes| bytes == 0))
    }

    /// Whether something in it was not read by those whom it was handed to.
    pub fn left_unread(&self) -> bool {
        open(&self.file, OFlags::RDONLY | OFlags::NONBLOCK)
            .and_then(ioctl_fionread)
            .is_ok_and(|bytes| bytes > 0)
    }

    /// The end that a child prints into.
    pub fn for_child(&self) -> std::io::Result<Stdio> {
        Ok(Stdio::from(self.ends()?.write.try_clone()?))
    }

    pub fn reader(&self) -> std::io::Result<Receiver> {
        Receiver::from_owned_fd(reopen(&self.ends()?.read, OFlags::RDONLY)?)
    }

    pub fn writer(&self) -> std::io::Result<Sender> {
        sender(&self.ends()?.write)
    }
}

impl Drop for NamedPipe {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.file) {
            tracing::debug!(%error, "a shell's pipe was gone already");
        }
    }
}

/// A writing end with an open file of its own.
pub(crate) fn sender(write: &OwnedFd) -> std::io::Result<Sender> {
    Sender::from_owned_fd(reopen(write, OFlags::WRONLY)?)
}

/// What `/proc` calls one of our descriptors.
pub(crate) fn path_of(end: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", end.as_fd().as_raw_fd()))
}

/// Opens a pipe's end once more. A duplicate would share its flags with the programs at the other end,
/// and a stdout that does not block breaks them.
fn reopen(end: &OwnedFd, access: OFlags) -> rustix::io::Result<OwnedFd> {
    open(&path_of(end), access | OFlags::NONBLOCK)
}

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

fn gone() -> std::io::Error {
    std::io::Error::other("the pipe was handed over")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tokio::io::AsyncReadExt;

    async fn carries(pipe: &NamedPipe) {
        let mut reader = pipe.reader().unwrap();
        let mut named = std::fs::OpenOptions::new().write(true).open(pipe.name()).unwrap();
        assert!(pipe.is_there() && pipe.is_empty());
        named.write_all(b"hello").unwrap();
        assert!(!pipe.is_empty());
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
        assert!(pipe.is_empty());
    }

    #[tokio::test]
    async fn a_pipe_is_found_by_its_name_and_its_file_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir { path: dir.path().join("scratch"), reader: None, inside: None };
        let (pipe, other) =
            (NamedPipe::open(&scratch, None).unwrap(), NamedPipe::open(&scratch, None).unwrap());
        carries(&pipe).await;
        std::fs::remove_file(other.name()).unwrap();
        assert!(!other.is_there());
        drop((pipe, other));
        assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_pipe_that_was_let_go_ends_when_its_writer_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir { path: dir.path().join("scratch"), reader: None, inside: None };
        let mut pipe = NamedPipe::open(&scratch, None).unwrap();
        let PipeEnds { read, write } = pipe.let_go().unwrap();
        let mut named = std::fs::File::open(pipe.name()).unwrap();
        drop((read, write));
        assert_eq!(std::io::Read::read(&mut named, &mut [0; 1]).unwrap(), 0);
    }
}
