//! Records: what a session's log says, one line each.
//!
//! The journal owns the envelope (`schema_version`, `seq`, `time`, `more`); this module owns the bodies. A body is
//! written once and never changed; a reader keeps what it does not know. Changelog of the bodies: 1 is the first.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::code::Code;
use crate::ids::{CallId, MessageId, RunId, SessionId};
use crate::name::Name;
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
    pub app: String,
}

/// Where a fork came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub session_id: SessionId,
    pub seq: u64,
}

/// Under what a run works: written when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub turn_id: RunId,
    pub model: String,
    pub cwd: String,
    #[serde(default)]
    pub policy: Vec<String>,
    #[serde(default)]
    pub cage: Option<String>,
    #[serde(default)]
    pub sources: Vec<Source>,
    #[serde(default)]
    pub prompts: Vec<PromptRef>,
}

/// An instruction file that went into a run's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub kind: String,
    pub path: String,
    pub hash: String,
    pub truncated: bool,
}

/// A prompt in effect, by the hash of its text; the text itself is a blob of that hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRef {
    pub target: String,
    pub hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub turn_id: RunId,
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCreated {
    pub turn_id: RunId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantStarted {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub model: String,
    pub step: u32,
}

/// Tokens that a model call cost, as its provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

impl Usage {
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// Why an assistant message ended where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    ToolCalls,
    Length,
    Cancelled,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantFinished {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
    pub finish_reason: FinishReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningFinished {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub turn_id: RunId,
    pub call_id: CallId,
    /// The provider's own id, which may repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_call_id: Option<String>,
    pub name: String,
    pub input: Value,
}

/// How a tool call was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Ok,
    Error,
    /// The run ended, or the daemon did, before the tool was done.
    Interrupted,
}

/// Output that was too large for the log: stored once beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub sha256: String,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFinished {
    pub turn_id: RunId,
    pub call_id: CallId,
    pub status: ToolStatus,
    pub duration_ms: u64,
    /// What the model reads: the output, or its beginning when `blob` holds the whole.
    pub output: String,
    #[serde(default)]
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
}

/// The end of a run that did what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinished {
    pub turn_id: RunId,
    pub duration_ms: u64,
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub turn_id: RunId,
    pub reason: CancelReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    pub duration_ms: u64,
}

/// What cancelled a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    Operator,
    SessionEnded,
    QueuedDiscarded,
    /// The last connection of a temp session went.
    Disconnected,
}

/// Why a run or a session failed: the code to act on, the reason to look up, the message to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: Code,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub turn_id: RunId,
    pub code: Code,
    pub reason: String,
    pub message: String,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedDiscarded {
    pub turn_id: RunId,
    pub message_id: MessageId,
    pub by: u32,
}

/// The words for a session's state, as the log and the API write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    Idle,
    Running,
    Queued,
    Ended,
    Failed,
}

impl StateName {
    pub const ALL: [StateName; 5] =
        [StateName::Idle, StateName::Running, StateName::Queued, StateName::Ended, StateName::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Idle => "idle",
            StateName::Running => "running",
            StateName::Queued => "queued",
            StateName::Ended => "ended",
            StateName::Failed => "failed",
        }
    }

    /// The word in the `state` file, which has four.
    pub fn file_word(self) -> &'static str {
        match self {
            StateName::Running | StateName::Queued => "active",
            StateName::Idle => "idle",
            StateName::Ended => "done",
            StateName::Failed => "error",
        }
    }

    /// No run can ever start again.
    pub fn is_over(self) -> bool {
        match self {
            StateName::Ended | StateName::Failed => true,
            StateName::Idle | StateName::Running | StateName::Queued => false,
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
/// source alone; here open runs are cancelled and open tools interrupted, nobody is attached, the client ids of
/// the source mean nothing, and the session is idle, whatever state the source was in.
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
            Body::SessionMeta(_)
            | Body::StateChanged(_)
            | Body::SessionRenamed(_)
            | Body::ModelSet(_)
            | Body::CwdChanged(_)
            | Body::Attached(_)
            | Body::Detached(_)
            | Body::SessionFailed(_)
            | Body::Archived(_)
            | Body::Forked(_) => None,
        }
    }

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
            _ => Decoded::Unknown,
        }
    }
}
