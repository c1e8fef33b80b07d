//! Writes the records of one shell to its log.

use std::sync::Arc;

use crate::error::ShellError;
use crate::log::{LogError, ShellLog, ShellRecord};
use crate::state::ShellState;

pub(crate) struct Recorder {
    shared: Arc<ShellState>,
    log: Arc<dyn ShellLog>,
    /// Why the last record that could not be written was not.
    error: Option<LogError>,
}

impl Recorder {
    pub fn new(shared: Arc<ShellState>, log: Arc<dyn ShellLog>) -> Recorder {
        Recorder { shared, log, error: None }
    }

    /// Records what must not happen without a record.
    pub fn record_first(&self, record: &ShellRecord) -> Result<(), ShellError> {
        let logged = self.log.record(self.shared.log, record);
        logged.map_err(|error| ShellError::Log { message: error.to_string() })
    }

    /// Records what has happened already. An error is kept for the caller of the command.
    pub fn record(&mut self, record: &ShellRecord) {
        if let Err(error) = self.log.record(self.shared.log, record) {
            tracing::warn!(shell = %self.shared.id, %error, "a shell's record was not written");
            self.error = Some(error);
        }
    }

    pub fn take_error(&mut self) -> Option<LogError> {
        self.error.take()
    }

    pub fn close(&self) {
        self.log.close(self.shared.log);
    }
}
