//! What a loop needs of whoever runs it: ids, the conversation as it stands, and someone to tell. The engine's side is
//! an adapter elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use ctx_session::command::{ApprovalAsk, Approved, Progress, StartedTool};
use ctx_session::conversation::Message;
use ctx_session::record::BlobRef;
use ctx_session::{CallId, Code, MessageId, Refusal, Ulid};
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::prepare::Prepared;
use crate::tool::IssueAct;

/// What a loop tells while it works. Methods return when the listener has taken it, so a slow one slows the loop.
pub trait Report: Send + Sync {
    /// A fresh id for a message or a tool call.
    fn new_id(&self) -> Ulid;

    /// What the next step starts from. Waits while the session is paused.
    fn step(&self) -> BoxFuture<'_, Result<Step, Stopped>>;

    /// A piece of an answer: live only, in order.
    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> BoxFuture<'_, Result<(), Stopped>>;

    /// A finished step. Returns when its record is durable and, where the session was paused meanwhile, resumed.
    fn progress(&self, progress: Progress) -> BoxFuture<'_, Result<(), Stopped>>;

    /// Keeps tool output that is too large for the log. Returns when it is durable.
    fn store_blob(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<BlobRef, Stopped>>;

    /// The model is at its rate limit and will be asked again: live only, so that nobody thinks it hangs.
    fn retrying(&self, retry: Retry) -> BoxFuture<'_, Result<(), Stopped>>;

    /// Waits for the operator's answer to a tool call.
    fn approval(&self, ask: ApprovalAsk) -> BoxFuture<'_, Result<Approved, Stopped>>;

    /// Pauses the session; the tool call is settled with it. Returns when the session is resumed.
    fn checkpoint(&self, call: CallId, reason: Option<String>) -> BoxFuture<'_, Result<(), Stopped>>;

    /// Does something with the bound issue; what it comes to is told to the model.
    fn issue(&self, act: IssueAct) -> BoxFuture<'_, Result<Result<String, Refusal>, Stopped>>;

    /// The whole of what a tool call of the session gave; a refusal is told to the model.
    fn output(&self, call: CallId) -> BoxFuture<'_, Result<Result<String, Refusal>, Stopped>>;

    /// Shows what the model is about to be sent.
    fn pack(&self, json: Vec<u8>) -> BoxFuture<'_, Result<(), Stopped>>;
}

/// Where a run stands before a model call.
#[derive(Clone)]
pub struct Step {
    /// The conversation that counts, the run's own message and what it did so far included.
    pub messages: Vec<Arc<Message>>,
    /// Calls that the model made while the session was paused.
    pub pending: Vec<StartedTool>,
    /// Under what it works, as [`crate::prepare()`] gave it.
    pub prepared: Arc<Prepared>,
    /// Model calls that the run has begun, also before a pause or a restart.
    pub steps: u32,
    /// The open todos of the bound issue, as the reminder has them.
    pub todos: Vec<String>,
    /// Messages that no compaction takes.
    pub pinned: HashSet<Ulid>,
    /// Tool calls whose output the model is shown as a reference.
    pub elided: HashSet<Ulid>,
    /// The operator wants the window to stay as full as it is: see [`ctx_session::control::Control::is_declined`].
    pub declined: bool,
}

/// What a delta is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    Text,
    Reasoning,
}

/// A model call that will be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub code: Code,
    pub message: String,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    pub attempts_max: u32,
    pub wait_ms: u64,
}

/// The run is over, or nobody listens any more: unwind quietly and start nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// The listener of a run, and the one place where its stop is looked at: after each thing told, so that nothing is
/// started once somebody has asked to stop, also by a loop that never has to wait.
pub(super) struct Voice<'a> {
    pub report: &'a dyn Report,
    pub stop: &'a CancellationToken,
}

impl Voice<'_> {
    pub fn new_id(&self) -> Ulid {
        self.report.new_id()
    }

    pub async fn step(&self) -> Result<Step, Stopped> {
        let step = self.report.step().await?;
        self.go_on().map(|()| step)
    }

    pub async fn approval(&self, ask: ApprovalAsk) -> Result<Approved, Stopped> {
        let approved = self.report.approval(ask).await?;
        self.go_on().map(|()| approved)
    }

    pub async fn checkpoint(&self, call: CallId, reason: Option<String>) -> Result<(), Stopped> {
        self.report.checkpoint(call, reason).await?;
        self.go_on()
    }

    pub async fn issue(&self, act: IssueAct) -> Result<Result<String, Refusal>, Stopped> {
        let said = self.report.issue(act).await?;
        self.go_on().map(|()| said)
    }

    pub async fn output(&self, call: CallId) -> Result<Result<String, Refusal>, Stopped> {
        let said = self.report.output(call).await?;
        self.go_on().map(|()| said)
    }

    pub async fn pack(&self, json: Vec<u8>) -> Result<(), Stopped> {
        self.report.pack(json).await?;
        self.go_on()
    }

    pub async fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> Result<(), Stopped> {
        self.report.delta(message, kind, text).await?;
        self.go_on()
    }

    pub async fn progress(&self, progress: Progress) -> Result<(), Stopped> {
        self.report.progress(progress).await?;
        self.go_on()
    }

    pub async fn store_blob(&self, bytes: Vec<u8>) -> Result<BlobRef, Stopped> {
        let blob = self.report.store_blob(bytes).await?;
        self.go_on().map(|()| blob)
    }

    pub async fn retrying(&self, retry: Retry) -> Result<(), Stopped> {
        self.report.retrying(retry).await?;
        self.go_on()
    }

    fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.is_cancelled() { Err(Stopped) } else { Ok(()) }
    }
}
