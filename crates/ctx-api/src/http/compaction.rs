//! Compactions: what was, or is to be, taken out of the model's sight, and what the operator thinks of it.

use ctx_session::record::{CompactionFlag, CompactionTrigger, PluginCost, PluginFired, Strategy};
use ctx_session::{CallId, CheckpointId, CompactionId, MessageId, RunId, SessionId, Ulid};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A compaction. Times are epoch milliseconds, estimates shares of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compaction {
    #[schema(value_type = String)]
    pub id: CompactionId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Whose window it is.
    pub agent_path: String,
    pub created_at: u64,
    /// `threshold_crossed`, `provider_overflow_retry`, `operator_manual` or `scheduled`.
    #[schema(schema_with = super::words::compaction_trigger)]
    pub trigger: CompactionTrigger,
    /// `drop`, `summarize`, `delegate` or `checkpoint`.
    #[schema(schema_with = super::words::strategy)]
    pub strategy: Strategy,
    /// `proposed`, `applied` or `rejected`.
    #[schema(schema_with = super::words::compaction_state)]
    pub state: String,
    pub threshold_estimate: f64,
    pub after_estimate: f64,
    pub window_upper: f64,
    pub window_lower: f64,
    /// What it superseded, or would while it waits. A rejected one supersedes nothing: see `proposed`.
    #[schema(value_type = Vec<String>)]
    pub superseded_message_ids: Vec<Ulid>,
    /// Tool calls that stay, but whose output the model is shown as a reference; likewise.
    #[schema(value_type = Vec<String>)]
    pub elided_call_ids: Vec<CallId>,
    #[schema(value_type = Option<String>)]
    pub summary_message_id: Option<MessageId>,
    pub summary: Option<String>,
    #[schema(value_type = Vec<Object>)]
    pub plugins_fired: Vec<PluginFired>,
    #[schema(value_type = Option<Object>)]
    pub plugin_cost: Option<PluginCost>,
    pub fallback_occurred: bool,
    pub fallback_reason: Option<String>,
    /// `good`, `bad` or `neutral`.
    #[schema(schema_with = super::words::compaction_flag)]
    pub operator_flag: Option<CompactionFlag>,
    pub operator_notes: Option<String>,
    #[schema(value_type = Option<String>)]
    pub checkpoint_id: Option<CheckpointId>,
    /// The session went back to before it: what it superseded counts again.
    pub rolled_back: bool,
    /// What was proposed to the operator, where it was, whatever they made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<ProposedCompaction>,
}

/// What a compaction wanted to do before the operator decided on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProposedCompaction {
    #[schema(value_type = Vec<String>)]
    pub superseded_message_ids: Vec<Ulid>,
    #[schema(value_type = Vec<String>)]
    pub elided_call_ids: Vec<CallId>,
    pub summary: Option<String>,
}

/// Compactions that are listed as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Aggregate {
    /// Always true: this tells the row from a compaction.
    pub aggregate: bool,
    pub count: u32,
    /// When the newest of them was made.
    pub before: u64,
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CompactionRow {
    Aggregate(Aggregate),
    Compaction(Box<Compaction>),
}

/// `POST /sessions/:id/compactions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCompaction {
    /// `drop`, `summarize`, `delegate` or `checkpoint`. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub strategy: Option<Strategy>,
}

/// `PATCH …/:cid`: what is there is changed; null clears it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactionChange {
    /// `good`, `bad` or `neutral`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::present")]
    #[schema(value_type = Option<String>)]
    pub operator_flag: Option<Option<CompactionFlag>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::present")]
    #[schema(value_type = Option<String>)]
    pub operator_notes: Option<Option<String>>,
}

/// `POST …/:cid/approve`: what is absent stays as it was proposed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactionApproval {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub superseded_message_ids: Option<Vec<Ulid>>,
    /// The text that is to stand for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}
