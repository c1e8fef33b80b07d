//! The border between a run and its session: plain data, and the one trait that a run's worker is written against.
//!
//! The engine implements the trait, agents call it, tests play either side. Nothing here runs by itself: the futures
//! belong to whoever implements them.

use std::any::Any;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use crate::code::{Code, Refusal};
use crate::command::{ApprovalAsk, Approved, Exit, Progress, Spawn, StartedTool};
use crate::conversation::Message;
use crate::ids::{CallId, MessageId, SubagentId, TerminalId, Ulid};
use crate::issue::IssueAct;
use crate::record::{Approvals, BlobRef, ExitCause, Failure, Source};
use crate::subagent::Consequence;

/// What a method of the port returns: an answer in its own time, or that the run is over.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Stopped>> + Send + 'a>>;

/// How a run's worker speaks to its session. A method returns when the session has taken what it was given, so that a
/// slow session slows the worker; and once the run was asked to stop, every method returns [`Stopped`], so that a
/// worker that never has to wait starts nothing more.
pub trait RunPort: Send + Sync {
    /// A fresh id for a message or a tool call.
    fn new_id(&self) -> Ulid;

    /// What the next step starts from. Waits while the session is paused.
    fn step(&self) -> PortFuture<'_, Step>;

    /// A piece of an answer: live only, in order.
    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> PortFuture<'_, ()>;

    /// A finished part of the work. Returns when its record is durable and, if the session was paused meanwhile, resumed.
    fn progress(&self, progress: Progress) -> PortFuture<'_, ()>;

    /// Stores tool output that is too large for the log. Returns when it is durable; the record that names it comes after.
    fn store_blob(&self, bytes: Vec<u8>) -> PortFuture<'_, BlobRef>;

    /// Waits for the operator's answer to a tool call, or for the time-out.
    fn approval(&self, ask: ApprovalAsk) -> PortFuture<'_, Approved>;

    /// Pauses the session; the tool call is settled with it. Returns when the session is resumed.
    fn checkpoint(&self, call: CallId, reason: Option<String>) -> PortFuture<'_, ()>;

    /// Does something with the bound issue. The inner refusal is for the model to read.
    fn issue(&self, act: IssueAct) -> PortFuture<'_, Result<String, Refusal>>;

    /// The whole output of a tool call of the session. The inner refusal is for the model to read.
    fn output(&self, call: CallId) -> PortFuture<'_, Result<String, Refusal>>;

    /// The bytes of a blob of the session. The inner refusal says why they cannot be had.
    fn read_blob(&self, sha256: String) -> PortFuture<'_, Result<Vec<u8>, Refusal>>;

    /// Whether another model call may be paid for. The inner failure is the run's, and names the limit.
    fn may_spend(&self) -> PortFuture<'_, Result<(), Failure>>;

    /// Shows what the model is about to be sent.
    fn pack(&self, json: Vec<u8>) -> PortFuture<'_, ()>;

    /// Starts a subagent of the run. The inner refusal is for the model to read. Waits while the session is paused.
    fn spawn(&self, spawn: Spawn) -> PortFuture<'_, Result<Arc<dyn RunPort>, Refusal>>;

    /// Ends a subagent, unless something else has ended it before, and tells what it came to.
    fn reap(&self, subagent: SubagentId, exit: Exit) -> PortFuture<'_, Reaped>;

    /// Opens a terminal: recorded first, and started then. The inner refusal is for the model to read.
    fn open_terminal(
        &self,
        _: OpenTerminal,
        _: TerminalStart,
    ) -> PortFuture<'_, Result<TerminalId, Refusal>> {
        Box::pin(async { Ok(Err(Refusal::new(Code::Ehostdown, "there are no terminals here"))) })
    }

    /// Returns when whoever this port belongs to is to stop: its run, or a subagent alone.
    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A terminal that an agent wants to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTerminal {
    pub name: Option<String>,
    pub command: Vec<String>,
    pub caged: bool,
}

/// Starts a terminal under the id that its session's log has for it. Blocks.
pub type TerminalStart = Box<dyn FnOnce(TerminalId) -> Result<(), Refusal> + Send>;

/// What became of a subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    pub cause: ExitCause,
    pub message: Option<String>,
    /// The last text it said.
    pub said: String,
    /// What its end means for the run.
    pub consequence: Consequence,
}

/// Where a run stands before its next step.
#[derive(Clone)]
pub struct Step {
    /// Under what it works, as the worker itself prepared it.
    pub prepared: Arc<dyn Any + Send + Sync>,
    /// The messages in context, the run's own and what it did so far included, the newest last.
    pub messages: Vec<Arc<Message>>,
    /// Calls that the model made while the session was paused.
    pub pending: Vec<StartedTool>,
    /// Model calls that the run has begun, also before a pause or a restart.
    pub steps: u32,
    /// The open todos of the bound issue.
    pub todos: Vec<String>,
    /// Messages that no compaction takes.
    pub pinned: HashSet<Ulid>,
    /// Tool calls whose output the model is shown as a reference.
    pub elided: HashSet<Ulid>,
    /// The operator wants the window to stay as full as it is: see [`crate::control::Control::is_declined`].
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
    pub reason: String,
    pub message: String,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    pub attempts_max: u32,
    pub wait_ms: u64,
}

/// The run is over, or was asked to stop: the worker returns quietly and starts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// An instruction file with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    pub source: Source,
    pub text: String,
}

/// What a paused run goes on with, whatever the agent's files say by now: of its `context` record, that which is not
/// asked for by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub policy: Vec<String>,
    pub approvals: Option<Approvals>,
    /// None: the log does not have them all, so they are read as they are now.
    pub instructions: Option<Vec<Instructions>>,
}
