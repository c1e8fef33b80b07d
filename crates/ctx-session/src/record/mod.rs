//! Records: what a session's log says, one line each.
//!
//! The journal owns the envelope (`schema_version`, `seq`, `time`, `more`); this module owns the bodies. A body is
//! written once and never changed; a reader keeps what it does not know. Changelog of the bodies: 1 is the
//! first; what came after it only added types and fields that may be absent.

mod control;
mod event;
mod run;
mod subagent;
mod table;
mod terminal;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use control::*;
pub use event::EventName;
pub use run::*;
pub use subagent::*;
pub(crate) use table::record_table;
pub use table::*;
pub use terminal::*;

use crate::ids::SessionId;
use crate::name::Name;
use crate::request::RequestKey;
use crate::time::Timestamp;
use crate::word_enum::word_enum;

/// A record with its place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub seq: u64,
    pub time: Timestamp,
    pub body: Body,
}

word_enum! {
    /// Who sees a session and where it is kept.
    #[derive(PartialOrd, Ord)]
    Scope {
        /// The owner's uid alone.
        Private = "private",
        /// A named space; members of its group read and resume.
        Shared = "shared",
        /// In memory only, never listed.
        Temp = "temp",
    }
}

/// The first record of every log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMeta {
    pub session_id: SessionId,
    pub name: Name,
    pub scope: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Name>,
    pub owner: u32,
    /// None for a session on a model's socket.
    pub agent: Option<Name>,
    pub project: Name,
    pub cwd: String,
    /// The host directory that the session began in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// What the agent has as its workspace, where no project file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// The provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(with = "crate::model_name")]
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The SHA-256 of the project's file; None where no project file describes the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsl_hash: Option<String>,
    /// The project's file and prompts as they were when the session was made: a blob of the project's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsl_snapshot: Option<String>,
    /// The request that made it, where it had a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<RequestKey>,
    pub app: String,
}

impl SessionMeta {
    /// The import that made the session.
    pub fn import(&self) -> Option<crate::ids::Ulid> {
        self.origin.as_ref()?.get("import_id")?.as_str()?.parse().ok()
    }
}

/// The host directory that an agent sees as its workspace. A session keeps the one that it began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// An absolute path without links.
    pub directory: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The agent whose control files describe the session's agent; None: its own do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described_by: Option<Name>,
}

/// Where a fork came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub session_id: SessionId,
    pub seq: u64,
}

word_enum! {
    /// The words for a session's state, as the log and the API write them.
    #[derive(PartialOrd, Ord)]
    StateName {
        Idle = "idle",
        Running = "running",
        Queued = "queued",
        Paused = "paused",
        Ended = "ended",
        Failed = "failed",
    }
}

impl StateName {
    /// The word in the `state` file, which has four.
    pub fn file_word(self) -> &'static str {
        match self {
            StateName::Running | StateName::Queued | StateName::Paused => "active",
            StateName::Idle => "idle",
            StateName::Ended => "done",
            StateName::Failed => "error",
        }
    }

    /// No run can ever start again.
    pub fn is_over(self) -> bool {
        match self {
            StateName::Ended | StateName::Failed => true,
            StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => false,
        }
    }
}

word_enum! {
    /// What moved a session from one state to another.
    #[derive(PartialOrd, Ord)]
    Trigger {
        MessagePosted = "message_posted",
        ConcurrencyLimit = "concurrency_limit",
        QueueResumed = "queue_resumed",
        QueuedDiscarded = "queued_discarded",
        RunCompleted = "run_completed",
        RunFailed = "run_failed",
        RunCancelled = "run_cancelled",
        CrashRecovered = "crash_recovered",
        Checkpoint = "checkpoint",
        CheckpointResumed = "checkpoint_resumed",
        RolledBack = "rolled_back",
        CompactionRequested = "compaction_requested",
        RunRetried = "run_retried",
        CompactionApproved = "compaction_approved",
        CompactionRejected = "compaction_rejected",
        SessionEnded = "session_ended",
        SessionFailed = "session_failed",
    }
}

/// Which count stood at its limit when a message was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    PerProject,
    PerOperator,
}

/// Why a session is queued: the numbers behind `concurrency_limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    pub scope: LimitScope,
    pub running: u32,
    pub limit: u32,
}

/// Always the last record of its command, so that the newest one in a log tells the state. A `forked` after it
/// says idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChanged {
    pub from: StateName,
    pub to: StateName,
    pub trigger: Trigger,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// With `to: queued` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitHit>,
}

impl StateChanged {
    /// The second name of a change of state that the audit log counts as an event of its own.
    pub fn event(&self) -> Option<EventName> {
        match self.trigger {
            Trigger::ConcurrencyLimit => Some(EventName::SessionQueued),
            Trigger::QueueResumed => Some(EventName::SessionResumedFromQueue),
            Trigger::CrashRecovered => Some(EventName::SessionCrashRecovered),
            Trigger::SessionEnded if self.to == StateName::Ended => Some(EventName::SessionEnded),
            Trigger::SessionEnded
            | Trigger::MessagePosted
            | Trigger::QueuedDiscarded
            | Trigger::RunCompleted
            | Trigger::RunFailed
            | Trigger::RunCancelled
            | Trigger::Checkpoint
            | Trigger::CheckpointResumed
            | Trigger::RolledBack
            | Trigger::CompactionRequested
            | Trigger::RunRetried
            | Trigger::CompactionApproved
            | Trigger::CompactionRejected
            | Trigger::SessionFailed => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRenamed {
    pub title: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSet {
    /// `provider:model`, or null to go back to the agent's own.
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CwdChanged {
    pub cwd: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub connection: crate::ids::Ulid,
    pub user: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    pub connection: crate::ids::Ulid,
    pub user: u32,
    pub reason: DetachReason,
}

/// How an operator's connection went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetachReason {
    Clean,
    Timeout,
    Error,
    Slow,
    TakenOver,
    SessionEnded,
    /// The daemon went, and the connection with it.
    DaemonRestart,
}

/// Records of another agent's session were added: always the last record of its command, in the state idle. The records
/// before it have the times of the source, and are not events of this daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// One id for everything that one `ctx import` brought in.
    pub import_id: crate::ids::Ulid,
    pub by: u32,
    /// How many records were added, this one not among them.
    pub records: u64,
    pub at: Timestamp,
    /// Messages that an undone import had brought, and that count again: the source was imported once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<crate::ids::Ulid>,
    /// Messages that a compaction among them left out, as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<crate::ids::Ulid>,
}

/// What an import had added to a session of an earlier import was taken back. Its records stay where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportUndone {
    pub import_id: crate::ids::Ulid,
    pub by: u32,
    /// The messages that it had added.
    pub superseded: Vec<crate::ids::Ulid>,
    /// Messages that a compaction among what it had added left out: they count again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<crate::ids::Ulid>,
    pub at: Timestamp,
}

/// Put away, or brought back. An archived session is not listed unless asked for; nothing else changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    pub archived: bool,
    /// None: a message brought it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
}

/// Where a fork begins: all before it, but the first record, is a copy. Whatever was going on there goes on in the
/// source alone; here open runs are cancelled and open tools interrupted, nothing waits for an approval, a proposed compaction is
/// rejected, no issue is
/// bound, nobody is attached, the client ids of the source mean nothing, and the session is idle, whatever state the
/// source was in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    pub by: u32,
}
