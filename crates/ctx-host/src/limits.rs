//! The numbers that bound shells. The operator sets them; no tool argument can.

use std::time::Duration;

/// Limits of one server's shells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellLimits {
    /// Shells at once.
    pub shells_max: usize,
    /// A shell that has had no command for this long is closed.
    pub idle_max: Duration,
    /// The time a command gets where nothing else was asked for.
    pub timeout_default: Duration,
    /// The longest time that can be asked for.
    pub timeout_max: Duration,
    /// Commands that may wait for their turn in one shell.
    pub waiting_max: usize,
    pub command_bytes_max: usize,
    pub stdin_bytes_max: usize,
    /// Output that is kept on disk for each shell.
    pub output_bytes_max: u64,
}

impl Default for ShellLimits {
    fn default() -> Self {
        ShellLimits {
            shells_max: 64,
            idle_max: Duration::from_secs(30 * 60),
            timeout_default: Duration::from_secs(120),
            timeout_max: Duration::from_secs(6 * 60 * 60),
            waiting_max: 64,
            command_bytes_max: 1 << 20,
            stdin_bytes_max: 16 << 20,
            output_bytes_max: 1 << 30,
        }
    }
}
