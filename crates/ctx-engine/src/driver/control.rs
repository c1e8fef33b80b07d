//! The operator's control over a run: pausing it, what waits while it is paused, going on, and approvals.
//!
//! A worker that asks for its next step while the session is paused is dropped: all it knows is in the log, and another
//! goes on from there. Only one in the middle of its tool calls is kept waiting.

use std::time::Duration;

use ctx_session::command::{
    Admission, ApprovalAnswer, ApprovalAsk, Approved, Outcome, Pauser, Progress, StartedTool,
};
use ctx_session::control::ApprovalClock;
use ctx_session::issue::IssueAct;
use ctx_session::project::Strategy;
use ctx_session::record::{ApprovalOutcome, Failure, PromptRef, RunKind};
use ctx_session::rules::wishes_of_retry;
use ctx_session::{
    Answer, ApprovalId, CallId, CheckpointId, Code, Command, CompactionId, Refusal, RunId, Session,
    StateName, SubagentId, Timestamp,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Driver, Mail, Ready};
use crate::core::Core;
use crate::projects::Bound;
use crate::spending::Spender;
use ctx_session::port::{Step, Stopped};

type Answered<T> = oneshot::Sender<Result<T, Stopped>>;

/// What a worker waits for until its session is resumed.
pub(super) enum Parked {
    Go(Answered<()>),
    /// Asked again as it was.
    Again(Box<Mail>),
}

/// A tool call that waits for the operator. Until when is for the session to say.
pub(super) struct Waiting {
    approval: ApprovalId,
    reply: Answered<Approved>,
}

pub(super) fn is_paused(core: &Core) -> bool {
    core.session.state.name() == StateName::Paused
}

/// The prompts that the session has in place of its agent's own. A paused run goes on with those it was paused with,
/// as they were edited there, whatever its agent's files say by now.
pub(super) fn prompts_in_place(session: &Session) -> Vec<PromptRef> {
    let Some(at) = session.paused_at() else { return session.control.prompts.for_next_run() };
    let prompts = at.created.prompts.iter().map(|prompt| PromptRef {
        target: prompt.target.clone(),
        hash: at.prompt(&prompt.target).unwrap_or(&prompt.hash).to_owned(),
    });
    prompts.collect()
}

impl Driver {
    pub(super) fn is_paused(&self) -> bool {
        self.core_ref().is_some_and(is_paused)
    }

    /// The worker goes; what it was about is in the log.
    pub(super) fn drop_worker(&mut self) {
        if let Some(work) = self.work.take() {
            work.kill();
        }
    }

