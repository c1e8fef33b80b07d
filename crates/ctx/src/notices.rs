//! Waits for changes of files with inotify. It does not report what has changed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::output;

pub struct Notices {
    fd: OwnedFd,
}

impl Notices {
    pub fn new() -> Result<Notices, Failure> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags).map_err(|error| Failure::io("cannot watch files", error.into()))?;
        Ok(Notices { fd })
    }

    /// Watches a file for growth, removal and renames.
    pub fn of_file(&self, path: &Path) -> rustix::io::Result<()> {
        let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&self.fd, path, flags).map(drop)
    }

    /// Watches a directory for new files, and for files in it that grow or are closed.
    pub fn of_dir(&self, path: &Path) -> rustix::io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.fd, path, flags).map(drop)
    }

    /// Waits for a change, for at most this long. Fails if the reader of stdout has closed the pipe.
    pub fn wait(&self, at_most: Duration) -> Result<(), Failure> {
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
        poll_all(&mut watched, at_most)?;
        let [_, stdout] = &watched;
        if output::is_gone(stdout) {
            return Err(Failure::ReaderGone);
        }
        self.drain().map(drop)
    }

    /// Waits for a change or for a key, for at most this long. Says whether a file has changed; None when the
    /// terminal is gone.
    pub fn wait_for_keys(&self, at_most: Duration) -> Result<Option<bool>, Failure> {
        let stdin = std::io::stdin();
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        poll_all(&mut watched, at_most)?;
        // The terminal is gone, and there may be no signal that says so.
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if watched.last().is_some_and(|stdin| stdin.revents().intersects(gone)) {
            return Ok(None);
        }
        self.drain().map(Some)
    }

    /// Takes the events, whose content is not needed. Says whether there were any.
    fn drain(&self) -> Result<bool, Failure> {
        let (mut bytes, mut any) = ([0u8; 4096], false);
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(any),
                Ok(_) => any = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::io("cannot wait for files", error.into())),
            }
        }
    }
}

/// A signal ends the wait too.
fn poll_all(watched: &mut [PollFd<'_>], at_most: Duration) -> Result<(), Failure> {
    match poll(watched, Timespec::try_from(at_most).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::io("cannot wait for files", error.into())),
    }
}
