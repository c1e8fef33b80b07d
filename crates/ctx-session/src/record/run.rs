//! Records of a run: what began it, under what it works, what is said and done in it, and how it ends.
//!
//! What the operator does to a run is in `control`; the state of the session in the parent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Caller, RunKind, Strategy};
use crate::code::Code;
use crate::ids::{CallId, MessageId, RunId};
use crate::image::Image;
use crate::money::Usd;
use crate::word_enum::word_enum;

/// Under what a run works: written when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub turn_id: RunId,
    #[serde(with = "crate::model_name")]
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
    /// `off`: secrets are not taken out of what tools are given and give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redact: Option<Redact>,
    /// What became of calls that the policy wants to ask for, where nobody was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
}

word_enum! {
    /// The answer to every approval of a run, given with its message.
    Approvals {
        /// `--yes`.
        Allow = "allow",
        /// Nobody is there who could answer.
        Deny = "deny",
    }
}

word_enum! {
    /// Whether secrets are taken out of what tools are given and give.
    Redact {
        On = "on",
        Off = "off",
    }
}

/// An instruction file that went into a run's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub kind: String,
    pub path: String,
    pub hash: String,
    pub truncated: bool,
    /// What it holds for: `agent`, `project`, or the directory below that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Why it is not in the context, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
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
    /// What came with its message for this run alone. What held is in `context`.
    #[serde(default, skip_serializing_if = "RunWishes::is_empty")]
    pub wishes: RunWishes,
}

/// What whoever posts a message wants for its run alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWishes {
    /// What becomes of a call that the policy wants to ask for; none: the operator is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// What is allowed before the policy is looked at: `TOOL [PATTERN]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// The network of its cages; none: as the project and the operator say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<RunNet>,
}

impl RunWishes {
    pub fn is_empty(&self) -> bool {
        *self == RunWishes::default()
    }
}

/// The network of a run's cages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunNet {
    None,
    Host,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantStarted {
    pub turn_id: RunId,
    pub message_id: MessageId,
    #[serde(with = "crate::model_name")]
    pub model: String,
    pub step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

/// Tokens that a model call cost, as its provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    /// Of the input, what the provider had cached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// What it cost, in billionths of a US dollar; 0 also where the price is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_nano_usd: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    pub fn cost(self) -> Usd {
        Usd::of_nano(self.cost_nano_usd)
    }

    /// By how much this is more; nothing where it is less.
    pub fn minus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cached: self.cached.saturating_sub(other.cached),
            cost_nano_usd: self.cost_nano_usd.saturating_sub(other.cost_nano_usd),
        }
    }

    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cost_nano_usd: self.cost_nano_usd.saturating_add(other.cost_nano_usd),
        }
    }
}

/// A model call came to nothing and will be made again: what it said no, and how long the run waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retrying {
    pub turn_id: RunId,
    pub code: Code,
    pub reason: String,
    pub message: String,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    pub attempts_max: u32,
    pub wait_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

/// Something that the operator should know of and that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noticed {
    pub turn_id: RunId,
    pub reason: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningFinished {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
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
    /// What the provider wants to see again with the call; no other model is sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

word_enum! {
    /// How a tool call was settled.
    ToolStatus {
        Ok = "ok",
        Error = "error",
        /// The run ended, or the daemon did, before the tool was done.
        Interrupted = "interrupted",
        /// The run ended before the tool was called.
        Skipped = "skipped",
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
    /// The unified diff of the file that the call changed, or its beginning when `diff_blob` holds the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_blob: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ToolSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

/// What a tool knows of what it did, for programs: each tool gives those numbers that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSummary {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of what was read, written or printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_removed: Option<u64>,
    /// Places that a search found, and in how many files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Names in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Secrets that were taken out of the output and the diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<u64>,
}

impl ToolSummary {
    pub fn is_empty(&self) -> bool {
        *self == ToolSummary::default()
    }
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
