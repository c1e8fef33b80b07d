//! The run that goes on: its start, what it reports, how it is stopped, and its end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{Outcome, Partial, Progress, UnderWay};
use ctx_session::port::{DeltaKind, Stopped};
use ctx_session::record::{BlobRef, CancelReason, Failure};
use ctx_session::{Answer, Code, Command, MessageId, Refusal, RunId};
use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::control::{Parked, Waiting, is_paused};
use super::run_port::DriverPort;
use super::subagents::Alive;
use super::{Driver, Ready, ReplyTo};
use crate::admission::Slot;
use crate::core::Core;
use crate::port::{Job, Prepared};

/// How often the text of an answer is kept beside the log while it comes.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// How soon the end of a run that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The worker of the current run, seen from its session.
pub(super) struct Work {
    run: RunId,
    pub(super) stop: CancellationToken,
    task: tokio::task::AbortHandle,
    /// Given back as soon as the session is no longer running.
    pub(super) slot: Option<Slot>,
    pub(super) partial: Option<Partial>,
    keeping: Keeping,
    stopping: Option<Stopping>,
    /// The run is over, but its end could not be written.
    failing: Option<Failing>,
    /// Cancels that wait for the end.
    waiters: Vec<ReplyTo<Answer>>,
    /// Under what it works.
    pub(super) prepared: Prepared,
    /// The worker is done, but its session is paused.
    pub(super) ended: Option<Outcome>,
    /// What goes on when the session is resumed.
    pub(super) parked: Vec<Parked>,
    pub(super) approvals: Vec<Waiting>,
    pub(super) subagents: Alive,
    /// Its pack is being written.
    pub(super) pack: Option<tokio::task::JoinHandle<()>>,
}

/// When the text of the answer is kept beside the log, and by whom.
#[derive(Default)]
struct Keeping {
    /// There is text that is not kept yet.
    due: Option<Instant>,
    task: Option<tokio::task::JoinHandle<()>>,
}

struct Stopping {
    reason: CancelReason,
    by: Option<u32>,
    /// When the worker is given up on.
    deadline: Instant,
}

struct Failing {
    outcome: Outcome,
    retry_at: Instant,
}

impl Work {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let stopping = self.stopping.as_ref().map(|stopping| stopping.deadline);
        let ends = self.failing.as_ref().map(|failing| failing.retry_at).or(stopping);
        ends.into_iter().chain(self.keeping.due).min()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    pub(super) fn run(&self) -> RunId {
        self.run
    }

    /// Drops the worker where it stands.
    pub(super) fn kill(self) {
        self.stop.cancel();
        self.task.abort();
    }
}

fn cancelled(stopping: &Stopping) -> Outcome {
    Outcome::Cancelled { reason: stopping.reason, by: stopping.by }
}

fn shutdown_failure() -> Failure {
    Failure {
        code: Code::Eintr,
        reason: "daemon_shutdown".to_owned(),
        message: "the daemon was stopped during this run; send the message again".to_owned(),
    }
}

impl Driver {
    pub(super) fn start_run(&mut self, run: RunId, ready: Option<Ready>) {
        let (Some(ready), Some(core)) = (ready, &self.core) else {
            tracing::error!(session = %self.id, %run, "a run was to start that nothing is ready for");
            return;
        };
        let stop = CancellationToken::new();
        let job = Job {
            session: self.id,
            owner: core.session.meta.owner,
            run,
            kind: core.session.run(run).map(|run| run.kind).unwrap_or_default(),
            strategy: core.session.run(run).and_then(|run| run.strategy),
            limits: self.inner.limits.clone(),
        };
        let port = Arc::new(DriverPort { run, caller: None, link: self.link.clone(), stop: stop.clone() });
        let link = self.link.clone();
        let work = AssertUnwindSafe(self.inner.worker.run(job, port, stop.clone())).catch_unwind();
        let task = tokio::spawn(async move {
            let outcome = work.await.unwrap_or_else(|_| {
                Outcome::Failed(Failure {
                    code: Code::Eio,
                    reason: "worker_panicked".to_owned(),
                    message: "the agent's loop broke; this is a bug in ctx, see the daemon's log".to_owned(),
                })
            });
            link.run_ended(run, outcome).await;
        });
        self.work = Some(Work {
            run,
            stop,
            task: task.abort_handle(),
            slot: Some(ready.slot),
            partial: None,
            keeping: Keeping::default(),
            stopping: None,
            failing: None,
            waiters: Vec::new(),
            prepared: ready.prepared,
            ended: None,
            parked: Vec::new(),
            approvals: Vec::new(),
            subagents: Alive::default(),
            pack: None,
        });
    }

    pub(super) fn is_current(&self, run: RunId) -> bool {
        self.work.as_ref().is_some_and(|work| work.run == run && work.failing.is_none())
    }

