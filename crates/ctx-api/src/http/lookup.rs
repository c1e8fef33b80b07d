//! What a search and the audit log give back.

use ctx_session::conversation::Role;
use ctx_session::{Name, RunId, SessionId, Ulid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A message that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    #[schema(value_type = String)]
    pub session_id: SessionId,
    #[schema(value_type = String)]
    pub session_name: Name,
    pub session_title: Option<String>,
    #[schema(value_type = Option<String>)]
    pub agent: Option<Name>,
    #[schema(value_type = String)]
    pub project: Name,
    #[schema(value_type = String)]
    pub message_id: Ulid,
    #[schema(value_type = String)]
    pub run_id: RunId,
    #[schema(value_type = String)]
    pub role: Role,
    pub created_at: u64,
    /// Higher is better.
    pub score: f64,
    pub snippet: Vec<SnippetPiece>,
}

/// A piece of a snippet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnippetPiece {
    pub text: String,
    /// What was looked for.
    pub is_hit: bool,
}

/// Something that someone did, or that happened to what is theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its place in the audit log.
    pub number: u64,
    pub time: u64,
    pub event: String,
    pub user_id: u32,
    /// Where it happened; for an issue or a todo, whose run did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// The record that says so, in the session's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_seq: Option<u64>,
    /// Of which project's log the record is, where it is no session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_seq: Option<u64>,
    #[schema(value_type = Object)]
    pub data: Value,
}
