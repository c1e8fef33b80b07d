//! Records: what a session's log says, one line each.
//!
//! The journal owns the envelope (`schema_version`, `seq`, `time`, `more`); this module owns the bodies. A body is
//! written once and never changed; a reader keeps what it does not know. Changelog of the bodies: 1 is the
//! first; what came after it only added types and fields that may be absent.

mod control;
mod run;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use control::*;
pub use run::*;

use crate::ids::{RunId, SessionId};
use crate::name::Name;
use crate::request::{RequestKey, Requested};
use crate::time::Timestamp;

/// A record with its place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub seq: u64,
    pub time: Timestamp,
    pub body: Body,
}

/// What a record says. Adding one means deciding it in every `match` over bodies.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Body {
    SessionMeta(Box<SessionMeta>),
    Context(Box<Context>),
    User(User),
    RunCreated(RunCreated),
    AssistantStarted(AssistantStarted),
    AssistantFinished(AssistantFinished),
    ReasoningFinished(ReasoningFinished),
    ToolStarted(ToolStarted),
    ToolFinished(ToolFinished),
    RunFinished(RunFinished),
    Cancelled(Cancelled),
    Failed(Failed),
    QueuedDiscarded(QueuedDiscarded),
    StateChanged(StateChanged),
    SessionRenamed(SessionRenamed),
    ModelSet(ModelSet),
    CwdChanged(CwdChanged),
    Attached(Attached),
    Detached(Detached),
    SessionFailed(Failure),
    Archived(Archived),
    Forked(Forked),
    System(SystemNote),
    ToolPending(ToolPending),
    CheckpointCreated(CheckpointCreated),
    PromptEdited(PromptEdited),
    CheckpointResumed(CheckpointResumed),
    RolledBack(RolledBack),
    Compaction(Box<Compaction>),
    CompactionApproved(CompactionApproved),
    CompactionRejected(CompactionRejected),
    CompactionFlagged(CompactionFlagged),
    CompactionsAggregated(CompactionsAggregated),
    ApprovalRequested(ApprovalRequested),
    ApprovalSettled(ApprovalSettled),
    Bound(Bound),
    Unbound(Unbound),
    Requested(Requested),
    MessagePinned(MessagePinned),
}

/// Who sees a session and where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The owner's uid alone.
    Private,
    /// A named space; members of its group read and resume.
    Shared,
    /// In memory only, never listed.
    Temp,
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

/// Where a fork came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub session_id: SessionId,
    pub seq: u64,
}

/// The words for a session's state, as the log and the API write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    Idle,
    Running,
    Queued,
    Paused,
    Ended,
    Failed,
}

impl StateName {
    pub const ALL: [StateName; 6] = [
        StateName::Idle,
        StateName::Running,
        StateName::Queued,
        StateName::Paused,
        StateName::Ended,
        StateName::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Idle => "idle",
            StateName::Running => "running",
            StateName::Queued => "queued",
            StateName::Paused => "paused",
            StateName::Ended => "ended",
            StateName::Failed => "failed",
        }
    }

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

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What moved a session from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    MessagePosted,
    ConcurrencyLimit,
    QueueResumed,
    QueuedDiscarded,
    RunCompleted,
    RunFailed,
    RunCancelled,
    CrashRecovered,
    Checkpoint,
    CheckpointResumed,
    RolledBack,
    CompactionRequested,
    CompactionApproved,
    CompactionRejected,
    SessionEnded,
    SessionFailed,
}

impl Trigger {
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::MessagePosted => "message_posted",
            Trigger::ConcurrencyLimit => "concurrency_limit",
            Trigger::QueueResumed => "queue_resumed",
            Trigger::QueuedDiscarded => "queued_discarded",
            Trigger::RunCompleted => "run_completed",
            Trigger::RunFailed => "run_failed",
            Trigger::RunCancelled => "run_cancelled",
            Trigger::CrashRecovered => "crash_recovered",
            Trigger::Checkpoint => "checkpoint",
            Trigger::CheckpointResumed => "checkpoint_resumed",
            Trigger::RolledBack => "rolled_back",
            Trigger::CompactionRequested => "compaction_requested",
            Trigger::CompactionApproved => "compaction_approved",
            Trigger::CompactionRejected => "compaction_rejected",
            Trigger::SessionEnded => "session_ended",
            Trigger::SessionFailed => "session_failed",
        }
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

/// What a line of a log turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    Known(Body),
    /// A type of a later version: kept in the log, passed over here.
    Unknown,
    /// A type of ours whose fields do not fit: passed over with a warning.
    Malformed(String),
}

