//! Checkpoints: where a session was paused, what it was about to do, and under which prompts.

use ctx_session::{CallId, CheckpointId, CompactionId, RunId, SessionId, Ulid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Compaction, FilesBack, SubagentSnapshot};

/// A checkpoint. Times are epoch milliseconds. In a list without tool calls and texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    #[schema(value_type = String)]
    pub id: CheckpointId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// The run that was paused, or that proposed a compaction.
    #[schema(value_type = String)]
    pub run_id: RunId,
    pub created_at: u64,
    /// `operator`, `model` or `compaction`.
    #[schema(schema_with = super::words::checkpoint_by)]
    pub created_by: String,
    /// The operator's label, the model's reason, or `compaction_pending`.
    pub reason: Option<String>,
    #[schema(value_type = Option<String>)]
    pub compaction_id: Option<CompactionId>,
    /// The last message at the pause.
    #[schema(value_type = Option<String>)]
    pub message_history_cursor: Option<Ulid>,
    /// The run's subagents, as the pause found them.
    pub active_subagents: Vec<SubagentSnapshot>,
    /// What was in flight at the pause, or asked for since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_tool_calls: Option<Vec<PendingToolCall>>,
    pub prompts_in_effect: Vec<PromptSnapshot>,
    /// Oldest first; they hold once the session is resumed.
    pub prompt_edits: Vec<PromptEdit>,
    pub resumed_at: Option<u64>,
    pub rolled_back: bool,
    /// The earlier checkpoint that a rollback went to.
    #[schema(value_type = Option<String>)]
    pub superseded_by: Option<CheckpointId>,
    /// Older than those of the active list.
    pub archived: bool,
    /// The compaction that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// The files that went back, in the answer to a rollback with `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesBack>,
}

/// A tool call that a pause met in the middle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PendingToolCall {
    #[schema(value_type = String)]
    pub id: CallId,
    pub name: String,
    #[schema(value_type = Object)]
    pub input: Value,
    /// `pending`: its turn comes after the resume; `waiting_approval`: starts when it is allowed; `running`: has no result
    /// yet; `finished`: has one by now; `interrupted`, `skipped`: its run ended before it was done, before it was made.
    #[schema(schema_with = super::words::held_call_state)]
    pub state: String,
}

/// A prompt as it was when the session was paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptSnapshot {
    /// `primary`, or a subagent's name.
    pub target: String,
    pub content_hash: String,
    pub editable: bool,
    /// Its text; not in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// An edit of a prompt at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptEdit {
    pub target: String,
    pub old_hash: String,
    pub new_hash: String,
    pub by: u32,
    pub at: u64,
    /// Its text, of the newest edit of each prompt; not in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// `POST /sessions/:id/checkpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCheckpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Refuse if the files of the session cannot be saved; otherwise they are saved where that is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

/// `POST …/:cid/rollback`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The files that the session's runs have changed since the checkpoint go back too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

/// `PUT …/prompts/:target`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptContent {
    pub content: String,
}

/// `POST …/:cid/resume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The bound issue is resolved with it.
    #[serde(default)]
    pub resolve: bool,
    /// The answer to a model that paused to ask; it reads it when it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What came of a command after which a run may go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WentOn {
    /// The run that goes on, or that came to its end with this; null: there was none.
    #[schema(value_type = Option<String>)]
    pub run_id: Option<RunId>,
    /// The session's: `running`, or `idle` when nothing was left to do.
    #[schema(schema_with = super::words::session_state)]
    pub state: String,
}
