//! The JSON of the HTTP API under `/api/v1`: sessions and runs, the daemon, and the shape of lists and errors.

mod access;
mod approval;
mod checkpoint;
mod compaction;
mod files;
mod import;
mod issue;
mod lifecycle;
mod lookup;
mod message;
mod project;
mod shell;
mod snapshots;
mod space;
mod subagent;
mod terminal;
mod words;

use ctx_session::record::{Failure, ForkedFrom, LimitHit, RunFinish, RunKind, Workspace};
use ctx_session::{CheckpointId, IssueId, Limits, Name, RunId, Scope, SessionId, StateName};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use access::{Code, Login, NewCode, NewToken, Ticket, Token, TokenMade};
pub use approval::{Approval, ApprovalAnswer, Decision};
pub use checkpoint::{
    Checkpoint, NewCheckpoint, PendingToolCall, PromptContent, PromptEdit, PromptSnapshot, Resume, Rollback,
    WentOn,
};
pub use compaction::{
    Aggregate, Compaction, CompactionApproval, CompactionChange, CompactionRow, NewCompaction,
    ProposedCompaction,
};
pub use files::{ChangedFile, Changes, FileBack, FilesBack, KeptFile, Undo};
pub use import::{ImportBatch, ImportDone, ImportUndone, ImportedSession, KeptSession};
pub use issue::{
    Bind, Criterion, CriterionGiven, Issue, IssueChange, NewIssue, NewTodo, Todo, TodoChange, TodoOperation,
};
pub use lifecycle::{ResumeAt, ResumeFrom};
pub use lookup::{
    AuditEvent, SearchHit, SearchSession, SearchSessions, SnippetPiece, Spent, Standing, Stats, TokenCount,
    ToolCount,
};
pub use message::{Message, MessagePart, Metadata, NewMessage, NewPart, Pin, Role, ToolCall};
pub use project::{NewProject, Project, ProjectChange, ProjectError, ProjectState, ProjectTrust};
pub use shell::{
    GrepLines, KeepLines, KeepLinesMode, NewShell, OutputBudget, Shell, ShellCommand, ShellResult, secret,
};
pub use snapshots::{PruneSnapshots, Snapshot, SnapshotFile, SnapshotFiles, SnapshotsPruned};
pub use space::{NewSpace, Space};
pub use subagent::{SubagentInvocation, SubagentSnapshot};
pub use terminal::{
    NewSessionTerminal, NewTerminal, Terminal, TerminalCursor, TerminalInput, TerminalScreen,
};

/// A page of a list, and the cursor of the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Pass it as `cursor` to read on; null: this was the last page.
    pub next: Option<String>,
}

/// Records that are missing in a session's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Damage {
    /// How many.
    pub lines: u64,
    /// The first of them.
    pub since_seq: u64,
}

/// A session. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    #[schema(value_type = String)]
    pub id: SessionId,
    #[schema(value_type = String)]
    pub name: Name,
    /// What its directory under the root is called.
    #[serde(default)]
    pub dir_name: String,
    /// The host directory that it began in.
    #[serde(default)]
    pub dir: Option<String>,
    /// What the agent sees as /work, where no project file says it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub workspace: Option<Workspace>,
    #[schema(schema_with = words::scope)]
    pub scope: Scope,
    #[schema(value_type = Option<String>)]
    pub space: Option<Name>,
    pub owner: u32,
    pub created_by: u32,
    #[schema(value_type = String)]
    pub project: Name,
    #[schema(value_type = Option<String>)]
    pub agent: Option<Name>,
    /// `idle`, `running`, `queued`, `paused`, `ended` or `failed`.
    #[schema(schema_with = words::session_state)]
    pub state: StateName,
    /// What its log has lost: then messages may be missing. `ctx doctor` names the place. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
    /// Why the session cannot go on for now: the end of its run could not be written yet, or its log cannot be used.
    /// It goes away by itself when the disk does its work again.
    #[schema(value_type = Option<Object>)]
    pub failing: Option<Failure>,
    pub cwd: String,
    pub title: Option<String>,
    /// `provider:model`, or an alias as it stands.
    pub model: String,
    pub model_override: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub forked_from: Option<ForkedFrom>,
    /// Put away: not listed unless asked for.
    #[serde(default)]
    pub archived: bool,
    /// Whether the project's file or a prompt of it has changed since the session began; `restart` takes it up.
    #[serde(default)]
    pub stale: bool,
    #[serde(default)]
    pub dsl_hash: Option<String>,
    /// The SHA-256 of the project's file and prompts as this session keeps them.
    #[serde(default)]
    pub dsl_snapshot: Option<String>,
    #[schema(value_type = Option<String>)]
    pub pending_run: Option<RunId>,
    #[schema(value_type = Option<String>)]
    pub current_run: Option<RunId>,
    /// The checkpoint that it is paused at.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub checkpoint: Option<CheckpointId>,
    /// The issue that it works on.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub bound_issue: Option<IssueId>,
    /// Tool calls that wait for an answer.
    #[serde(default)]
    pub pending_approvals: usize,
    pub queued: bool,
    pub reason: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub limit: Option<LimitHit>,
    /// Tokens of its model calls; what a fork took over is among them.
    #[serde(default)]
    pub tokens_in: u64,
    #[serde(default)]
    pub tokens_out: u64,
    /// Of the input, what came from the provider's cache.
    #[serde(default)]
    pub tokens_cached: u64,
    /// What they cost, in US dollars; 0 also where the price of a model is not known.
    #[serde(default)]
    pub cost_usd: f64,
    pub created_at: u64,
    pub updated_at: u64,
    pub ended_at: Option<u64>,
}

