//! What a loop needs of whoever runs it: ids, and someone to tell. The engine's side is an adapter elsewhere.

use ctx_session::command::Progress;
use ctx_session::record::BlobRef;
use ctx_session::{Code, MessageId, Ulid};
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;

/// What a loop tells while it works. Methods return when the listener has taken it, so a slow one slows the loop.
pub trait Report: Send + Sync {
    /// A fresh id for a message or a tool call.
    fn new_id(&self) -> Ulid;

    /// A piece of an answer: live only, in order.
    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> BoxFuture<'_, Result<(), Stopped>>;

    /// A finished step. Returns when its record is durable.
    fn progress(&self, progress: Progress) -> BoxFuture<'_, Result<(), Stopped>>;

    /// Keeps tool output that is too large for the log. Returns when it is durable.
    fn store_blob(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<BlobRef, Stopped>>;

    /// The model is at its rate limit and will be asked again: live only, so that nobody thinks it hangs.
    fn retrying(&self, retry: Retry) -> BoxFuture<'_, Result<(), Stopped>>;
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
