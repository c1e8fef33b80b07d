//! Records of the operator's control over a session: checkpoints, compaction, approvals, the bound issue.
//!
//! Lists of message ids stand in the record that supersedes or restores them, so that a reader needs no other line to
//! know what it did.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Caller, PromptRef, SubagentSnapshot, Usage};
use crate::ids::{ApprovalId, CallId, CheckpointId, CompactionId, IssueId, MessageId, RunId, Ulid};
use crate::time::Timestamp;
use crate::word_enum::word_enum;

/// What a run was begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A message was posted.
    #[default]
    Message,
    /// The operator asked for a compaction.
    Compaction,
    /// A compaction was approved: the work of the run that proposed it goes on.
    Continuation,
}

impl RunKind {
    pub fn is_message(&self) -> bool {
        *self == RunKind::Message
    }
}

/// A note of the system to the agent, as a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemNote {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
    /// Text that another agent put into its conversation and nobody typed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub injected: bool,
}

/// A tool call that the model made while its session was paused. It starts when the session is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolPending {
    pub turn_id: RunId,
    pub call_id: CallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_call_id: Option<String>,
    pub name: String,
    pub input: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Value>,
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

word_enum! {
    /// Who paused a session.
    CheckpointBy {
        Operator = "operator",
        Model = "model",
        Compaction = "compaction",
    }
}

/// The reason of a checkpoint that waits for a compaction to be approved.
pub const COMPACTION_PENDING: &str = "compaction_pending";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCreated {
    pub checkpoint_id: CheckpointId,
    /// The run that was paused, or that proposed the compaction.
    pub turn_id: RunId,
    pub created_by: CheckpointBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction_id: Option<CompactionId>,
    /// The last message before the pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Ulid>,
    /// The prompts under which the run worked.
    #[serde(default)]
    pub prompts: Vec<PromptRef>,
    /// The run's subagents, as the pause found them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_subagents: Vec<SubagentSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptEdited {
    pub checkpoint_id: CheckpointId,
    pub target: String,
    pub old_hash: String,
    /// The text is a blob of this hash.
    pub new_hash: String,
    pub by: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointResumed {
    pub checkpoint_id: CheckpointId,
    pub by: u32,
    /// The prompts that were edited at this checkpoint, and hold from here on.
    #[serde(default)]
    pub prompts: Vec<PromptRef>,
}

/// The conversation is again what it was at the checkpoint. Nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    pub checkpoint_id: CheckpointId,
    pub by: u32,
    /// Messages after the checkpoint, which no longer count.
    pub superseded: Vec<Ulid>,
    /// Messages that a compaction after the checkpoint had superseded, which count again.
    #[serde(default)]
    pub restored: Vec<Ulid>,
    /// Tool calls whose output a compaction after the checkpoint had elided, which is shown again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored_call_ids: Vec<CallId>,
    /// Tool calls whose output was elided at the checkpoint, which was shown again meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elided_call_ids: Vec<CallId>,
    /// The files that went back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesBack>,
}

/// Files that were brought back, by the snapshots of `ctx snapshots`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesBack {
    /// Names the restore: it is done because this record is there.
    pub restore: Ulid,
    /// The snapshot of what was there before.
    pub undo: Ulid,
    /// How many paths were to be changed, and how many of others were kept as they were.
    pub changed: u64,
    pub kept: u64,
}

/// What made a compaction happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    ThresholdCrossed,
    ProviderOverflowRetry,
    OperatorManual,
    Scheduled,
}

/// A part of a compaction that something other than ctx did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFired {
    pub name: String,
    pub role: String,
    pub duration_ms: u64,
    pub result_kind: String,
}

/// What a model that took part cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginCost {
    pub provider: String,
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: f64,
}

impl PluginCost {
    pub fn usage(&self) -> Usage {
        let cost_nano_usd = (self.cost_usd * 1e9).round().max(0.0) as u64;
        Usage { input: self.input_tokens, output: self.output_tokens, cached: 0, cost_nano_usd }
    }
}