    /// Where the run stands, for its next step.
    pub(super) fn on_step(&mut self, run: RunId, reply: Answered<Step>) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if self.is_paused() {
            self.drop_worker();
            return;
        }
        let (Some(core), Some(work)) = (&self.core, &self.work) else { return };
        let pending = core.session.pending_calls().iter().filter(|call| call.turn_id == run);
        let step = Step {
            prepared: work.prepared.handle.clone(),
            messages: core.conversation.messages(&core.session.ledger),
            pending: pending
                .map(|call| StartedTool {
                    call_id: call.call_id,
                    provider_call_id: call.provider_call_id.clone(),
                    name: call.name.clone(),
                    input: call.input.clone(),
                    provider: call.provider.clone(),
                })
                .collect(),
            steps: core.session.run(run).map_or(0, |run| run.steps),
            todos: self.inner.todos_left(&core.session),
            pinned: core.session.ledger.pinned().collect(),
            elided: core.session.ledger.elided().collect(),
            declined: core.session.control.is_declined(),
        };
        let _ = reply.send(Ok(step));
    }

    /// Shows what the model is sent, beside the answer that comes meanwhile.
    pub(super) async fn on_pack(&mut self, run: RunId, json: Vec<u8>) {
        let Some(file) = self.core_ref().filter(|_| self.is_current(run)).and_then(Core::pack_file) else {
            return;
        };
        self.pack_is_shown().await;
        let Some(work) = &mut self.work else { return };
        work.pack = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = file.write(&json) {
                tracing::warn!(%error, "context/pack.json could not be written");
            }
        }));
    }

    /// Whoever sees the end of a run sees its last pack.
    pub(super) async fn pack_is_shown(&mut self) {
        if let Some(pack) = self.work.as_mut().and_then(|work| work.pack.take()) {
            // It is a view: a panic in it is told of by the runtime and harms nothing.
            let _ = pack.await;
        }
    }

    /// A run that is being cancelled cannot be paused.
    pub(super) fn may_pause(&self) -> Result<(), Refusal> {
        if self.work.as_ref().is_some_and(super::work::Work::is_stopping) {
            return Err(Refusal::new(Code::Ebusy, "the run is being cancelled; there is nothing to pause"));
        }
        Ok(())
    }

    /// The model pauses its own session.
    pub(super) async fn on_pause(
        &mut self,
        run: RunId,
        call: CallId,
        reason: Option<String>,
        reply: Answered<()>,
    ) {
        let is_going_on =
            self.is_current(run) && !self.work.as_ref().is_some_and(super::work::Work::is_stopping);
        if !is_going_on {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if self.is_paused() {
            // The operator was first. What the model wanted is settled when the session goes on.
            let mail = Mail::Pause { run, call, reason, reply };
            if let Some(work) = &mut self.work {
                work.parked.push(Parked::Again(Box::new(mail)));
            }
            return;
        }
        match self.perform_now(Command::Checkpoint { by: Pauser::Model { run, call }, reason }).await {
            Ok(Answer::Checkpoint { .. }) => {
                if let Some(work) = &mut self.work {
                    work.parked.push(Parked::Go(reply));
                }
            }
            Ok(_) => {
                let _ = reply.send(Err(Stopped));
            }
            Err(refusal) => {
                self.stop_for_storage(&refusal).await;
                let _ = reply.send(Err(Stopped));
            }
        }
    }

    pub(super) async fn edit_prompt(
        &mut self,
        checkpoint: CheckpointId,
        target: String,
        content: String,
        by: u32,
    ) -> Result<Answer, Refusal> {
        let max = self.inner.limits.control_file_bytes;
        if content.trim().is_empty() {
            return Err(Refusal::invalid("content", "a prompt must not be empty"));
        }
        if content.len() > max {
            return Err(Refusal::new(Code::Emsgsize, format!("a prompt has at most {max} bytes")));
        }
        let session = &self.core()?.session;
        let at = session.paused_at().filter(|at| at.id() == checkpoint);
        let hash = if at.is_some_and(|at| at.prompt(&target).is_some()) {
            self.blocking(move |core| core.put_blob(content.as_bytes())).await??.sha256
        } else {
            // The rules say why not, and nothing is stored.
            String::new()
        };
        self.perform(Command::EditPrompt { checkpoint, target, hash, by }, None).await
    }

    /// A slot for what a resume makes go on.
    pub(super) async fn admit_resume(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        let needs_slot = session.paused_at().is_some_and(|at| at.id() == checkpoint) && goes_on(session);
        if needs_slot { self.admit_as_it_was().await } else { Ok((Admission::none(), None)) }
    }

    /// A slot for the run of a compaction.
    pub(super) async fn admit_compaction(
        &mut self,
        strategy: Option<Strategy>,
    ) -> Result<(Admission, Option<Ready>), Refusal> {
        if self.core()?.session.state.name() != StateName::Idle {
            return Ok((Admission::none(), None));
        }
        let (admission, ready) = self.admit_as_it_is().await?;
        let delegates = ready.as_ref().is_none_or(|ready| ready.prepared.delegates);
        if strategy == Some(Strategy::Delegate) && !delegates {
            let message = "the agent has no `delegate`; choose drop, summarize or checkpoint";
            return Err(Refusal::invalid("strategy", message));
        }
        Ok((admission, ready))
    }

    /// A slot for a run that is tried again.
    pub(super) async fn admit_retry(&mut self, by: u32) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        if session.state.name() != StateName::Idle {
            return Ok((Admission::none(), None));
        }
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        let wishes = wishes_of_retry(session, by);
        let (admission, ready, _) = self.admit_at(model, cwd, wishes, None).await?;
        Ok((admission, ready))
    }

    /// A slot for what goes on once a proposed compaction is approved.
    pub(super) async fn admit_approval(
        &mut self,
        compaction: CompactionId,
    ) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        let waits = session.paused_at().is_some_and(|at| at.created.compaction_id == Some(compaction));
        if waits && goes_on(session) { self.admit_anew().await } else { Ok((Admission::none(), None)) }
    }

    /// Goes on with a run that was paused.
    pub(super) fn continue_run(&mut self, run: RunId, ready: Option<Ready>) {
        if self.work.as_ref().is_none_or(|work| work.run() != run) {
            self.drop_worker();
            self.start_run(run, ready);
            return;
        }
        let Some(work) = &mut self.work else { return };
        if let Some(ready) = ready {
            work.slot = Some(ready.slot);
            work.prepared = ready.prepared;
        }
        for parked in work.parked.drain(..) {
            match parked {
                Parked::Go(reply) => {
                    let _ = reply.send(Ok(()));
                }
                Parked::Again(mail) => self.link.post_later(*mail),
            }
        }
        if let Some(outcome) = work.ended.take() {
            self.link.post_later(Mail::RunEnded { run, outcome });
        }
    }

    /// The worker is done while its session is paused. Where the log says so too, it is not needed any more.
    pub(super) fn hold_outcome(&mut self, outcome: Outcome) {
        let run = self.work.as_ref().map(super::work::Work::run);
        let is_answered =
            run.is_some_and(|run| self.core_ref().is_some_and(|core| core.session.is_answered(run)));
        if is_answered && outcome == Outcome::Done {
            self.drop_worker();
        } else if let Some(work) = &mut self.work {
            work.ended = Some(outcome);
        }
    }

    /// When the next approval that someone waits for times out. The session has the time; while it is paused, none does.
    pub(super) fn approval_deadline(&self) -> Option<Instant> {
        let control = &self.core_ref()?.session.control;
        let waiting = self.work.iter().flat_map(|work| &work.approvals);
        let expires =
            waiting.filter_map(|waiting| control.approval(waiting.approval)?.clock.expires_at()).min()?;
        Some(Instant::now() + Duration::from_millis(expires.millis_since(self.inner.fresh.now())))
    }

    pub(super) async fn on_approval(
        &mut self,
        run: RunId,
        caller: Option<SubagentId>,
        ask: ApprovalAsk,
        reply: Answered<Approved>,
    ) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if self.is_paused() {
            if let Some(work) = &mut self.work {
                work.parked.push(Parked::Again(Box::new(Mail::Approval { run, caller, ask, reply })));
            }
            return;
        }
        let is_granted = self
            .core_ref()
            .is_some_and(|core| core.session.control.is_granted(&ask.tool, ask.pattern.as_deref()));
        if is_granted || !ask.is_answerable {
            let outcome = if is_granted { ApprovalOutcome::Allow } else { ApprovalOutcome::Deny };
            let _ = reply.send(Ok(Approved { outcome, note: None }));
            return;
        }
        let approval_id = ApprovalId(self.inner.fresh.id());
        let now = self.inner.fresh.now();
        let expires_at =
            Timestamp::from_millis(now.as_millis().saturating_add(self.inner.limits.approval_ms));
        let ApprovalAsk { call: call_id, tool, subject, pattern, diff, is_answerable: _ } = ask;
        let progress =
            Progress::ApprovalRequested { approval_id, call_id, tool, subject, pattern, diff, expires_at };
        match self.perform_now(Command::Progress { run, caller, progress }).await {
            Ok(Answer::Done) => {
                if let Some(work) = &mut self.work {
                    work.approvals.push(Waiting { approval: approval_id, reply });
                }
            }
            Ok(_) => {
                let _ = reply.send(Err(Stopped));
            }
            Err(refusal) => {
                self.stop_for_storage(&refusal).await;
                let _ = reply.send(Err(Stopped));
            }
        }
    }

    /// Tells the worker what came of an approval.
    pub(super) fn tell_approval(&mut self, approval: ApprovalId) {
        let found = self.core_ref().and_then(|core| core.session.control.approval(approval));
        let settled = found.and_then(|found| found.settled.clone());
        let Some(work) = &mut self.work else { return };
        let Some(at) = work.approvals.iter().position(|waiting| waiting.approval == approval) else { return };
        let waiting = work.approvals.swap_remove(at);
        let approved = settled
            .map_or(Approved { outcome: ApprovalOutcome::Interrupted, note: None }, |(settled, _)| {
                Approved { outcome: settled.outcome, note: settled.note }
            });
        let _ = waiting.reply.send(Ok(approved));
    }

    /// Denies what nobody has answered in time; says whether there was something to deny.
    pub(super) async fn expire_approvals(&mut self) -> bool {
        let now = self.inner.fresh.now();
        let Some(core) = self.core_ref() else { return false };
        let is_due = |approval: &ApprovalId| {
            let clock = core.session.control.approval(*approval).map(|approval| approval.clock);
            clock.and_then(ApprovalClock::expires_at).is_some_and(|expires| expires <= now)
        };
        let waiting = self.work.iter().flat_map(|work| &work.approvals);
        let due: Vec<ApprovalId> = waiting.map(|waiting| waiting.approval).filter(is_due).collect();
        for approval in &due {
            let (answer, note) = (ApprovalAnswer::Timeout, None);
            let command = Command::AnswerApproval { approval: *approval, answer, note };
            if let Err(refusal) = self.perform_now(command).await {
                self.stop_for_storage(&refusal).await;
            }
        }
        !due.is_empty()
    }

    /// A run asks something of the bound issue. Another log than the session's: the driver only passes it on.
    pub(super) fn on_issue(&mut self, run: RunId, act: IssueAct, reply: Answered<Result<String, Refusal>>) {
        let Some(core) = self.core_ref().filter(|_| self.is_current(run)) else {
            let _ = reply.send(Err(Stopped));
            return;
        };
        let bound = Bound::of(&core.session);
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            let _ = reply.send(Ok(inner.act_on_issue(&bound, act)));
        });
    }
}

