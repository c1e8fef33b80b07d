//! The subagents of a session as its log tells them, and what their ends mean.
//!
//! | cause | state | exit code | what the run makes of it |
//! |---|---|---|---|
//! | `answered` | done | 0 | its last text is the result of the call |
//! | `error` | failed | 1 | the call fails, the run goes on |
//! | `spawn_failed` | failed | – | the run fails |
//! | `walltime`, `memory` | killed | 137 | the call fails; the run too, unless other subagents live |
//! | `run_ended` | killed | 137 | the run is over |
//! | `daemon_stopped` | killed | – | the run is over, or goes on without it after a pause |
//!
//! Follows records only; who may start one is decided in [`crate::rules`].

use std::sync::Arc;

use crate::control::ApprovalClock;
use crate::ids::{CallId, RunId, SubagentId};
use crate::record::{
    Body, Caller, ExitCause, MessageBody, Record, RunBody, SessionBody, SnapshotState, StateName,
    SubagentBody, SubagentExited, SubagentSnapshot, SubagentSpawned, SubagentState, ToolBody,
};
use crate::time::Timestamp;

/// Characters of a subagent's output that a checkpoint keeps.
const LAST_OUTPUT_CHARS: usize = 500;
/// Subagents that a checkpoint keeps: those that live, and the newest of those that have exited.
const SNAPSHOTS_MAX: usize = 32;
/// What a shell says of a program that was killed.
const KILLED: i32 = 137;

/// The tool with which the primary starts subagents.
pub const DISPATCH: &str = "agent.dispatch";
/// Tools that the primary has for itself: the issue is its own, and a subagent starts no others.
pub const PRIMARYS_ALONE: [&str; 3] = [DISPATCH, "todo", "issue"];

/// What an end means for the run that asked for the subagent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// The primary reads of it and goes on.
    RunGoesOn,
    RunFails,
}

impl ExitCause {
    pub fn state(self) -> SubagentState {
        match self {
            ExitCause::Answered => SubagentState::Done,
            ExitCause::Error | ExitCause::SpawnFailed => SubagentState::Failed,
            ExitCause::Walltime | ExitCause::Memory | ExitCause::RunEnded | ExitCause::DaemonStopped => {
                SubagentState::Killed
            }
        }
    }

    pub fn exit_code(self) -> Option<i32> {
        match self {
            ExitCause::Answered => Some(0),
            ExitCause::Error => Some(1),
            ExitCause::Walltime | ExitCause::Memory | ExitCause::RunEnded => Some(KILLED),
            ExitCause::SpawnFailed | ExitCause::DaemonStopped => None,
        }
    }

    /// `others`: how many subagents of the run still live.
    pub fn consequence(self, others: usize) -> Consequence {
        match self {
            ExitCause::SpawnFailed => Consequence::RunFails,
            ExitCause::Walltime | ExitCause::Memory if others == 0 => Consequence::RunFails,
            ExitCause::Walltime
            | ExitCause::Memory
            | ExitCause::Answered
            | ExitCause::Error
            | ExitCause::RunEnded
            | ExitCause::DaemonStopped => Consequence::RunGoesOn,
        }
    }

    /// What is said of it where nobody says more.
    pub fn message(self, name: &str) -> Option<String> {
        match self {
            ExitCause::Answered => None,
            ExitCause::Error => Some(format!("Subagent {name} failed.")),
            ExitCause::SpawnFailed => Some(format!("Subagent {name} could not be started.")),
            ExitCause::Walltime => Some(format!("Subagent {name} exceeded walltime limit.")),
            ExitCause::Memory => Some(format!("Subagent {name} exceeded memory limit.")),
            ExitCause::RunEnded => Some(format!("Subagent {name} was killed with its run.")),
            ExitCause::DaemonStopped => Some(format!("Subagent {name} was killed: the daemon stopped.")),
        }
    }
}

impl SubagentState {
    pub fn is_over(self) -> bool {
        match self {
            SubagentState::Spawned | SubagentState::Running => false,
            SubagentState::Done | SubagentState::Failed | SubagentState::Killed => true,
        }
    }
}

