//! Commands, and what comes of them: every way to change a session is one [`Command`].

use serde_json::Value;

use crate::ids::{CallId, MessageId, RunId, Ulid};
use crate::record::{
    BlobRef, Body, CancelReason, DetachReason, Failure, FinishReason, LimitHit, PromptRef, Source,
    ToolStatus, Usage,
};
use crate::session::RunState;

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
    },
    Rename {
        title: String,
    },
    SetModel {
        model: Option<String>,
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
    /// Puts a session away, or brings it back.
    Archive {
        archived: bool,
        by: u32,
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
    },
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
    pub client_id: Option<String>,
    /// Sticky: holds for this and later messages. `Some(None)` goes back to the agent's own model.
    pub model_override: Option<Option<String>>,
    /// Where the session works from now on, when the client names a place.
    pub cwd: Option<String>,
    pub admission: Admission,
}

/// Whether there is a slot for one more running session.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// A slot is reserved; the run will work under this.
    Granted(RunContext),
    Full(LimitHit),
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
}

/// A finished step of the agent's loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    AssistantStarted {
        message_id: MessageId,
        model: String,
        step: u32,
    },
    AssistantFinished {
        message_id: MessageId,
        text: String,
        finish_reason: FinishReason,
        usage: Option<Usage>,
    },
    ReasoningFinished {
        message_id: MessageId,
        text: String,
    },
    ToolStarted {
        call_id: CallId,
        provider_call_id: Option<String>,
        name: String,
        input: Value,
    },
    ToolFinished {
        call_id: CallId,
        status: ToolStatus,
        duration_ms: u64,
        output: String,
        truncated: bool,
        blob: Option<BlobRef>,
    },
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
    /// The name is free again: the directory becomes `<name>+<ulid>`.
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
    /// The command came too late and changes nothing.
    Ignored,
}
