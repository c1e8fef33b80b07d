//! Messages and tool calls as the API shows them.

use ctx_session::command::RunNet;
use ctx_session::record::{Approvals, BlobRef, Caller, FinishReason, ToolStatus, ToolSummary, Usage};
use ctx_session::{RunId, Ulid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use ctx_session::conversation::Role;

/// `POST /sessions/:id/messages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// What is said. Text parts are added to it.
    #[serde(default)]
    pub text: String,
    /// Images, and more text: at most 8 images with 3 MiB together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<NewPart>,
    /// A name of the client's own: posting it again starts nothing new, also after a restart of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// `provider:model` for this and later messages; null goes back to the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::present")]
    #[schema(value_type = Option<String>)]
    pub model_override: Option<Option<String>>,
    /// The answer to every approval of the run: `allow` or `deny`. Left out: the operator is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub approvals: Option<Approvals>,
    /// What is allowed in this run whatever the policy says: `TOOL [PATTERN]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// The network of the run's cages: `none` or `host`. Left out: as the project and the operator say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub net: Option<RunNet>,
}

/// A piece of a message that is posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum NewPart {
    Text {
        text: String,
    },
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        mime: String,
        /// Base64.
        data: String,
    },
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// A tool call and its result have the call's id.
    #[schema(value_type = String)]
    pub id: Ulid,
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// `user`, `assistant`, `subagent`, `system` or `tool`.
    #[schema(schema_with = super::words::role)]
    pub role: Role,
    /// Its text.
    pub content: String,
    /// Where there is more than text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<MessagePart>,
    pub created_at: u64,
    /// It does not count any more.
    pub superseded: bool,
    /// No compaction takes it.
    #[serde(default)]
    pub pinned: bool,
    pub metadata: Metadata,
}

/// What else is known of a message: its place in the log, and what fits its role.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    pub seq: u64,
    /// The name that its client gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub finish_reason: Option<FinishReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub usage: Option<Usage>,
    /// What the provider calls a tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_call_id: Option<String>,
    /// Whether a tool's output is only the beginning of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Where a tool's whole output is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub blob: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub diff_blob: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub summary: Option<ToolSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// It only says that these records of the log are damaged or lost here; it belongs to no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<super::Damage>,
    /// The subagent whose conversation it is part of; absent: the primary's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub caller: Option<Caller>,
}

/// `PUT …/messages/:mid/pin`: whether a message is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pin {
    #[schema(value_type = String)]
    pub message_id: Ulid,
    pub pinned: bool,
}

/// A typed piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessagePart {
    Text {
        text: String,
    },
    /// An image; its bytes are the session's blob of that hash.
    Image {
        mime: String,
        sha256: String,
        size: u64,
    },
    ToolCall {
        #[schema(value_type = String)]
        call_id: Ulid,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
    ToolResult {
        #[schema(value_type = String)]
        call_id: Ulid,
        #[schema(value_type = String)]
        status: ToolStatus,
        text: String,
    },
}

/// A tool call of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    #[schema(value_type = String)]
    pub id: Ulid,
    /// `primary`, or the name of the subagent that made it.
    #[serde(default)]
    pub caller: String,
    pub name: String,
    #[schema(value_type = Object)]
    pub input: Value,
    /// `pending` (its turn has not come), `running`, `waiting_approval` or `finished`.
    #[schema(schema_with = super::words::call_state)]
    pub state: String,
    /// null while it goes on.
    #[schema(schema_with = super::words::call_status)]
    pub status: Option<ToolStatus>,
    pub output: Option<String>,
    /// The unified diff of the file that the call changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the tool knows in numbers: exit code, bytes, lines, matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub summary: Option<ToolSummary>,
    pub created_at: u64,
    #[serde(default)]
    pub completed_at: Option<u64>,
    pub duration_ms: Option<u64>,
}
