//! The engine's side of a run's port: each method is a letter to the session's driver.

use ctx_session::command::{ApprovalAsk, Approved, Progress};
use ctx_session::issue::IssueAct;
use ctx_session::port::{DeltaKind, PortFuture, Retry, RunPort, Step, Stopped};
use ctx_session::record::BlobRef;
use ctx_session::{CallId, MessageId, Refusal, RunId, Ulid};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{DriverLink, Mail};

/// A run's way to its driver.
pub(super) struct DriverPort {
    pub run: RunId,
    pub link: DriverLink,
    pub stop: CancellationToken,
}

impl DriverPort {
    /// Sends a letter that is not answered. A full mailbox makes the worker wait.
    async fn send(&self, mail: Mail) -> Result<(), Stopped> {
        self.link.mailbox.send(mail).await.map_err(|_| Stopped)?;
        self.go_on()
    }

    /// Sends a letter and waits for its answer.
    async fn wait<T>(
        &self,
        mail: impl FnOnce(oneshot::Sender<Result<T, Stopped>>) -> Mail,
    ) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.link.mailbox.send(mail(reply)).await.map_err(|_| Stopped)?;
        let answer = answer.await.map_err(|_| Stopped)??;
        self.go_on().map(|()| answer)
    }

    fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.is_cancelled() { Err(Stopped) } else { Ok(()) }
    }
}

impl RunPort for DriverPort {
    fn new_id(&self) -> Ulid {
        self.link.new_id()
    }

    fn step(&self) -> PortFuture<'_, Step> {
        Box::pin(self.wait(move |reply| Mail::Step { run: self.run, reply }))
    }

    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> PortFuture<'_, ()> {
        Box::pin(self.send(Mail::Delta { run: self.run, message, kind, text }))
    }

    fn progress(&self, progress: Progress) -> PortFuture<'_, ()> {
        Box::pin(self.wait(move |reply| Mail::Progress { run: self.run, progress, reply }))
    }

    fn store_blob(&self, bytes: Vec<u8>) -> PortFuture<'_, BlobRef> {
        Box::pin(self.wait(move |reply| Mail::Blob { bytes, reply }))
    }

    fn retrying(&self, retry: Retry) -> PortFuture<'_, ()> {
        let Retry { code, attempt, attempts_max, wait_ms, .. } = retry;
        tracing::info!(run = %self.run, %code, attempt, of = attempts_max, wait_ms, "retrying a model call");
        Box::pin(async { self.go_on() })
    }

    fn approval(&self, ask: ApprovalAsk) -> PortFuture<'_, Approved> {
        Box::pin(self.wait(move |reply| Mail::Approval { run: self.run, ask, reply }))
    }

    fn checkpoint(&self, call: CallId, reason: Option<String>) -> PortFuture<'_, ()> {
        Box::pin(self.wait(move |reply| Mail::Pause { run: self.run, call, reason, reply }))
    }

    fn issue(&self, act: IssueAct) -> PortFuture<'_, Result<String, Refusal>> {
        Box::pin(self.wait(move |reply| Mail::Issue { run: self.run, act, reply }))
    }

    fn output(&self, call: CallId) -> PortFuture<'_, Result<String, Refusal>> {
        Box::pin(self.wait(move |reply| Mail::Output { run: self.run, call, reply }))
    }

    fn pack(&self, json: Vec<u8>) -> PortFuture<'_, ()> {
        Box::pin(self.send(Mail::Pack { run: self.run, json }))
    }
}
