//! Settings of a project file that the rules and the loop read.

use serde::{Deserialize, Serialize};

use crate::word_enum::word_enum;

/// When a conversation is made shorter, down to what, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// The share of the model's window above which it begins.
    pub upper: f64,
    /// The share it goes down to; less than `upper`.
    pub lower: f64,
    pub strategy: Strategy,
    /// With the strategy `delegate` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegate>,
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction { upper: 0.85, lower: 0.60, strategy: Strategy::Summarize, delegate: None }
    }
}

word_enum! {
    /// How a conversation is made shorter.
    Strategy {
        /// The oldest whole exchanges go.
        Drop = "drop",
        /// The model sums them up.
        Summarize = "summarize",
        /// A command or a subagent does.
        Delegate = "delegate",
        /// It is proposed, and the session pauses for the operator.
        Checkpoint = "checkpoint",
    }
}

/// Who makes a conversation shorter for the strategy `delegate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delegate {
    /// A subagent of the project, by name.
    Subagent(String),
    /// A program and its arguments.
    Command(Vec<String>),
}
