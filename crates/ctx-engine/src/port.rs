//! The port behind which agents work: what the engine asks of them, and what they report back.
//!
//! The engine knows no model, tool or cage. The binary puts an adapter here; tests put a few lines.

use std::any::Any;
use std::sync::Arc;

use ctx_session::command::{Outcome, Progress, RunContext};
use ctx_session::conversation::Message;
use ctx_session::record::BlobRef;
use ctx_session::{Limits, MessageId, Name, Refusal, RunId, SessionId, Ulid};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::driver::DriverLink;

/// Whoever can do the work of a run.
pub trait Worker: Send + Sync + 'static {
    /// Finds out under what a run would work. Called before a message is accepted, so that a bad control
    /// file refuses it and nothing is written. May read files: it is never called on an async thread.
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal>;

    /// Does the work. Returns soon after `stop`; the engine gives up on it after the grace time.
    fn run(&self, job: Job, report: RunReport, stop: CancellationToken) -> BoxFuture<'static, Outcome>;
}

/// For whom a run would work.
#[derive(Debug, Clone)]
pub struct Prepare {
    pub agent: Name,
    pub owner: u32,
    pub model_override: Option<String>,
    /// As the client or the session has it; None: the agent's own.
    pub cwd: Option<String>,
}

/// Under what a run will work.
#[derive(Clone)]
pub struct Prepared {
    pub project: Name,
    pub context: RunContext,
    /// The texts of the prompts that `context` names by hash; stored as blobs before the run begins.
    pub prompts: Vec<String>,
    /// Whatever the worker wants to see again in [`Job`].
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// A run to do.
pub struct Job {
    pub session: SessionId,
    pub owner: u32,
    pub run: RunId,
    pub prepared: Prepared,
    /// The conversation so far, the new message last.
    pub messages: Vec<Message>,
    pub limits: Arc<Limits>,
}

/// The run is over, whatever its worker still has to say: unwind quietly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is over")]
pub struct Stopped;

/// A piece of text as it comes, live only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    Text,
    Reasoning,
}

/// How a run's worker speaks to its session.
#[derive(Clone)]
pub struct RunReport {
    pub(crate) run: RunId,
    pub(crate) link: DriverLink,
}

impl RunReport {
    /// A fresh id, for a message or a tool call.
    pub fn new_id(&self) -> Ulid {
        self.link.new_id()
    }

    /// Shows a piece of text to whoever watches. Waits while the session is busy: that is the back-pressure.
    pub async fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> Result<(), Stopped> {
        self.link.delta(self.run, message, kind, text).await
    }

    /// Returns when the record is durable.
    pub async fn progress(&self, progress: Progress) -> Result<(), Stopped> {
        self.link.progress(self.run, progress).await
    }

    /// Stores output that is too large for the log; the record that names it comes after.
    pub async fn store_blob(&self, bytes: Vec<u8>) -> Result<BlobRef, Stopped> {
        self.link.store_blob(bytes).await
    }
}