    pub(super) fn on_delta(&mut self, run: RunId, message: MessageId, kind: DeltaKind, text: &str) {
        if !self.is_current(run) || text.is_empty() {
            return;
        }
        if let (Some(work), DeltaKind::Text) = (&mut self.work, kind) {
            match &mut work.partial {
                Some(partial) if partial.message_id == message => partial.text.push_str(text),
                other => *other = Some(Partial { message_id: message, text: text.to_owned() }),
            }
            work.keeping.due.get_or_insert_with(|| Instant::now() + KEEP_EVERY);
        }
        self.keep_answer(Instant::now());
        self.live.delta(run, None, message, kind, text);
    }

    /// Keeps the text that clients have seen where the next daemon finds it, if this one is killed. It is not synced, and
    /// what cannot be written is done without: the log alone is durable.
    fn keep_answer(&mut self, now: Instant) {
        let file = self.core.as_ref().and_then(Core::answer_file);
        let Some(work) = &mut self.work else { return };
        if work.keeping.due.is_none_or(|due| now < due) {
            return;
        }
        if work.keeping.task.as_ref().is_some_and(|task| !task.is_finished()) {
            work.keeping.due = Some(now + KEEP_EVERY);
            return;
        }
        work.keeping.due = None;
        let (Some(partial), Some(file)) = (work.partial.clone(), file) else { return };
        let kept = UnderWay { run: work.run, message_id: partial.message_id, text: partial.text };
        work.keeping.task = Some(tokio::task::spawn_blocking(move || {
            let written = serde_json::to_vec(&kept).map(|json| file.write(&json));
            if let Ok(Err(error)) = written {
                tracing::debug!(%error, "the answer under way could not be kept");
            }
        }));
    }

