//! Subagents: what a run started for a part of its work, and how a pause found them.

use ctx_session::record::{SnapshotState, SubagentState};
use ctx_session::{RunId, SessionId, SubagentId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A subagent of a run. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubagentInvocation {
    #[schema(value_type = String)]
    pub id: SubagentId,
    #[schema(value_type = String)]
    pub run_id: RunId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    pub subagent_name: String,
    /// `provider:model`.
    pub model: String,
    /// null: it has run no command, or commands run without cages.
    pub cage_id: Option<String>,
    /// What its cage may use; null: it has none.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// How long it may work. A pause does not count.
    #[serde(default)]
    pub walltime_ms: u64,
    #[schema(schema_with = super::words::subagent_state)]
    pub state: SubagentState,
    pub spawned_at: u64,
    pub exited_at: Option<u64>,
    /// 0: done; 1: failed; 137: killed; null while it works, and where nobody saw it end.
    pub exit_code: Option<i32>,
    /// What ended it: `answered`, `error`, `spawn_failed`, `walltime`, `memory`, `run_ended` or `daemon_stopped`.
    pub cause: Option<String>,
    /// Why, of one that did not come to its end.
    pub message: Option<String>,
}

/// A subagent as a checkpoint keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubagentSnapshot {
    #[schema(value_type = String)]
    pub id: SubagentId,
    pub name: String,
    /// `suspended`: goes on with the session; `exited`: was over, or went with its daemon.
    #[schema(schema_with = super::words::snapshot_state)]
    pub state: SnapshotState,
    pub cage_id: Option<String>,
    /// The end of its output, at most 500 characters.
    pub last_output: String,
    pub pty_id: Option<String>,
}
