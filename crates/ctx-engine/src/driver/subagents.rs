//! The subagents of the run that goes on: their loops are parts of its worker, and speak to the session by ways of their
//! own. Here they are started, heard, stopped at their time, and ended.
//!
//! Unlike the primary's, a subagent's loop is kept through a pause wherever it stands: what it asks for while its session
//! is paused is asked again when that goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{Exit, Partial, Progress, Spawn};
use ctx_session::control::ApprovalClock;
use ctx_session::port::{DeltaKind, Reaped, Step, Stopped};
use ctx_session::record::{Caller, ExitCause};
use ctx_session::{Answer, Command, MessageId, Refusal, RunId, SubagentId};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::control::Parked;
use super::mail::Spawned;
use super::run_port::DriverPort;
use super::{Driver, Mail};

type Answered<T> = oneshot::Sender<Result<T, Stopped>>;

/// The loops of subagents that are at work.
#[derive(Default)]
pub(super) struct Alive {
    loops: HashMap<SubagentId, Loop>,
}

struct Loop {
    stop: CancellationToken,
    /// What it has said of a message that is not finished.
    partial: Option<Partial>,
}

impl Driver {
    pub(super) async fn on_spawn(&mut self, run: RunId, spawn: Spawn, reply: Answered<Spawned>) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if self.is_paused() {
            self.park(Mail::Spawn { run, spawn, reply });
            return;
        }
        let room = self.core().and_then(|core| core.session.may_spawn(run, &self.inner.limits));
        if let Err(refusal) = room {
            let _ = reply.send(Ok(Err(refusal)));
            return;
        }
        let (id, name) = (spawn.invocation_id, spawn.name.clone());
        let progress = Progress::SubagentSpawned(Box::new(spawn));
        match self.perform_now(Command::Progress { run, caller: None, progress }).await {
            Ok(Answer::Done) => {
                let Some(work) = &mut self.work else { return };
                let stop = work.stop.child_token();
                work.subagents.loops.insert(id, Loop { stop: stop.clone(), partial: None });
                let caller = Some(Caller { name, invocation_id: id });
                let port = DriverPort { run, caller, link: self.link.clone(), stop };
                let _ = reply.send(Ok(Ok(Arc::new(port))));
            }
            Ok(_) => drop(reply.send(Err(Stopped))),
            Err(refusal) => {
                self.stop_for_storage(&refusal).await;
                let _ = reply.send(Err(Stopped));
            }
        }
    }

    /// Where a subagent stands, for its next step.
    pub(super) fn on_subagent_step(&mut self, run: RunId, id: SubagentId, reply: Answered<Step>) {
        if !self.is_at_work(run, id) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if self.is_paused() {
            self.park(Mail::Step { run, caller: Some(id), reply });
            return;
        }
        let (Some(core), Some(work)) = (&self.core, &self.work) else { return };
        let Some(subagent) = core.session.subagents.get(id) else { return };
        let step = Step {
            prepared: work.prepared.handle.clone(),
            messages: core.conversation.messages_of(&core.session.ledger, subagent),
            pending: Vec::new(),
            steps: subagent.steps,
            todos: Vec::new(),
            pinned: core.session.ledger.pinned().collect(),
            elided: core.session.ledger.elided().collect(),
            declined: false,
        };
        let _ = reply.send(Ok(step));
    }

    pub(super) fn on_subagent_delta(
        &mut self,
        run: RunId,
        caller: Caller,
        message: MessageId,
        kind: DeltaKind,
        text: &str,
    ) {
        if !self.is_at_work(run, caller.invocation_id) || text.is_empty() {
            return;
        }
        if let (Some(at_work), DeltaKind::Text) = (self.loop_of(caller.invocation_id), kind) {
            match &mut at_work.partial {
                Some(partial) if partial.message_id == message => partial.text.push_str(text),
                other => *other = Some(Partial { message_id: message, text: text.to_owned() }),
            }
        }
        self.live.delta(run, Some(caller), message, kind, text);
    }

    pub(super) async fn on_subagent_progress(
        &mut self,
        run: RunId,
        id: SubagentId,
        progress: Progress,
        reply: Answered<()>,
    ) {
        if !self.is_at_work(run, id) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        let finishes = progress.finishes().is_some();
        let settles_tool = matches!(progress, Progress::ToolFinished { .. });
        // What is held is the last of several; the others are in the log then.
        let last = progress.each().last().cloned();
        let performed = self.perform_now(Command::Progress { run, caller: Some(id), progress }).await;
        if let (Ok(Answer::Held | Answer::Done), Some(at_work)) = (&performed, self.loop_of(id))
            && finishes
        {
            at_work.partial = None;
        }
        match (performed, last) {
            (Ok(Answer::Held), Some(progress)) => {
                self.park(Mail::Progress { run, caller: Some(id), progress, reply });
            }
            (Ok(Answer::Ignored), _) => drop(reply.send(Err(Stopped))),
            (Ok(_), _) => {
                // The next tool waits for the resume.
                match self.work.as_mut().filter(|_| settles_tool) {
                    Some(work) if self.core.as_ref().is_some_and(super::control::is_paused) => {
                        work.parked.push(Parked::Go(reply));
                    }
                    Some(_) | None => drop(reply.send(Ok(()))),
                }
            }
            (Err(refusal), _) => {
                self.stop_for_storage(&refusal).await;
                let _ = reply.send(Err(Stopped));
            }
        }
    }

    /// A subagent's loop is over. Where something else ended it before, that is what it came to.
    pub(super) async fn on_reap(&mut self, run: RunId, id: SubagentId, exit: Exit, reply: Answered<Reaped>) {
        if !self.is_current(run) {
            let _ = reply.send(Err(Stopped));
            return;
        }
        if let Err(refusal) = self.end_subagent(run, id, exit).await {
            self.stop_for_storage(&refusal).await;
            let _ = reply.send(Err(Stopped));
            return;
        }
        let session = self.core_ref().map(|core| &core.session);
        let reaped = session.and_then(|session| {
            let ended = session.subagents.get(id)?;
            let (exited, _) = ended.exited.as_ref()?;
            let others = session.subagents.alive_in(run).count();
            Some(Reaped {
                cause: exited.cause,
                message: exited.message.clone(),
                said: ended.said.clone(),
                consequence: exited.cause.consequence(others),
            })
        });
        let _ = reply.send(reaped.ok_or(Stopped));
    }

    async fn end_subagent(&mut self, run: RunId, id: SubagentId, exit: Exit) -> Result<(), Refusal> {
        let at_work = self.work.as_mut().and_then(|work| work.subagents.loops.remove(&id));
        let Some(Loop { stop, partial }) = at_work else { return Ok(()) };
        stop.cancel();
        let progress = Progress::SubagentExited { exit, partial };
        self.perform_now(Command::Progress { run, caller: Some(id), progress }).await.map(drop)
    }

    /// When the next subagent has worked for as long as it may. While the session is paused, none has.
    pub(super) fn walltime_deadline(&self) -> Option<Instant> {
        let ends = self.at_work().filter_map(|(_, clock)| clock.expires_at()).min()?;
        Some(Instant::now() + Duration::from_millis(ends.millis_since(self.inner.fresh.now())))
    }

    /// Kills the subagents whose time is over; says whether there was one.
    pub(super) async fn expire_subagents(&mut self) -> bool {
        let now = self.inner.fresh.now();
        let Some(run) = self.work.as_ref().map(super::work::Work::run) else { return false };
        let is_due = |clock: ApprovalClock| clock.expires_at().is_some_and(|ends| ends <= now);
        let due: Vec<SubagentId> =
            self.at_work().filter(|(_, clock)| is_due(*clock)).map(|(id, _)| id).collect();
        for id in &due {
            let exit = Exit { cause: ExitCause::Walltime, message: None };
            if let Err(refusal) = self.end_subagent(run, *id, exit).await {
                self.stop_for_storage(&refusal).await;
            }
        }
        !due.is_empty()
    }

    /// The subagents whose loops are at work, with how long they may be.
    fn at_work(&self) -> impl Iterator<Item = (SubagentId, ApprovalClock)> + '_ {
        let loops = self.work.iter().flat_map(|work| work.subagents.loops.keys());
        loops.filter_map(|id| Some((*id, self.core_ref()?.session.subagents.get(*id)?.clock)))
    }

    fn is_at_work(&self, run: RunId, id: SubagentId) -> bool {
        self.is_current(run) && self.work.as_ref().is_some_and(|work| work.subagents.loops.contains_key(&id))
    }

    fn loop_of(&mut self, id: SubagentId) -> Option<&mut Loop> {
        self.work.as_mut()?.subagents.loops.get_mut(&id)
    }

    /// Asked again when the session goes on.
    fn park(&mut self, mail: Mail) {
        if let Some(work) = &mut self.work {
            work.parked.push(Parked::Again(Box::new(mail)));
        }
    }
}