/// One subagent, from its start to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    pub spawned: Arc<SubagentSpawned>,
    pub state: SubagentState,
    pub cage_id: Option<String>,
    pub spawned_at: Timestamp,
    pub exited: Option<(SubagentExited, Timestamp)>,
    /// When it has worked for as long as it may. Stands still with a pause.
    pub clock: ApprovalClock,
    /// Model calls that have begun.
    pub steps: u32,
    /// The last text it said.
    pub said: String,
    last_output: String,
}

impl Invocation {
    fn new(spawned: &SubagentSpawned, time: Timestamp) -> Invocation {
        let until = Timestamp::from_millis(time.as_millis().saturating_add(spawned.walltime_ms));
        Invocation {
            spawned: Arc::new(spawned.clone()),
            state: SubagentState::Spawned,
            cage_id: None,
            spawned_at: time,
            exited: None,
            clock: ApprovalClock::Until(until),
            steps: 0,
            said: String::new(),
            last_output: String::new(),
        }
    }

    pub fn id(&self) -> SubagentId {
        self.spawned.invocation_id
    }

    pub fn run(&self) -> RunId {
        self.spawned.turn_id
    }

    pub fn call(&self) -> CallId {
        self.spawned.call_id
    }

    pub fn name(&self) -> &str {
        &self.spawned.name
    }

    pub fn is_alive(&self) -> bool {
        !self.state.is_over()
    }

    /// As the records of what it does name it.
    pub fn caller(&self) -> Caller {
        Caller { name: self.spawned.name.clone(), invocation_id: self.id() }
    }

    /// The record of its end.
    pub fn exit(&self, cause: ExitCause, message: Option<String>, now: Timestamp) -> SubagentExited {
        SubagentExited {
            turn_id: self.run(),
            invocation_id: self.id(),
            name: self.spawned.name.clone(),
            state: cause.state(),
            cause,
            exit_code: cause.exit_code(),
            duration_ms: now.millis_since(self.spawned_at),
            message: message.or_else(|| cause.message(self.name())),
        }
    }

    fn end(&mut self, exited: SubagentExited, time: Timestamp) {
        self.state = exited.state;
        self.exited = Some((exited, time));
    }

    fn put_out(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.last_output);
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(text);
        let skip = all.char_indices().rev().nth(LAST_OUTPUT_CHARS - 1).map_or(0, |(at, _)| at);
        self.last_output = all.get(skip..).unwrap_or_default().to_owned();
    }

    fn snapshot(&self) -> SubagentSnapshot {
        SubagentSnapshot {
            invocation_id: self.id(),
            name: self.spawned.name.clone(),
            state: if self.is_alive() { SnapshotState::Suspended } else { SnapshotState::Exited },
            cage_id: self.cage_id.clone(),
            last_output: self.last_output.clone(),
            pty_id: None,
        }
    }
}

/// All subagents of a session, in the order in which they began.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subagents {
    all: Vec<Invocation>,
}

impl Subagents {
    pub fn get(&self, id: SubagentId) -> Option<&Invocation> {
        self.all.iter().rev().find(|invocation| invocation.id() == id)
    }

    pub fn of_run(&self, run: RunId) -> impl DoubleEndedIterator<Item = &Invocation> {
        self.all.iter().filter(move |invocation| invocation.run() == run)
    }

    pub fn alive(&self) -> impl DoubleEndedIterator<Item = &Invocation> {
        self.all.iter().filter(|invocation| invocation.is_alive())
    }

    /// Those of a run that live.
    pub fn alive_in(&self, run: RunId) -> impl DoubleEndedIterator<Item = &Invocation> {
        self.of_run(run).filter(|invocation| invocation.is_alive())
    }

    /// What a checkpoint of this run keeps.
    pub fn snapshots(&self, run: RunId) -> Vec<SubagentSnapshot> {
        let mut kept: Vec<&Invocation> = self.alive_in(run).collect();
        let exited = self.of_run(run).rev().filter(|invocation| !invocation.is_alive());
        kept.extend(exited.take(SNAPSHOTS_MAX.saturating_sub(kept.len())));
        kept.sort_by_key(|invocation| invocation.id());
        kept.into_iter().map(Invocation::snapshot).collect()
    }

