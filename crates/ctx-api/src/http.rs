//! The JSON of the HTTP API under `/api/v1`.

use ctx_session::record::{Failure, ForkedFrom, LimitHit};
use ctx_session::{Limits, Name, RunId, Scope, SessionId, StateName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A page of a list, and the cursor of the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct List<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// A session. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub name: Name,
    /// What its directory is called.
    pub dir: String,
    pub scope: Scope,
    pub space: Option<Name>,
    pub owner: u32,
    pub created_by: u32,
    pub project: Name,
    pub agent: Option<Name>,
    pub state: StateName,
    pub failure: Option<Failure>,
    /// A run that failed, but whose end could not be written yet.
    pub failing: Option<Failure>,
    pub cwd: String,
    pub title: Option<String>,
    pub model: String,
    pub model_override: Option<String>,
    pub forked_from: Option<ForkedFrom>,
    pub pending_run: Option<RunId>,
    pub current_run: Option<RunId>,
    pub queued: bool,
    pub reason: Option<String>,
    pub limit: Option<LimitHit>,
    pub created_at: u64,
    pub updated_at: u64,
    pub ended_at: Option<u64>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub session_id: SessionId,
    pub state: String,
    pub created_at: u64,
    pub completed_at: Option<u64>,
    pub duration_ms: Option<u64>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub error: Option<Failure>,
}

/// `PUT /sessions/:id`: what is there is changed; `model_override: null` clears it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub model_override: Option<Option<String>>,
}

/// Tells `null` from absent.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

/// The answer to a post, a resume of the queue, or a cancel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    pub run_id: RunId,
    pub message_id: ctx_session::MessageId,
    pub state: String,
}

/// `GET /status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub root: String,
    pub started_at: u64,
    pub uptime_ms: u64,
    pub sessions: usize,
    pub loaded: usize,
    pub running: u32,
    pub limits: Limits,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorFields,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorFields {
    pub code: ctx_session::Code,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// `.state/daemon.json`: who owns this root, and where to reach it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonFile {
    pub pid: u32,
    pub version: String,
    /// The TCP address, once there is one.
    pub address: Option<String>,
    pub started_at: u64,
    /// The API's socket, relative to `.state`.
    pub api: String,
}
