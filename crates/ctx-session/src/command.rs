//! Commands, and what comes of them: every way to change a session is one [`Command`].

mod progress;
mod terminal;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::progress::Progress;
pub use self::terminal::TerminalAct;
use crate::ids::{
    ApprovalId, CallId, CheckpointId, CompactionId, IssueId, MessageId, RunId, SubagentId, Ulid,
};
use crate::image::Image;
use crate::record::{
    ApprovalOutcome, ApprovalScope, Approvals, BlobRef, Body, Caller, CancelReason, CompactionFlag,
    DetachReason, ExitCause, Failure, FilesBack, LimitHit, LimitScope, PromptRef, Redact, Source, Strategy,
    ToolBody, ToolFinished, ToolStatus, ToolSummary,
};
pub use crate::record::{RunNet, RunWishes};
use crate::request::RequestKey;
use crate::session::RunState;
use crate::time::Timestamp;

/// What is asked of a session that exists. Creating one is [`crate::rules::create`], or [`crate::rules::Fork`].
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    PostMessage(PostMessage),
    ResumeQueued {
        admission: Admission,
        by: u32,
    },
    DiscardQueued {
        by: u32,
    },
    /// What the agent's loop has to say of the run it works on.
    Progress {
        run: RunId,
        /// The subagent whose loop says it; none: the primary's.
        caller: Option<SubagentId>,
        progress: Progress,
    },
    FinishRun {
        run: RunId,
        outcome: Outcome,
        partial: Option<Partial>,
    },
    CancelRun {
        run: RunId,
        reason: CancelReason,
        by: Option<u32>,
        /// What a paused run had said so far; one that goes on keeps it when it stops.
        partial: Option<Partial>,
    },
    /// Pauses the run that goes on.
    Checkpoint {
        by: Pauser,
        reason: Option<String>,
    },
    /// The text is stored as a blob of this hash already.
    EditPrompt {
        checkpoint: CheckpointId,
        target: String,
        hash: String,
        by: u32,
    },
    /// Of a checkpoint that a compaction waits at, this is approving it as it was proposed.
    Resume {
        checkpoint: CheckpointId,
        admission: Admission,
        by: u32,
        /// The operator's answer to a model that paused to ask.
        message: Option<String>,
    },
    /// Of a checkpoint that a compaction waits at, this is rejecting it.
    Rollback {
        checkpoint: CheckpointId,
        by: u32,
        partial: Option<Partial>,
        /// The files that go back with it.
        files: Option<FilesBack>,
    },
    /// Begins a compaction that the operator asks for: a run of its own.
    Compact {
        strategy: Option<Strategy>,
        admission: Admission,
        by: u32,
    },
    /// A new run from the log after one that failed or was cancelled.
    Retry {
        admission: Admission,
        by: u32,
    },
    ApproveCompaction {
        compaction: CompactionId,
        edits: CompactionEdits,
        admission: Admission,
        by: u32,
    },
    RejectCompaction {
        compaction: CompactionId,
        by: u32,
    },
    FlagCompaction {
        compaction: CompactionId,
        /// `Some(None)` takes it back.
        flag: Option<Option<CompactionFlag>>,
        notes: Option<Option<String>>,
        by: u32,
    },
    AnswerApproval {
        approval: ApprovalId,
        answer: ApprovalAnswer,
        note: Option<String>,
    },
    /// The engine has made sure that the issue is there and nobody else's.
    Bind {
        issue: IssueId,
        by: u32,
    },
    Unbind {
        by: u32,
    },
    /// Whether compactions leave a message alone.
    Pin {
        message: Ulid,
        pinned: bool,
        by: u32,
    },
    Change(Change),
    /// Something that happens to a terminal of the session.
    Terminal(TerminalAct),
    /// Adds what another agent's session has and this one has not yet, each record with its time.
    Import(Import),
    UndoImport(UndoImport),
    /// A command that carries a key of its client's: it is done once.
    Once {
        key: RequestKey,
        command: Box<Command>,
    },
    Attach {
        connection: Ulid,
        user: u32,
        device_hint: Option<String>,
        takeover: bool,
    },
    Detach {
        connection: Ulid,
        reason: DetachReason,
    },
    End {
        by: u32,
        partial: Option<Partial>,
    },
    Fail {
        failure: Failure,
        partial: Option<Partial>,
    },
    /// The session was loaded and nothing of its earlier run is alive any more.
    Recover {
        cause: Interruption,
        /// Text of an answer that is not in the log.
        under_way: Option<UnderWay>,
    },
}

