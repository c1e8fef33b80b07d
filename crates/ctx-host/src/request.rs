//! A command and its result, as callers see them.

use std::time::Duration;

use serde::Serialize;

use ctx_text::budget::{Budget, StreamReport};

/// What to run in a shell.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    pub command: String,
    /// What to show of the output; the shell's own budget where there is none.
    pub budget: Option<Budget>,
    /// The shell's own timeout where there is none.
    pub timeout: Option<Duration>,
    /// The command's stdin, byte for byte; end of file at once where there is none.
    pub stdin: Option<Vec<u8>>,
    /// Both streams into stdout, in the order of arrival.
    pub merge: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecResult {
    /// The number of the command in its shell, for `session_output`.
    pub call: u64,
    /// The command, redacted; of a long one the beginning.
    pub command: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub duration_ms: u64,
    /// Where the shell is now.
    pub cwd: String,
    /// Whether something was printed that the texts do not show.
    pub truncated: bool,
    pub timed_out: bool,
    /// Whether the command ended the shell, and a new one took its place.
    pub shell_restarted: bool,
    /// What background jobs printed since the last command.
    pub late_output: String,
    /// What became of the streams, where a budget was asked for or something was cut.
    pub budget: Option<BudgetReport>,
    /// Bytes that were printed, also those that are not shown.
    #[serde(skip)]
    pub bytes: u64,
    /// What the caller may want to do next.
    pub hint: Option<String>,
}

/// A report per stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetReport {
    pub stdout: StreamReport,
    pub stderr: StreamReport,
}

/// How far a running command is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Whether it has begun; until then it waits for its turn.
    pub has_begun: bool,
}

/// A command that runs, as others are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningCommand {
    pub call: u64,
    /// The beginning of the command, redacted.
    pub command: String,
    pub secs: u64,
}

/// The exit code of a command that ran out of time, as `timeout` gives it.
pub const EXIT_TIMED_OUT: i32 = 124;
/// The exit code of a command that a limit of its cage has ended: 128 and KILL.
pub const EXIT_KILLED: i32 = 137;
/// The exit code of a command that was interrupted: 128 and INT.
pub const EXIT_INTERRUPTED: i32 = 130;
