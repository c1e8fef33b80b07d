//! Records of a run: what began it, under what it works, what is said and done in it, and how it ends.
//!
//! What the operator does to a run is in `control`; the state of the session in the parent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RunKind, Strategy};
use crate::code::Code;
use crate::ids::{CallId, MessageId, RunId};
use crate::word_enum::word_enum;

/// Under what a run works: written when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub turn_id: RunId,
    pub model: String,
    pub cwd: String,
    #[serde(default)]
    pub policy: Vec<String>,
    #[serde(default)]
    pub cage: Option<String>,
    #[serde(default)]
    pub sources: Vec<Source>,
    #[serde(default)]
    pub prompts: Vec<PromptRef>,
}

/// An instruction file that went into a run's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub kind: String,
    pub path: String,
    pub hash: String,
    pub truncated: bool,
}

/// A prompt in effect, by the hash of its text; the text itself is a blob of that hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRef {
    pub target: String,
    pub hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub turn_id: RunId,
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCreated {
    pub turn_id: RunId,
    #[serde(default, skip_serializing_if = "RunKind::is_message")]
    pub kind: RunKind,
    /// The run whose work a continuation goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    /// With `kind: compaction` alone: the strategy that was asked for; none: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantStarted {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub model: String,
    pub step: u32,
}

/// Tokens that a model call cost, as its provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

impl Usage {
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// Why an assistant message ended where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    ToolCalls,
    Length,
    Cancelled,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantFinished {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
    pub finish_reason: FinishReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningFinished {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub turn_id: RunId,
    pub call_id: CallId,
    /// The provider's own id, which may repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_call_id: Option<String>,
    pub name: String,
    pub input: Value,
}

word_enum! {
    /// How a tool call was settled.
    ToolStatus {
        Ok = "ok",
        Error = "error",
        /// The run ended, or the daemon did, before the tool was done.
        Interrupted = "interrupted",
    }
}

/// Output that was too large for the log: stored once beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub sha256: String,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFinished {
    pub turn_id: RunId,
    pub call_id: CallId,
    pub status: ToolStatus,
    pub duration_ms: u64,
    /// What the model reads: the output, or its beginning when `blob` holds the whole.
    pub output: String,
    #[serde(default)]
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
}

/// The end of a run that did what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinished {
    pub turn_id: RunId,
    pub duration_ms: u64,
    pub usage: Usage,
    /// Only where the run ended otherwise than by the model coming to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<RunFinish>,
}

/// How a run that is done stopped short of the model's own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunFinish {
    /// A compaction waits for the operator.
    AwaitingCompaction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub turn_id: RunId,
    pub reason: CancelReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    pub duration_ms: u64,
}

/// What cancelled a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    Operator,
    SessionEnded,
    QueuedDiscarded,
    /// The last connection of a temp session went.
    Disconnected,
    RolledBack,
}

/// Why a run or a session failed: the code to act on, the reason to look up, the message to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: Code,
    pub reason: String,
    pub message: String,
}

impl Failure {
    /// Of a session whose record that says why it failed is damaged.
    pub(crate) fn unknown() -> Failure {
        Failure {
            code: Code::Eio,
            reason: "unknown".to_owned(),
            message: "the record that says why is damaged".to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub turn_id: RunId,
    pub code: Code,
    pub reason: String,
    pub message: String,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedDiscarded {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub by: u32,
}