/// A compaction: what was, or is to be, taken out of the model's sight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    pub compaction_id: CompactionId,
    pub turn_id: RunId,
    /// Whose window it is.
    pub agent_path: String,
    pub trigger: CompactionTrigger,
    pub strategy: Strategy,
    /// Only proposed: nothing is superseded before it is approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proposed: bool,
    /// The window in tokens, and what of it was taken up, as the fractions were reckoned. Absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Fractions of the window, before and after.
    pub threshold_estimate: f64,
    pub after_estimate: f64,
    pub window_upper: f64,
    pub window_lower: f64,
    #[serde(default)]
    pub superseded_message_ids: Vec<Ulid>,
    /// Tool calls that stay, but whose output the model is shown as a reference from here on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elided_call_ids: Vec<CallId>,
    /// The message that stands for what was superseded, whose text is `summary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default)]
    pub plugins_fired: Vec<PluginFired>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_cost: Option<PluginCost>,
    #[serde(default)]
    pub fallback_occurred: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
}

/// A proposed compaction takes effect, as the operator wants it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionApproved {
    pub compaction_id: CompactionId,
    /// The run that proposed it.
    pub turn_id: RunId,
    pub by: u32,
    pub superseded_message_ids: Vec<Ulid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elided_call_ids: Vec<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The fraction of the window after what was really superseded. Absent: as it was proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_estimate: Option<f64>,
}

/// A proposed compaction comes to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRejected {
    pub compaction_id: CompactionId,
    /// None where nobody did it: the session failed, or a record of it is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    #[serde(default, skip_serializing_if = "Rejection::is_operators")]
    pub reason: Rejection,
}

word_enum! {
    /// Why a proposed compaction came to nothing. The words are its `fallback_reason`.
    #[derive(Default)]
    Rejection {
        /// The operator did not want it.
        #[default]
        OperatorRejected = "operator_rejected",
        SessionEnded = "session_ended",
        SessionFailed = "session_failed",
        /// It waits in the source of this fork alone. Never in a record: `forked` says it.
        SessionForked = "session_forked",
        /// What waited for an answer is damaged.
        Interrupted = "interrupted",
    }
}

impl Rejection {
    fn is_operators(&self) -> bool {
        *self == Rejection::OperatorRejected
    }
}

/// What an operator thinks of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionFlag {
    Good,
    Bad,
    Neutral,
}

/// The whole of the feedback as it stands from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionFlagged {
    pub compaction_id: CompactionId,
    #[serde(default)]
    pub flag: Option<CompactionFlag>,
    #[serde(default)]
    pub notes: Option<String>,
    pub by: u32,
}

/// The oldest compactions are from here on listed as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionsAggregated {
    pub count: u32,
    /// When the newest of them was made.
    pub before: Timestamp,
}

/// A tool call waits for the operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    pub turn_id: RunId,
    pub approval_id: ApprovalId,
    pub call_id: CallId,
    pub tool: String,
    /// What the call touches, as the policy was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The pattern of the rule that asks; none: it asks for every call of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The unified diff of what the call would change in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
}

word_enum! {
    /// How an approval came to its end.
    ApprovalOutcome {
        Allow = "allow",
        Deny = "deny",
        /// Nobody answered in time: denied.
        Timeout = "timeout",
        /// The run ended, or the daemon did.
        Interrupted = "interrupted",
    }
}

word_enum! {
    /// What an `allow` holds for.
    #[derive(Default)]
    ApprovalScope {
        /// This call.
        #[default]
        Call = "call",
        /// Every call of the tool that a rule with the same pattern asks for, until the session ends.
        Session = "session",
    }
}

impl ApprovalScope {
    fn is_call(&self) -> bool {
        *self == ApprovalScope::Call
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalSettled {
    pub turn_id: RunId,
    pub approval_id: ApprovalId,
    pub outcome: ApprovalOutcome,
    /// What an `allow` holds for.
    #[serde(default, skip_serializing_if = "ApprovalScope::is_call")]
    pub scope: ApprovalScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub issue_id: IssueId,
    pub by: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbound {
    pub issue_id: IssueId,
    pub by: u32,
}

/// A message is pinned: no compaction takes it. Or it is not any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePinned {
    /// A tool call and its result have one id, and one pin.
    pub message_id: Ulid,
    pub pinned: bool,
    pub by: u32,
}
