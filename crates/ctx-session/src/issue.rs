//! What a tool may ask of the issue that its session is bound to. The issue itself lives in its project's log.

use serde::{Deserialize, Serialize};

use crate::word_enum::word_enum;

/// A change of an issue's todos: small steps, so that two of them seldom meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum TodoOp {
    /// The whole list, where there is none yet.
    Init {
        items: Vec<String>,
    },
    Append {
        item: String,
    },
    /// At most one is in progress: the one before goes back to open.
    Start {
        item: String,
    },
    Done {
        item: String,
    },
    /// Dropped, not deleted.
    Drop {
        item: String,
    },
    Note {
        item: String,
        note: String,
    },
}

word_enum! {
    /// Where an issue stands.
    IssueStatus {
        Open = "open",
        InProgress = "in_progress",
        Resolved = "resolved",
        Closed = "closed",
    }
}

/// What a run asks of the issue its session is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueAct {
    Read,
    Move {
        to: IssueStatus,
    },
    Todo(TodoOp),
    /// Says whether an acceptance criterion is met: its text, or its number in the list.
    Criterion {
        item: String,
        met: bool,
    },
}

impl IssueAct {
    /// Whether the operator has to confirm it, whatever the policy allows: an agent asks for the end of its own work.
    pub fn needs_operator(&self) -> bool {
        matches!(self, IssueAct::Move { to: IssueStatus::Resolved | IssueStatus::Closed })
    }
}
