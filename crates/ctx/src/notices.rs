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
        let failed = |error: Errno| Failure::io("cannot wait for files", error.into());
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut watched, Timespec::try_from(at_most).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let [_, stdout] = &watched;
        if output::is_gone(stdout) {
            return Err(Failure::ReaderGone);
        }
        // The events are drained; their content is not needed.
        let mut bytes = [0u8; 4096];
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
