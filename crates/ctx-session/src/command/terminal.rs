//! What happens to terminals of sessions, as commands.

use crate::ids::{RunId, SubagentId, TerminalId};
use crate::record::TerminalEnd;

/// What happens to a terminal of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalAct {
    /// It is about to be opened; it is started when this is in the log.
    Open {
        terminal: TerminalId,
        /// The run whose agent opens it, and the subagent of it; none: the operator does.
        run: Option<RunId>,
        caller: Option<SubagentId>,
        name: Option<String>,
        command: Vec<String>,
        caged: bool,
        by: u32,
    },
    /// It has ended.
    Closed { terminal: TerminalId, reason: TerminalEnd, exit_code: Option<i32>, lines: u64 },
    /// A client has come back to it.
    Reattached { terminal: TerminalId, user: u32, scrollback_lines: u64 },
}
