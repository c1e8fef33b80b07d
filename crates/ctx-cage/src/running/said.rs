//! What `bwrap` says through its pipes. It is a process of the cage's owner, so it may say anything, or nothing.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::CageError;

/// How much is kept of what `bwrap` says.
const SAID_BYTES_MAX: usize = 4096;
/// How long `bwrap` may take to make the cage.
const START_MAX: Duration = Duration::from_secs(20);

pub(super) fn not_started(detail: &str) -> CageError {
    CageError::NotStarted { detail: detail.to_owned() }
}

/// The first line of a pipe; None: it takes too long, or is too long.
pub(super) fn first_line(pipe: &mut File) -> Option<Vec<u8>> {
    let until = Instant::now() + START_MAX;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut ready = [PollFd::new(&*pipe, PollFlags::IN)];
        match poll(&mut ready, Timespec::try_from(left).ok().as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        let mut buffer = [0; 256];
        let count = pipe.read(&mut buffer).ok()?;
        said.extend_from_slice(buffer.get(..count)?);
        if count == 0 || said.contains(&b'\n') {
            return Some(said);
        }
        if said.len() > SAID_BYTES_MAX {
            return None;
        }
    }
}

/// What there is in a pipe by now. Its other end may be open for ever.
pub(super) fn there_is(pipe: &mut (impl Read + AsFd)) -> String {
    let mut said = Vec::new();
    if rustix::io::ioctl_fionbio(&*pipe, true).is_ok() {
        let _ = pipe.take(SAID_BYTES_MAX as u64).read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// The error with what `bwrap` has said of it, where its stderr is ours.
pub(super) fn with_complaint(error: CageError, stderr: Option<ChildStderr>) -> CageError {
    let (CageError::NotStarted { .. }, Some(mut stderr)) = (&error, stderr) else { return error };
    let said = there_is(&mut stderr);
    match said.trim() {
        "" => error,
        said => CageError::NotStarted { detail: format!(": {said}") },
    }
}
