//! The records of a shell's log, and the port through which they are written.
//!
//! Every text in a record is redacted before it gets here. Who keeps the records, and how, is not this
//! crate's business: the program wires the port to the journal.

use ctx_session::Ulid;
use serde::{Deserialize, Serialize};

/// One record of a shell's log; the envelope around it is the journal's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum ShellRecord {
    #[serde(rename = "shell_created")]
    Created { shell: String, transport: String, cwd: String, app: String },
    #[serde(rename = "shell_exec_started")]
    ExecStarted { call: u64, command: String, cwd: String },
    #[serde(rename = "shell_exec_finished")]
    ExecFinished {
        call: u64,
        exit_code: i32,
        duration_ms: u64,
        cwd: String,
        /// The beginning and the end of what was printed.
        stdout: String,
        stderr: String,
        stdout_bytes: u64,
        stderr_bytes: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shell_restarted: bool,
    },
    /// A command that was cut off by the end of its shell: how it would have ended is not known.
    #[serde(rename = "shell_exec_cut")]
    ExecCut {
        call: u64,
        duration_ms: u64,
        /// The beginning and the end of what was printed until then.
        stdout: String,
        stderr: String,
        stdout_bytes: u64,
        stderr_bytes: u64,
    },
    /// The fence, or a rule of the shell, kept a command from running.
    #[serde(rename = "shell_exec_refused")]
    ExecRefused { command: String, reason: String },
    #[serde(rename = "shell_interrupted")]
    Interrupted { call: u64, reason: StopReason },
    #[serde(rename = "shell_restarted")]
    Restarted { exit_code: i32, cwd: String },
    #[serde(rename = "shell_late_output")]
    LateOutput { text: String },
    /// The files of the workspace were saved.
    #[serde(rename = "shell_checkpointed")]
    Checkpointed {
        checkpoint: Ulid,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        files: u64,
    },
    /// The files of the workspace are as they were at a checkpoint.
    #[serde(rename = "shell_restored")]
    Restored {
        checkpoint: Ulid,
        /// The snapshot that brings back what was there before.
        undo: Ulid,
        /// How many files were changed by it.
        files: u64,
    },
    #[serde(rename = "shell_destroyed")]
    Destroyed { commands: u64 },
    #[serde(rename = "shell_reaped")]
    Reaped { idle_secs: u64, commands: u64 },
    /// The shell could not go on.
    #[serde(rename = "shell_lost")]
    Lost { reason: String, commands: u64 },
}

/// Why a command was stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    TimedOut,
    /// Through `session_interrupt`.
    Interrupted,
    /// The request was cancelled by its caller.
    Cancelled,
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LogError {
    pub message: String,
}

/// Keeps the records of shells. Calls return when the record is written, not when it is synced.
pub trait ShellLog: Send + Sync {
    /// Appends a record to a shell's log; the first one makes the log.
    fn record(&self, log: Ulid, record: &ShellRecord) -> Result<(), LogError>;

    /// No more records will come for this log.
    fn close(&self, log: Ulid);
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLog;

impl ShellLog for NoLog {
    fn record(&self, _log: Ulid, _record: &ShellRecord) -> Result<(), LogError> {
        Ok(())
    }

    fn close(&self, _log: Ulid) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_their_type_and_leave_out_what_did_not_happen() {
        let record = ShellRecord::ExecFinished {
            call: 3,
            exit_code: 1,
            duration_ms: 12,
            cwd: "/srv".to_owned(),
            stdout: String::new(),
            stderr: "oops\n".to_owned(),
            stdout_bytes: 0,
            stderr_bytes: 5,
            truncated: false,
            timed_out: false,
            shell_restarted: false,
        };
        let json = serde_json::to_string(&record).unwrap();
        expect_test::expect![[r#"{"type":"shell_exec_finished","call":3,"exit_code":1,"duration_ms":12,"cwd":"/srv","stdout":"","stderr":"oops\n","stdout_bytes":0,"stderr_bytes":5}"#]]
        .assert_eq(&json);
        assert_eq!(serde_json::from_str::<ShellRecord>(&json).unwrap(), record);
        let stopped = ShellRecord::Interrupted { call: 1, reason: StopReason::TimedOut };
        assert_eq!(
            serde_json::to_string(&stopped).unwrap(),
            r#"{"type":"shell_interrupted","call":1,"reason":"timed_out"}"#
        );
    }
}
