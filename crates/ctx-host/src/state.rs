//! The state of a shell that callers and the driver share: its directory, its commands, its secrets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_session::Ulid;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::ShellError;
use super::local::caged::CageSlot;
use super::output::spool::Spool;
use super::request::RunningCommand;
use ctx_text::redact::{Secrets, redact_text};

/// Characters of a command that stand for it where others are told of it.
const BRIEF_CHARS: usize = 120;

/// A shell, for whoever uses it.
pub(super) struct ShellState {
    pub id: String,
    pub log: Ulid,
    pub transport: &'static str,
    pub spool: Mutex<Spool>,
    pub status: Mutex<Status>,
    pub interrupt: Notify,
    /// Where its processes are, if they are in a cage.
    pub cage: Option<Arc<CageSlot>>,
    pub closing: CancellationToken,
    /// The server's threads for much output.
    pub threads: Arc<Semaphore>,
    /// Whether no command may begin.
    pub hold: watch::Receiver<bool>,
}

#[derive(Clone)]
pub(super) struct Status {
    /// Where the shell is; it may hold a secret, so it is shown by [`ShellState::shown_cwd`].
    pub cwd: String,
    /// What must not be shown of this shell.
    pub secrets: Arc<Secrets>,
    pub used: Instant,
    pub commands: u64,
    pub running: Option<Running>,
    pub waiting: usize,
}

/// The command that runs.
#[derive(Clone)]
pub(super) struct Running {
    pub call: u64,
    /// As it is shown.
    pub command: String,
    pub since: Instant,
}

impl Running {
    pub fn shown(&self) -> RunningCommand {
        let secs = self.since.elapsed().as_secs();
        RunningCommand { call: self.call, command: brief(&self.command), secs }
    }
}

/// The beginning of a command's first line.
fn brief(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(BRIEF_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < command.trim().len() => format!("{line} …"),
        None => line.to_owned(),
    }
}

impl ShellState {
    /// The command that runs.
    pub fn running(&self) -> Option<RunningCommand> {
        self.status().running.as_ref().map(Running::shown)
    }

    /// Ready when a command may begin.
    pub async fn may_begin(&self) {
        // Without the host there is nobody to hold anything.
        drop(self.hold.clone().wait_for(|hold| !hold).await);
    }

    /// The error of a shell that was closed under somebody's hands.
    pub fn closed(&self, why: &dyn std::fmt::Display) -> ShellError {
        ShellError::Closed { id: self.id.clone(), why: why.to_string() }
    }

    pub fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.status().secrets)
    }

    /// Text of this shell as it may leave us or be stored.
    pub fn shown(&self, text: &str) -> String {
        redact_text(&self.secrets(), text)
    }

    pub fn shown_cwd(&self) -> String {
        let cwd = self.status().cwd.clone();
        self.shown(&cwd)
    }

    pub fn spool(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command's place among those that wait for a shell. It is left once: when the command begins, or when its caller
/// does not wait any more.
pub(super) struct Seat {
    shared: Arc<ShellState>,
    is_left: AtomicBool,
}

impl Seat {
    /// How many wait, where there is no place.
    pub fn take(shared: &Arc<ShellState>, waiting_max: usize) -> Result<Seat, usize> {
        let mut status = shared.status();
        if status.waiting >= waiting_max {
            return Err(status.waiting);
        }
        status.waiting += 1;
        Ok(Seat { shared: Arc::clone(shared), is_left: AtomicBool::new(false) })
    }

    pub fn leave(&self) {
        if !self.is_left.swap(true, Ordering::Relaxed) {
            self.shared.status().waiting -= 1;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}
