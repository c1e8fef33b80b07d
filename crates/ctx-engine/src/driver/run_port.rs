//! The engine's side of a run's port: each method is a letter to the session's driver.

use std::pin::Pin;
use std::sync::Arc;

use ctx_session::command::{ApprovalAsk, Approved, Exit, Progress, Spawn};
use ctx_session::issue::IssueAct;
use ctx_session::port::{DeltaKind, OpenTerminal, PortFuture, Reaped, RunPort, Step, Stopped, TerminalStart};
use ctx_session::record::{BlobRef, Caller, Failure};
use ctx_session::{CallId, Code, MessageId, Refusal, RunId, SubagentId, TerminalId, Ulid};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{DriverLink, Mail};

/// A run's way to its driver.
pub(super) struct DriverPort {
    pub run: RunId,
    /// The subagent that it is the way of; none: the primary's.
    pub caller: Option<Caller>,
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

    fn caller(&self) -> Option<SubagentId> {
        self.caller.as_ref().map(|caller| caller.invocation_id)
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
        Box::pin(self.wait(move |reply| Mail::Step { run: self.run, caller: self.caller(), reply }))
    }

    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> PortFuture<'_, ()> {
        Box::pin(self.send(Mail::Delta { run: self.run, caller: self.caller.clone(), message, kind, text }))
    }

    fn progress(&self, progress: Progress) -> PortFuture<'_, ()> {
        if let Progress::Retrying(retry) = &progress {
            let (code, attempt, of, wait_ms) = (retry.code, retry.attempt, retry.attempts_max, retry.wait_ms);
            tracing::info!(run = %self.run, %code, attempt, of, wait_ms, "retrying a model call");
        }
        let (run, caller) = (self.run, self.caller());
        Box::pin(self.wait(move |reply| Mail::Progress { run, caller, progress, reply }))
    }

    fn store_blob(&self, bytes: Vec<u8>) -> PortFuture<'_, BlobRef> {
        Box::pin(self.wait(move |reply| Mail::Blob { bytes, reply }))
    }

    fn approval(&self, ask: ApprovalAsk) -> PortFuture<'_, Approved> {
        let (run, caller) = (self.run, self.caller());
        Box::pin(self.wait(move |reply| Mail::Approval { run, caller, ask, reply }))
    }

    fn checkpoint(&self, call: CallId, reason: Option<String>) -> PortFuture<'_, ()> {
        Box::pin(self.wait(move |reply| Mail::Pause { run: self.run, call, reason, reply }))
    }

    fn issue(&self, act: IssueAct) -> PortFuture<'_, Result<String, Refusal>> {
        if self.caller.is_some() {
            return Box::pin(async { Ok(Err(not_for_subagents("the issue"))) });
        }
        Box::pin(self.wait(move |reply| Mail::Issue { run: self.run, act, reply }))
    }

    fn output(&self, call: CallId) -> PortFuture<'_, Result<String, Refusal>> {
        Box::pin(self.wait(move |reply| Mail::Output { run: self.run, call, reply }))
    }

    fn read_blob(&self, sha256: String) -> PortFuture<'_, Result<Vec<u8>, Refusal>> {
        Box::pin(self.wait(move |reply| Mail::ReadBlob { run: self.run, sha256, reply }))
    }

    fn may_spend(&self) -> PortFuture<'_, Result<(), Failure>> {
        Box::pin(self.wait(move |reply| Mail::Spend { run: self.run, reply }))
    }

    fn pack(&self, json: Vec<u8>) -> PortFuture<'_, ()> {
        // What is shown is what the primary is sent.
        if self.caller.is_some() {
            return Box::pin(async { self.go_on() });
        }
        Box::pin(self.send(Mail::Pack { run: self.run, json }))
    }

    fn spawn(&self, spawn: Spawn) -> PortFuture<'_, Result<Arc<dyn RunPort>, Refusal>> {
        if self.caller.is_some() {
            return Box::pin(async { Ok(Err(not_for_subagents("starting subagents"))) });
        }
        Box::pin(self.wait(move |reply| Mail::Spawn { run: self.run, spawn, reply }))
    }

    fn reap(&self, subagent: SubagentId, exit: Exit) -> PortFuture<'_, Reaped> {
        Box::pin(self.wait(move |reply| Mail::Reap { run: self.run, subagent, exit, reply }))
    }

    fn open_terminal(
        &self,
        open: OpenTerminal,
        start: TerminalStart,
    ) -> PortFuture<'_, Result<TerminalId, Refusal>> {
        Box::pin(async move {
            let (run, caller) = (self.run, self.caller());
            match self.wait(move |reply| Mail::Terminal { run, caller, open, reply }).await? {
                Ok((session, owner, terminal)) => {
                    let started = self.link.inner.start_terminal(session, owner, terminal, start).await;
                    Ok(started.map(|()| terminal))
                }
                Err(refusal) => Ok(Err(refusal)),
            }
        })
    }

    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.stop.cancelled())
    }
}

fn not_for_subagents(what: &str) -> Refusal {
    Refusal::new(
        Code::Eacces,
        format!("{what} is for the primary alone; end with what you found, and it goes on"),
    )
}