/// What is set on a session: all of it or, when one part is refused, nothing. What is not named stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    pub title: Option<String>,
    /// Sticky: `Some(None)` goes back to the agent's own model. The engine has checked that it exists.
    pub model: Option<Option<String>>,
    /// Puts the session away, or brings it back.
    pub archived: Option<bool>,
    pub by: u32,
}

/// Records of another agent's session.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    pub import_id: Ulid,
    pub records: Vec<(Timestamp, Body)>,
    pub by: u32,
    /// What an undone import had brought and this one brings again; see [`crate::record::Imported`].
    pub restored: Vec<Ulid>,
    pub superseded: Vec<Ulid>,
}

/// Takes back what an import had added to a session of an earlier one; see [`crate::record::ImportUndone`].
#[derive(Debug, Clone, PartialEq)]
pub struct UndoImport {
    pub import_id: Ulid,
    pub by: u32,
    pub superseded: Vec<Ulid>,
    pub restored: Vec<Ulid>,
}

/// Who pauses a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pauser {
    Operator {
        by: u32,
    },
    /// By a tool call, which is settled with it.
    Model {
        run: RunId,
        call: CallId,
    },
}

/// How the operator wants a proposed compaction; what is not named stays as it was proposed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactionEdits {
    pub superseded: Option<Vec<Ulid>>,
    pub summary: Option<String>,
}

/// What an approval is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalAnswer {
    Allow {
        by: u32,
        scope: ApprovalScope,
    },
    Deny {
        by: u32,
    },
    /// Nobody did in time.
    Timeout,
}

/// What took a run away from under its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    DaemonCrash,
    /// The log could not be written, and was taken up again.
    StorageFailure,
}

/// A message, with what the engine found out before it asked.
#[derive(Debug, Clone, PartialEq)]
pub struct PostMessage {
    pub text: String,
    /// Their bytes are stored as blobs already.
    pub images: Vec<Image>,
    pub client_id: Option<String>,
    /// Sticky: holds for this and later messages. `Some(None)` goes back to the agent's own model.
    pub model_override: Option<Option<String>>,
    /// Where the session works from now on, when the client names a place.
    pub cwd: Option<String>,
    /// What it wants for its run; a queued one has it when it starts.
    pub wishes: RunWishes,
    pub admission: Admission,
    pub by: u32,
}

/// Whether there is a slot for one more running session.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// A slot is reserved.
    Granted {
        /// The run will work under this.
        context: RunContext,
        /// How many run now by each limit, this one among them.
        running: [LimitHit; 2],
    },
    Full(LimitHit),
}

impl Admission {
    /// No slot was asked for: the engine puts what it was given in the place of this, or the rules do without.
    pub fn none() -> Admission {
        Admission::Full(LimitHit { scope: LimitScope::PerProject, running: 0, limit: 0 })
    }
}

/// Under what a run will work; becomes its `context` record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContext {
    pub model: String,
    pub cwd: String,
    pub policy: Vec<String>,
    pub cage: Option<String>,
    pub sources: Vec<Source>,
    pub prompts: Vec<PromptRef>,
    pub redact: Option<Redact>,
    pub approvals: Option<Approvals>,
}

/// A tool call that the model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct StartedTool {
    pub call_id: CallId,
    pub provider_call_id: Option<String>,
    pub name: String,
    pub input: Value,
    /// What the provider wants to see again with the call.
    pub provider: Option<Value>,
}