    pub(super) async fn on_progress(
        &mut self,
        run: RunId,
        progress: Progress,
        reply: oneshot::Sender<Result<(), Stopped>>,
    ) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        let (finished, settles_tool) = (progress.finishes(), matches!(progress, Progress::ToolFinished(_)));
        match self.perform_now(Command::Progress { run, caller: None, progress }).await {
            Ok(Answer::Ignored) => {
                let _ = reply.send(Err(Stopped));
            }
            // All of it is in the log: another worker goes on from there.
            Ok(Answer::Held) => self.drop_worker(),
            Ok(_) => {
                if let Some(work) = &mut self.work
                    && work.partial.as_ref().map(|partial| partial.message_id) == finished
                {
                    work.partial = None;
                }
                // The next tool, or the next step, waits for the resume.
                match self.work.as_mut().filter(|_| settles_tool) {
                    Some(work) if self.core.as_ref().is_some_and(is_paused) => {
                        work.parked.push(Parked::Go(reply));
                    }
                    Some(_) | None => {
                        let _ = reply.send(Ok(()));
                    }
                }
            }
            Err(refusal) => {
                self.stop_for_storage(&refusal).await;
                let _ = reply.send(Err(Stopped));
            }
        }
    }

    pub(super) async fn on_blob(&mut self, bytes: Vec<u8>) -> Result<BlobRef, Stopped> {
        match self.blocking(move |core| core.put_blob(&bytes)).await {
            Ok(Ok(blob)) => Ok(blob),
            Ok(Err(refusal)) => {
                self.stop_for_storage(&refusal).await;
                Err(Stopped)
            }
            Err(_) => Err(Stopped),
        }
    }

    /// The worker is done. Whether a cancel or its own end came first is decided by what it returns.
    pub(super) async fn on_run_ended(&mut self, run: RunId, outcome: Outcome) {
        if !self.is_current(run) {
            return;
        }
        let stopping = self.work.as_ref().and_then(|work| work.stopping.as_ref());
        let outcome = match (outcome, stopping) {
            (Outcome::Cancelled { .. }, Some(stopping)) => cancelled(stopping),
            (Outcome::Cancelled { .. }, None) if self.closing.is_some() => {
                Outcome::Failed(shutdown_failure())
            }
            (outcome, _) => outcome,
        };
        self.finish(run, outcome).await;
    }

    /// Writes a run's end, or keeps it for later when there is no room.
    async fn finish(&mut self, run: RunId, outcome: Outcome) {
        let partial = match outcome {
            Outcome::Done => None,
            Outcome::Failed(_) | Outcome::Cancelled { .. } => self.partial(),
        };
        self.pack_is_shown().await;
        let command = Command::FinishRun { run, outcome: outcome.clone(), partial };
        match self.perform_now(command).await {
            Ok(Answer::Held) => self.hold_outcome(outcome),
            Ok(answer) => {
                self.inner.forget_panics(self.id);
                self.work_is_over(&answer);
            }
            Err(_) if self.lost => {}
            Err(refusal) => {
                tracing::error!(session = %self.id, %run, %refusal, "the end of a run waits for room");
                self.hold_end(outcome, &refusal);
            }
        }
    }

    fn hold_end(&mut self, outcome: Outcome, refusal: &Refusal) {
        let Some(work) = &mut self.work else { return };
        work.stop.cancel();
        work.task.abort();
        // Nobody waits for these any more, so none of them may fall due.
        work.approvals.clear();
        work.subagents = Alive::default();
        work.failing = Some(Failing { outcome, retry_at: Instant::now() + RETRY });
        let failure =
            Failure { code: refusal.code, reason: "disk_full".to_owned(), message: refusal.message.clone() };
        self.inner.registry.update(self.id, |summary| summary.failing = Some(failure));
    }

    /// The disk is full in the middle of a run: it is stopped, and its end is written as soon as there is room.
    pub(super) async fn stop_for_storage(&mut self, refusal: &Refusal) {
        if self.lost {
            return;
        }
        let Some(run) = self.work.as_ref().map(|work| work.run) else { return };
        let reason = if refusal.code == Code::Enospc { "disk_full" } else { "storage_refused" };
        let outcome = Outcome::Failed(Failure {
            code: refusal.code,
            reason: reason.to_owned(),
            message: refusal.message.clone(),
        });
        if let Some(work) = &mut self.work {
            work.stop.cancel();
            work.task.abort();
        }
        self.finish(run, outcome).await;
    }

    /// Every command first tries to write the end that is still owed.
    pub(super) async fn try_to_end_failing_run(&mut self) -> Result<(), Refusal> {
        let Some(work) = &mut self.work else { return Ok(()) };
        let Some(failing) = work.failing.take() else { return Ok(()) };
        let (run, outcome, partial) = (work.run, failing.outcome.clone(), work.partial.clone());
        match self.perform_now(Command::FinishRun { run, outcome: outcome.clone(), partial }).await {
            Ok(answer) => {
                self.work_is_over(&answer);
                Ok(())
            }
            Err(refusal) => {
                self.hold_end(outcome, &refusal);
                Err(refusal)
            }
        }
    }

    fn work_is_over(&mut self, answer: &Answer) {
        for waiter in self.work.take().into_iter().flat_map(|work| work.waiters) {
            let _ = waiter.send(Ok(answer.clone()));
        }
    }

    /// Answers when the run is over, with the state it ended in.
    pub(super) async fn on_cancel(
        &mut self,
        run: RunId,
        reason: CancelReason,
        by: Option<u32>,
        reply: ReplyTo<Answer>,
    ) {
        // One that goes on keeps its text when it stops.
        let partial = if self.is_paused() { self.partial() } else { None };
        let asked = self.perform(Command::CancelRun { run, reason, by, partial }, None).await;
        match (&asked, &mut self.work) {
            (Ok(Answer::Run { state, .. }), Some(work)) if work.run == run && !state.is_over() => {
                work.waiters.push(reply);
            }
            _ => {
                let _ = reply.send(asked);
            }
        }
    }

    pub(super) fn stop_run(&mut self, run: RunId, reason: CancelReason, by: Option<u32>) {
        let grace = Duration::from_millis(self.inner.limits.stop_grace_ms);
        let Some(work) = self.work.as_mut().filter(|work| work.run == run) else { return };
        work.stop.cancel();
        // Its processes have the grace time to end by themselves, and are ended then; the worker waits for that.
        let deadline = Instant::now() + grace + grace / 5;
        work.stopping.get_or_insert(Stopping { reason, by, deadline });
    }

    /// The run's end is in the log already: its worker is dropped where it stands.
    pub(super) fn kill_run(&mut self, run: RunId) {
        let Some(work) = self.work.take_if(|work| work.run == run) else { return };
        work.stop.cancel();
        work.task.abort();
        let found = self.core_ref().and_then(|core| core.session.run(run));
        let state = found.map_or(ctx_session::RunState::Cancelled, |run| run.state.clone());
        for waiter in work.waiters {
            let _ = waiter.send(Ok(Answer::Run { run, state: state.clone() }));
        }
    }

    /// A worker that does not stop is given up on; an end that could not be written is tried again.
    pub(super) async fn on_work_deadline(&mut self, now: Instant) {
        self.keep_answer(now);
        let Some(work) = &self.work else { return };
        let run = work.run;
        if work.failing.as_ref().is_some_and(|failing| failing.retry_at <= now) {
            // The refusal is in the log once; what waits is tried until it works.
            let _ = self.try_to_end_failing_run().await;
            return;
        }
        if self.expire_approvals().await || self.expire_subagents().await {
            return;
        }
        let Some(work) = &self.work else { return };
        let overdue = work.stopping.as_ref().filter(|stopping| stopping.deadline <= now).map(cancelled);
        let closing = self.closing.is_some_and(|closing| closing <= now);
        let outcome = match (overdue, closing) {
            (Some(outcome), _) => outcome,
            (None, true) => Outcome::Failed(shutdown_failure()),
            (None, false) => return,
        };
        work.stop.cancel();
        work.task.abort();
        self.finish(run, outcome).await;
        if closing && let Some(work) = self.work.take() {
            tracing::error!(session = %self.id, run = %work.run, "stopped before the end of a run could be written");
        }
    }
}