impl Driver {
    /// A run reads back what one of its session's tool calls gave. The log is only read: the driver goes on meanwhile.
    pub(super) fn on_output(&mut self, run: RunId, call: CallId, reply: Answered<Result<String, Refusal>>) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        let (inner, id) = (self.inner.clone(), self.id);
        tokio::task::spawn_blocking(move || {
            let _ = reply.send(Ok(inner.output_of(id, call)));
        });
    }
}

impl Driver {
    /// A run reads a blob of its session: what the user has shown.
    pub(super) fn on_read_blob(
        &mut self,
        run: RunId,
        sha256: String,
        reply: Answered<Result<Vec<u8>, Refusal>>,
    ) {
        let Some(read) =
            self.core_ref().filter(|_| self.is_current(run)).map(|core| core.blob_reader(sha256))
        else {
            let _ = reply.send(Err(Stopped));
            return;
        };
        tokio::task::spawn_blocking(move || {
            let _ = reply.send(Ok(read()));
        });
    }

    /// Whether the run may pay for another model call. The index may have to be asked: the driver goes on meanwhile.
    pub(super) fn on_spend(&mut self, run: RunId, reply: Answered<Result<(), Failure>>) {
        let Some(core) = self.core_ref().filter(|_| self.is_current(run)) else {
            let _ = reply.send(Err(Stopped));
            return;
        };
        if !self.inner.limits.spends_are_limited() {
            let _ = reply.send(Ok(Ok(())));
            return;
        }
        let meta = &core.session.meta;
        let (operator, project) = (meta.owner, meta.project.clone());
        let spender = Spender { operator, project, session: core.session.overview.usage.cost() };
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            let now = inner.fresh.now();
            let _ = reply.send(Ok(inner.spending.check(&spender, &inner.limits, &inner.behind, now)));
        });
    }
}

/// Whether resuming makes a run go on, which needs a slot.
fn goes_on(session: &Session) -> bool {
    match session.current_run() {
        Some(run) => !session.is_answered(run.id),
        // A proposed compaction: the run that proposed it is over, and goes on in another.
        None => {
            let proposer = session.paused_at().and_then(|at| session.run(at.created.turn_id));
            proposer.is_some_and(|run| run.kind != RunKind::Compaction)
        }
    }
}