/// How a tool call ended; becomes its `tool_finished` record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedTool {
    pub call_id: CallId,
    pub status: ToolStatus,
    pub duration_ms: u64,
    pub output: String,
    pub truncated: bool,
    pub blob: Option<BlobRef>,
    pub diff: Option<String>,
    pub diff_blob: Option<BlobRef>,
    pub summary: Option<ToolSummary>,
}

impl FinishedTool {
    /// One that gave a text and nothing else.
    pub fn new(
        call_id: CallId,
        status: ToolStatus,
        duration_ms: u64,
        output: impl Into<String>,
    ) -> FinishedTool {
        FinishedTool {
            call_id,
            status,
            duration_ms,
            output: output.into(),
            truncated: false,
            blob: None,
            diff: None,
            diff_blob: None,
            summary: None,
        }
    }

    pub(crate) fn record(self, turn_id: RunId, caller: Option<Caller>) -> Body {
        let FinishedTool { call_id, status, duration_ms, output, truncated, blob, diff, diff_blob, summary } =
            self;
        Body::Tool(ToolBody::Finished(ToolFinished {
            turn_id,
            call_id,
            status,
            duration_ms,
            output,
            truncated,
            blob,
            diff,
            diff_blob,
            summary,
            caller,
        }))
    }
}

/// A subagent that the primary wants to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawn {
    pub invocation_id: SubagentId,
    /// The tool call that asks for it.
    pub call_id: CallId,
    pub name: String,
    pub model: String,
    pub prompt: String,
    /// None: as long as the limits say.
    pub walltime_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// How a subagent came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub cause: ExitCause,
    /// Why, for a person, where the cause alone does not say it.
    pub message: Option<String>,
}

/// A tool call that the policy wants the operator's word for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAsk {
    pub call: CallId,
    pub tool: String,
    /// What the call touches.
    pub subject: Option<String>,
    /// The pattern of the rule that asks; None: it asks for every call of the tool.
    pub pattern: Option<String>,
    /// What it would change in a file.
    pub diff: Option<String>,
    /// False where nobody is there who could answer: only what was allowed for the session is allowed.
    pub is_answerable: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    pub outcome: ApprovalOutcome,
    pub note: Option<String>,
}

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed(Failure),
    Cancelled { reason: CancelReason, by: Option<u32> },
}

/// Text of an assistant message that was cut off: shown to clients already, so it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    pub message_id: MessageId,
    pub text: String,
}

/// Text of the answer that a run was giving, as it was kept beside the log while it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub run: RunId,
    pub message_id: MessageId,
    pub text: String,
}

/// What a command comes to: records to make durable, then effects to start and an answer to give.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "journal the records first, then start the effects"]
pub struct Decision {
    pub records: Vec<Body>,
    pub effects: Vec<Effect>,
    pub answer: Answer,
}

/// Work outside the rules that a decision asks for, started after its records are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the agent's loop for this run.
    StartRun { run: RunId },
    /// Go on with a run that was paused: with the loop that is there, or with a new one.
    ContinueRun { run: RunId },
    /// An approval has its answer: whoever waits for it is told.
    ApprovalSettled { approval: ApprovalId },
    /// Stop the loop and every process of the run; its end comes back as `FinishRun`.
    StopRun { run: RunId, reason: CancelReason, by: Option<u32> },
    /// Kill the loop and every process of the run now; the run's end is in the log already.
    KillRun { run: RunId },
    /// Tell every listener how many sessions run.
    BroadcastRunning,
    /// Tell an operator's connection why it is closed, and close it.
    CloseConnection { connection: Ulid, reason: DetachReason },
    /// Every client is told that the session is over, and let go.
    CloseClients,
    /// The name is free again. The directory keeps it until a new session of that name is made.
    FreeName,
}

/// What the one who asked is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Posted {
        run: RunId,
        message: MessageId,
        state: RunState,
        /// The client id was used before: nothing new was started.
        repeated: bool,
    },
    /// The run's state: final, or still to come when a cancel is under way.
    Run {
        run: RunId,
        state: RunState,
    },
    Checkpoint {
        checkpoint: CheckpointId,
    },
    /// The session is paused: this waits until it is resumed.
    Held,
    /// The command came too late and changes nothing.
    Ignored,
}
