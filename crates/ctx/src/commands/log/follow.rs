//! Waiting for a log to grow. The watch is on the file itself, so it goes along when the session's directory is
//! renamed at its end; only the name to read by has to be looked up again.

use std::os::fd::OwnedFd;

use ctx_session::{Code, SessionId};
use ctx_views::read::{Reader, SessionRef};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// A file system that does not tell is asked this often.
const ASK_AGAIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

pub struct Follow {
    reader: Reader,
    root: Root,
    session: SessionRef,
    id: SessionId,
    watch: OwnedFd,
}

impl Follow {
    pub fn start(root: &Root, reader: Reader, session: SessionRef, id: SessionId) -> Result<Follow, Failure> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let watch = inotify::init(flags).map_err(|error| Failure::io("cannot watch files", error.into()))?;
        let mut follow = Follow { reader, root: root.clone(), session, id, watch };
        follow.watch_file()?;
        Ok(follow)
    }

    fn watch_file(&mut self) -> Result<(), Failure> {
        let path = self.root.path.join(self.session.path()).join("events.jsonl");
        let flags = inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::MOVE_SELF;
        match inotify::add_watch(&self.watch, &path, flags) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::NOENT) if self.moved()? => self.watch_file(),
            Err(error) => Err(Failure::io(path.display(), error.into())),
        }
    }

    /// Reads by the session's name, also when it has just got another one.
    pub fn read_with(
        &mut self,
        read: &mut dyn FnMut(&SessionRef) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match read(&self.session) {
            Err(Failure::Said { code: Code::Enoent, .. }) if self.moved()? => {
                self.watch_file()?;
                read(&self.session)
            }
            read => read,
        }
    }

    /// Looks for the directory that the session has now; whether it is another than before.
    fn moved(&mut self) -> Result<bool, Failure> {
        let found = self.reader.resolve(sessions::own_uid(), &self.id.to_string())?;
        Ok(std::mem::replace(&mut self.session, found.clone()) != found)
    }

    /// Until something happened to the log, or enough time has gone by to ask again, or nobody reads what is printed.
    pub fn wait(&mut self) -> Result<(), Failure> {
        let failed = |error: rustix::io::Errno| Failure::io("cannot wait for the log", error.into());
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&self.watch, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut watched, Some(&ASK_AGAIN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let [_, stdout] = &watched;
        if output::is_gone(stdout) {
            return Err(Failure::ReaderGone);
        }
        // What exactly happened does not matter; the events are only taken away.
        let mut bytes = [0u8; 4096];
        loop {
            match rustix::io::read(&self.watch, &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