impl Body {
    /// The body as the journal wants it: a JSON object that begins with its `type`.
    pub fn to_json(&self) -> String {
        // Serialising these types cannot fail: no map has keys that are not strings.
        serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"unwritable"}"#.to_owned())
    }

    /// The run that a record tells of; None where it tells of the session.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Body::Context(context) => Some(context.turn_id),
            Body::User(user) => Some(user.turn_id),
            Body::RunCreated(created) => Some(created.turn_id),
            Body::AssistantStarted(started) => Some(started.turn_id),
            Body::AssistantFinished(message) => Some(message.turn_id),
            Body::ReasoningFinished(reasoning) => Some(reasoning.turn_id),
            Body::ToolStarted(tool) => Some(tool.turn_id),
            Body::ToolFinished(tool) => Some(tool.turn_id),
            Body::RunFinished(end) => Some(end.turn_id),
            Body::Cancelled(end) => Some(end.turn_id),
            Body::Failed(end) => Some(end.turn_id),
            Body::QueuedDiscarded(gone) => Some(gone.turn_id),
            Body::System(note) => Some(note.turn_id),
            Body::ToolPending(tool) => Some(tool.turn_id),
            Body::CheckpointCreated(checkpoint) => Some(checkpoint.turn_id),
            Body::Compaction(compaction) => Some(compaction.turn_id),
            Body::CompactionApproved(approved) => Some(approved.turn_id),
            Body::ApprovalRequested(asked) => Some(asked.turn_id),
            Body::ApprovalSettled(settled) => Some(settled.turn_id),
            Body::Requested(requested) => requested.turn_id,
            Body::SessionMeta(_)
            | Body::StateChanged(_)
            | Body::SessionRenamed(_)
            | Body::ModelSet(_)
            | Body::CwdChanged(_)
            | Body::Attached(_)
            | Body::Detached(_)
            | Body::SessionFailed(_)
            | Body::Archived(_)
            | Body::Forked(_)
            | Body::PromptEdited(_)
            | Body::CheckpointResumed(_)
            | Body::RolledBack(_)
            | Body::CompactionRejected(_)
            | Body::CompactionFlagged(_)
            | Body::CompactionsAggregated(_)
            | Body::Bound(_)
            | Body::MessagePinned(_)
            | Body::Unbound(_) => None,
        }
    }

    /// Every type of record; [`Body::decode`] knows the same.
    pub const KINDS: &'static [&'static str] = &[
        "session_meta",
        "context",
        "user",
        "run_created",
        "assistant_started",
        "assistant_finished",
        "reasoning_finished",
        "tool_started",
        "tool_finished",
        "run_finished",
        "cancelled",
        "failed",
        "queued_discarded",
        "state_changed",
        "session_renamed",
        "model_set",
        "cwd_changed",
        "attached",
        "detached",
        "session_failed",
        "archived",
        "forked",
        "system",
        "tool_pending",
        "checkpoint_created",
        "prompt_edited",
        "checkpoint_resumed",
        "rolled_back",
        "compaction",
        "compaction_approved",
        "compaction_rejected",
        "compaction_flagged",
        "compactions_aggregated",
        "approval_requested",
        "approval_settled",
        "bound",
        "unbound",
        "requested",
        "message_pinned",
    ];

    /// Reads the body out of a whole line of the log, envelope and all.
    pub fn decode(kind: &str, line: &str) -> Decoded {
        fn read<'a, T: Deserialize<'a>>(line: &'a str, wrap: impl FnOnce(T) -> Body) -> Decoded {
            match serde_json::from_str(line) {
                Ok(fields) => Decoded::Known(wrap(fields)),
                Err(error) => Decoded::Malformed(error.to_string()),
            }
        }
        match kind {
            "session_meta" => read(line, |meta| Body::SessionMeta(Box::new(meta))),
            "context" => read(line, |context| Body::Context(Box::new(context))),
            "user" => read(line, Body::User),
            "run_created" => read(line, Body::RunCreated),
            "assistant_started" => read(line, Body::AssistantStarted),
            "assistant_finished" => read(line, Body::AssistantFinished),
            "reasoning_finished" => read(line, Body::ReasoningFinished),
            "tool_started" => read(line, Body::ToolStarted),
            "tool_finished" => read(line, Body::ToolFinished),
            "run_finished" => read(line, Body::RunFinished),
            "cancelled" => read(line, Body::Cancelled),
            "failed" => read(line, Body::Failed),
            "queued_discarded" => read(line, Body::QueuedDiscarded),
            "state_changed" => read(line, Body::StateChanged),
            "session_renamed" => read(line, Body::SessionRenamed),
            "model_set" => read(line, Body::ModelSet),
            "cwd_changed" => read(line, Body::CwdChanged),
            "attached" => read(line, Body::Attached),
            "detached" => read(line, Body::Detached),
            "session_failed" => read(line, Body::SessionFailed),
            "archived" => read(line, Body::Archived),
            "forked" => read(line, Body::Forked),
            "system" => read(line, Body::System),
            "tool_pending" => read(line, Body::ToolPending),
            "checkpoint_created" => read(line, Body::CheckpointCreated),
            "prompt_edited" => read(line, Body::PromptEdited),
            "checkpoint_resumed" => read(line, Body::CheckpointResumed),
            "rolled_back" => read(line, Body::RolledBack),
            "compaction" => read(line, |compaction| Body::Compaction(Box::new(compaction))),
            "compaction_approved" => read(line, Body::CompactionApproved),
            "compaction_rejected" => read(line, Body::CompactionRejected),
            "compaction_flagged" => read(line, Body::CompactionFlagged),
            "compactions_aggregated" => read(line, Body::CompactionsAggregated),
            "approval_requested" => read(line, Body::ApprovalRequested),
            "approval_settled" => read(line, Body::ApprovalSettled),
            "bound" => read(line, Body::Bound),
            "unbound" => read(line, Body::Unbound),
            "requested" => read(line, Body::Requested),
            "message_pinned" => read(line, Body::MessagePinned),
            _ => Decoded::Unknown,
        }
    }
}
