//! Signals as something to poll.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Those that tell a process to go.
pub const GO: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// Signals that are caught; as before when dropped.
pub struct Caught {
    pipe: UnixStream,
    ids: Vec<signal_hook::SigId>,
}

impl Caught {
    pub fn new(signals: &[i32]) -> io::Result<Caught> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut caught = Caught { pipe, ids: Vec::new() };
        for signal in signals {
            caught.ids.push(pipe::register(*signal, writer.try_clone()?)?);
        }
        Ok(caught)
    }

    /// Whether one has come since the last time.
    pub fn take(&mut self) -> bool {
        matches!(self.pipe.read(&mut [0; 64]), Ok(1..))
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}
