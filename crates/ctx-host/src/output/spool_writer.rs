//! Puts one stream of a command into the shell's spool.

use std::io;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::state::ShellState;
use crate::transport::Stream;

pub(crate) struct SpoolWriter {
    stream: Stream,
    shared: Arc<ShellState>,
    /// Why not all of the output is on disk. The command goes on: its output is shown, but not all of it is kept.
    pub error: Option<io::Error>,
}

impl SpoolWriter {
    pub fn new(stream: Stream, shared: Arc<ShellState>) -> SpoolWriter {
        SpoolWriter { stream, shared, error: None }
    }

    /// The right to threads of one's own, if there are any left.
    pub fn try_thread(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.threads).try_acquire_owned().ok()
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.shared.spool().keep(self.stream, bytes) {
            self.error.get_or_insert(error);
        }
    }
}