/// `POST /projects/:id/sessions`. What is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Default: the session's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Default: the project's primary agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `private` (default) or `shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The space of a shared session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// A path as the agent sees it. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The host directory that the client is in; it must be in the project. Without `cwd` the session begins there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The id of the issue that it works on from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_issue: Option<String>,
    /// The session is a fork of this one: it keeps its agent and its cwd, and scope and space unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<ResumeFrom>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    #[schema(value_type = String)]
    pub id: RunId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// What it was begun for: `message`, `compaction` or `continuation`.
    #[serde(default)]
    #[schema(schema_with = words::run_kind)]
    pub kind: RunKind,
    /// `pending`, `running`, `done`, `failed` or `cancelled`.
    #[schema(schema_with = words::run_state)]
    pub state: String,
    /// How one that is done stopped short of the model's own end: `awaiting_compaction`.
    #[serde(default)]
    #[schema(schema_with = words::run_finish)]
    pub finish_reason: Option<RunFinish>,
    /// The run whose work it goes on with.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub continues: Option<RunId>,
    pub created_at: u64,
    pub completed_at: Option<u64>,
    pub duration_ms: Option<u64>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Of the input, what came from the provider's cache.
    #[serde(default)]
    pub tokens_cached: u64,
    /// What it cost, in US dollars; 0 also where the price of its model is not known.
    #[serde(default)]
    pub cost_usd: f64,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Failure>,
    /// The message that started it.
    #[serde(default)]
    pub operator_message: Option<Message>,
    /// The agent's last message in it.
    #[serde(default)]
    pub primary_response: Option<Message>,
    /// The subagents that it started, oldest first.
    #[serde(default)]
    pub subagent_invocations: Vec<SubagentInvocation>,
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
}

/// `PUT /sessions/:id`: what is there is changed; `model_override: null` clears it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `provider:model`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub model_override: Option<Option<String>>,
    /// Puts it away, or brings it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
}

/// Tells `null` from absent.
pub(crate) fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// The answer to a post, a resume of the queue, or a cancel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Posted {
    #[schema(value_type = String)]
    pub run_id: RunId,
    #[schema(value_type = String)]
    pub message_id: ctx_session::MessageId,
    /// `running`, or `queued` when there was no slot; of a repeated post, the state that its run is in.
    #[schema(schema_with = words::posted_state)]
    pub state: String,
}

/// `GET /status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub root: String,
    /// Where it listens over TCP.
    #[serde(default)]
    pub address: Option<String>,
    pub started_at: u64,
    pub uptime_ms: u64,
    /// Sessions that the caller may see.
    pub sessions: usize,
    /// Sessions in memory.
    pub loaded: usize,
    /// Running sessions that the caller may see.
    pub running: u32,
    /// `off`: commands of agents run without a cage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cage: Option<String>,
    #[schema(value_type = Object)]
    pub limits: Limits,
}

/// The header of every answer of a daemon whose agents have no cages; its value is `off`.
pub const CAGE_HEADER: &str = "ctx-cage";

/// A model or an agent that the tree holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Named {
    pub name: String,
}

/// A model that the caller may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelNamed {
    /// `provider:model`
    pub name: String,
    /// Tokens of a request and its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Tokens of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// US dollars for a million tokens of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for a million tokens of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// Where the key comes from. Never the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// It is what `main` means.
    #[serde(default)]
    pub is_main: bool,
}

/// A provider that the caller may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderNamed {
    pub name: String,
    /// Its wire format.
    pub kind: String,
    pub base_url: String,
    /// Where the key comes from. Never the key.
    pub key: String,
    /// The model that it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// Environment variables, of providers or of MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Variables {
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// What came of variables that were handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Handed {
    pub providers: Vec<ProviderNamed>,
    /// Why `main` is still the model of a fresh root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The code of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code: Option<ctx_session::Code>,
}

/// A model to be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TryModel {
    /// `provider:model`, or an alias such as `main`.
    pub model: String,
}

/// A model that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tried {
    pub model: String,
    pub text: String,
    pub took_ms: u64,
}

/// A tool that agents have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolNamed {
    pub name: String,
    pub description: String,
    /// The JSON schema of its arguments.
    #[schema(value_type = Object)]
    pub schema: Value,
    /// The MCP server that has it; none: ctx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorFields,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorFields {
    /// Act on this.
    #[schema(value_type = String)]
    pub code: ctx_session::Code,
    /// Read this.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
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