    pub fn apply(&mut self, record: &Record) {
        let time = record.time;
        match &record.body {
            Body::Subagent(body) => self.apply_own(body, time),
            Body::Message(MessageBody::AssistantStarted(step)) => {
                self.change(step.caller.as_ref(), |invocation| invocation.steps += 1);
            }
            Body::Message(MessageBody::AssistantFinished(message)) => {
                self.change(message.caller.as_ref(), |invocation| {
                    if !message.text.is_empty() {
                        invocation.said.clone_from(&message.text);
                        invocation.put_out(&message.text);
                    }
                });
            }
            Body::Tool(ToolBody::Finished(tool)) => {
                self.change(tool.caller.as_ref(), |invocation| invocation.put_out(&tool.output));
            }
            Body::Session(SessionBody::StateChanged(change)) => self.follow_pause(change.to, time),
            // What was copied goes on in the source alone.
            Body::Session(SessionBody::Forked(_)) => self.kill(ExitCause::DaemonStopped, time, |_| true),
            // Damage may have taken the record of an end; its run is over all the same.
            Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)) => {
                let run = record.body.run();
                self.kill(ExitCause::RunEnded, time, |invocation| Some(invocation.run()) == run);
                self.forget_texts(run);
            }
            Body::Session(_)
            | Body::Run(_)
            | Body::Message(_)
            | Body::Tool(_)
            | Body::Checkpoint(_)
            | Body::Compaction(_)
            | Body::Terminal(_)
            | Body::Approval(_) => {}
        }
    }

    fn apply_own(&mut self, body: &SubagentBody, time: Timestamp) {
        match body {
            // A repeated line must not bring one back that is over.
            SubagentBody::Spawned(spawned) if self.get(spawned.invocation_id).is_none() => {
                self.all.push(Invocation::new(spawned, time));
            }
            SubagentBody::Spawned(_) => {}
            SubagentBody::Running(running) => self.change_alive(running.invocation_id, |invocation| {
                invocation.state = SubagentState::Running;
                invocation.cage_id.clone_from(&running.cage_id);
            }),
            SubagentBody::Exited(exited) => {
                self.change_alive(exited.invocation_id, |invocation| invocation.end(exited.clone(), time));
            }
        }
    }

    fn change(&mut self, caller: Option<&Caller>, change: impl FnOnce(&mut Invocation)) {
        if let Some(caller) = caller {
            self.change_alive(caller.invocation_id, change);
        }
    }

    fn change_alive(&mut self, id: SubagentId, change: impl FnOnce(&mut Invocation)) {
        let alive = self.all.iter_mut().rev().find(|invocation| invocation.id() == id);
        if let Some(invocation) = alive.filter(|invocation| invocation.is_alive()) {
            change(invocation);
        }
    }

    fn kill(&mut self, cause: ExitCause, time: Timestamp, which: impl Fn(&Invocation) -> bool) {
        for invocation in self.all.iter_mut().filter(|invocation| invocation.is_alive()) {
            if which(invocation) {
                let exited = invocation.exit(cause, None, time);
                invocation.end(exited, time);
            }
        }
    }

    /// Texts that only a run which goes on needs; the log has them.
    fn forget_texts(&mut self, run: Option<RunId>) {
        for invocation in self.all.iter_mut().filter(|invocation| Some(invocation.run()) == run) {
            Arc::make_mut(&mut invocation.spawned).prompt = String::new();
            invocation.said = String::new();
        }
    }

    /// The time that a subagent may work stands still while its session is paused.
    fn follow_pause(&mut self, to: StateName, now: Timestamp) {
        for invocation in self.all.iter_mut().filter(|invocation| invocation.is_alive()) {
            invocation.clock = match to {
                StateName::Paused => invocation.clock.stop(now),
                StateName::Running
                | StateName::Idle
                | StateName::Queued
                | StateName::Ended
                | StateName::Failed => invocation.clock.start(now),
            };
        }
    }
}
