//! Records of a session's terminals. What a terminal shows is in its transcript, not in the log.

use serde::{Deserialize, Serialize};

use super::Caller;
use crate::ids::{RunId, TerminalId};
use crate::word_enum::word_enum;

/// A terminal is about to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalOpened {
    pub pty_id: TerminalId,
    /// The run whose agent opens it; none: the operator does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub command: Vec<String>,
    pub caged: bool,
    pub by: u32,
}

word_enum! {
    /// Why a terminal is closed.
    TerminalEnd {
        /// Its program ended.
        Exited = "exited",
        /// Somebody closed it.
        Closed = "closed",
        /// Its holder was killed, or the machine stopped.
        HolderLost = "holder_lost",
        /// It could not be started.
        NotStarted = "not_started",
        /// The run that had opened it failed or was cancelled.
        RunEnded = "run_ended",
        SubagentExited = "subagent_exited",
        SessionEnded = "session_ended",
        SessionFailed = "session_failed",
    }
}

/// A terminal is closed; its transcript stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalClosed {
    pub pty_id: TerminalId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<RunId>,
    pub reason: TerminalEnd,
    pub exit_code: Option<i32>,
    pub transcript_lines: u64,
}

/// A client has come back to a terminal that was open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalReattached {
    pub pty_id: TerminalId,
    pub user: u32,
    pub scrollback_lines: u64,
}
