//! Waiting for a log to grow. The watch is on the file itself, so it goes along when the directory of a session that is
//! over is renamed for a new one of its name; only the name to read by has to be looked up again.

use std::time::Duration;

use ctx_session::{Code, SessionId};
use ctx_views::read::{Reader, SessionRef};

use crate::failure::Failure;
use crate::notices::Notices;
use crate::root::Root;
use crate::sessions;

/// A file system that does not tell is asked this often.
const ASK_AGAIN: Duration = Duration::from_secs(2);

pub struct Follow {
    reader: Reader,
    root: Root,
    session: SessionRef,
    id: SessionId,
    notices: Notices,
}

impl Follow {
    pub fn start(root: &Root, reader: Reader, session: SessionRef, id: SessionId) -> Result<Follow, Failure> {
        let mut follow = Follow { reader, root: root.clone(), session, id, notices: Notices::new()? };
        follow.watch_file()?;
        Ok(follow)
    }

    fn watch_file(&mut self) -> Result<(), Failure> {
        let path = self.root.path.join(self.session.path()).join("events.jsonl");
        match self.notices.of_file(&path) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::NOENT) if self.moved()? => self.watch_file(),
            Err(error) => Err(Failure::io(path.display(), error.into())),
        }
    }

    /// Reads by the session's name, also when it has just got another one.
    pub fn read_with(
        &mut self,
        read: &mut dyn FnMut(&SessionRef) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // Another session may have the name by now.
        let is_here = self.reader.meta(&self.session).is_ok_and(|meta| meta.id == self.id);
        if !is_here && self.moved()? {
            self.watch_file()?;
        }
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
        self.notices.wait(ASK_AGAIN)
    }
}
