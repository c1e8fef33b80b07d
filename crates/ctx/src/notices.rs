//! Waiting for files to change, without asking for it over and over. What exactly has changed is not told.

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

    /// Wants to know of a file that grows, and of its going.
    pub fn of_file(&self, path: &Path) -> rustix::io::Result<()> {
        let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&self.fd, path, flags).map(drop)
    }

    /// Wants to know what comes into a directory, and which files in it grow or lose their writer.
    pub fn of_dir(&self, path: &Path) -> rustix::io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.fd, path, flags).map(drop)
    }

    /// Until something has changed, or so much time has gone by, or nobody reads what is printed.
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
        // The events are only taken away.
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
