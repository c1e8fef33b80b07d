//! Records of subagents: a run starts one for a part of its work, and each comes to an end of its own.
//!
//! What a subagent says and does has the records of a run, with the subagent as their `caller`.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, RunId, SubagentId};
use crate::word_enum::word_enum;

/// The subagent that says or does something; where none is named, the primary does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub name: String,
    pub invocation_id: SubagentId,
}

/// A subagent is there and has done nothing yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentSpawned {
    pub turn_id: RunId,
    pub invocation_id: SubagentId,
    /// The call of the primary that asked for it.
    pub call_id: CallId,
    pub name: String,
    #[serde(with = "crate::model_name")]
    pub model: String,
    /// What it is to do: the first message of its conversation.
    pub prompt: String,
    /// How long it may work. A pause does not count.
    pub walltime_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentRunning {
    pub turn_id: RunId,
    pub invocation_id: SubagentId,
    pub name: String,
    /// None: nothing of it runs outside the daemon.
    pub cage_id: Option<String>,
}

word_enum! {
    /// Where a subagent stands.
    SubagentState {
        Spawned = "spawned",
        Running = "running",
        Done = "done",
        Failed = "failed",
        Killed = "killed",
    }
}

word_enum! {
    /// What ended a subagent. [`crate::subagent`] has the table of what each means.
    ExitCause {
        /// It came to its end.
        Answered = "answered",
        /// Its model failed, or it took too many steps.
        Error = "error",
        /// Its cage could not be started.
        SpawnFailed = "spawn_failed",
        Walltime = "walltime",
        Memory = "memory",
        /// Its run ended before it did.
        RunEnded = "run_ended",
        /// The daemon that it ran in is gone.
        DaemonStopped = "daemon_stopped",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentExited {
    pub turn_id: RunId,
    pub invocation_id: SubagentId,
    pub name: String,
    /// `done`, `failed` or `killed`.
    pub state: SubagentState,
    pub cause: ExitCause,
    /// None where it never ran, or nobody saw it end.
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    /// Why, for a person; none of one that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

word_enum! {
    /// What a pause found a subagent doing.
    SnapshotState {
        Suspended = "suspended",
        Exited = "exited",
    }
}

/// A subagent of the paused run, as a checkpoint keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentSnapshot {
    pub invocation_id: SubagentId,
    pub name: String,
    pub state: SnapshotState,
    pub cage_id: Option<String>,
    /// The end of what it said and was shown, at most 500 characters.
    pub last_output: String,
    /// Its terminal, where it has one.
    pub pty_id: Option<String>,
}
