//! The rules: which command is allowed in which state, what it writes, and what it starts.
//!
//! ```text
//! idle    -> running  message_posted        paused  -> running  checkpoint_resumed
//! idle    -> queued   concurrency_limit     paused  -> idle     checkpoint_resumed
//! idle    -> running  compaction_requested  paused  -> idle     rolled_back
//! queued  -> running  queue_resumed         paused  -> idle     run_cancelled
//! queued  -> idle     queued_discarded      paused  -> running  compaction_approved
//! running -> idle     run_completed         paused  -> idle     compaction_approved
//! running -> idle     run_failed            paused  -> idle     compaction_rejected
//! running -> idle     run_cancelled         running -> ended    session_ended
//! running -> idle     crash_recovered       running -> failed   session_failed
//! running -> paused   checkpoint            queued  -> ended    session_ended
//! idle    -> ended    session_ended         queued  -> failed   session_failed
//! idle    -> failed   session_failed        paused  -> ended    session_ended
//! failed  -> ended    session_ended         paused  -> failed   session_failed
//! idle    -> running  run_retried
//! ```
//!
//! A test walks every pair of state and command and compares what it finds with this table. One file per
//! subject; each matches every state, so that a new state does not compile until it is decided here.

mod approval;
mod archive;
mod attach;
mod bind;
mod checkpoint;
mod compaction;
mod create;
mod end;
mod fork;
mod import;
mod left_open;
mod pin;
mod post;
mod queue;
mod recover;
mod retry;
mod run;
mod settings;
mod subagent;
mod terminal;

pub use archive::may_purge;
pub use create::{Create, Dsl, create};
pub use fork::Fork;
pub use import::{Added, Known, Marked, UNKNOWN_CALL, may_import};
pub use post::check_message;
pub use retry::wishes_of_retry;

use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, Command, Decision, Effect, RunContext};
use crate::ids::{IdSource, RunId};
use crate::limits::Limits;
use crate::record::{Body, LimitScope, RunKind, SessionBody, StateChanged, StateName, Trigger};
use crate::request::{RequestKey, Requested};
use crate::session::Session;
use crate::time::Timestamp;

/// What the rules are handed besides the session: the time, fresh ids and the limits that hold.
pub struct Given<'a> {
    pub now: Timestamp,
    pub ids: &'a mut IdSource,
    pub limits: &'a Limits,
}

impl Session {
    /// Decides a command. A refusal writes nothing; a decision's records are applied once they are durable.
    pub fn decide(&self, command: &Command, given: &mut Given<'_>) -> Result<Decision, Refusal> {
        match command {
            Command::PostMessage(post) => post::post_message(self, post, given),
            Command::ResumeQueued { admission, by } => queue::resume_queued(self, admission, *by),
            Command::DiscardQueued { by } => queue::discard_queued(self, *by),
            Command::Progress { run, caller, progress } => {
                run::progress(self, *run, *caller, progress, given)
            }
            Command::FinishRun { run, outcome, partial } => {
                run::finish_run(self, *run, outcome, partial.as_ref(), given.now)
            }
            Command::CancelRun { run, reason, by, partial } => {
                run::cancel_run(self, *run, *reason, *by, partial.as_ref(), given.now)
            }
            Command::Checkpoint { by, reason } => checkpoint::checkpoint(self, *by, reason.as_deref(), given),
            Command::EditPrompt { checkpoint, target, hash, by } => {
                checkpoint::edit_prompt(self, *checkpoint, target, hash, *by)
            }
            Command::Resume { checkpoint, admission, by, message } => {
                checkpoint::resume(self, *checkpoint, admission, *by, message.as_deref(), given)
            }
            Command::Rollback { checkpoint, by, partial, files } => {
                checkpoint::rollback(self, *checkpoint, *by, partial.as_ref(), *files, given)
            }
            Command::Compact { strategy, admission, by } => {
                compaction::compact(self, *strategy, admission, *by, given)
            }
            Command::Retry { admission, by } => retry::retry(self, admission, *by, given),
            Command::ApproveCompaction { compaction, edits, admission, by } => {
                compaction::approve(self, *compaction, edits, admission, *by, given)
            }
            Command::RejectCompaction { compaction, by } => compaction::reject(self, *compaction, *by, given),
            Command::FlagCompaction { compaction, flag, notes, by } => {
                compaction::flag(self, *compaction, *flag, notes.as_ref(), *by, given.limits)
            }
            Command::AnswerApproval { approval, answer, note } => {
                approval::answer_approval(self, *approval, *answer, note.as_deref(), given.limits)
            }
            Command::Bind { issue, by } => bind::bind(self, *issue, *by),
            Command::Unbind { by } => bind::unbind(self, *by),
            Command::Once { key, command } => self.decide_once(key, command, given),
            Command::Change(change) => settings::change(self, change, given.limits),
            Command::Terminal(act) => terminal::terminal(self, act, given),
            Command::Import(import) => import::import(self, import, given.now),
            Command::UndoImport(undo) => import::undo(self, undo, given.now),
            Command::Pin { message, pinned, by } => pin::pin(self, *message, *pinned, *by),
            Command::Attach { connection, user, device_hint, takeover } => {
                attach::attach(self, *connection, *user, device_hint.as_deref(), *takeover, given.now)
            }
            Command::Detach { connection, reason } => attach::detach(self, *connection, *reason),
            Command::End { by, partial } => end::end(self, *by, partial.as_ref(), given.now),
            Command::Fail { failure, partial } => end::fail(self, failure, partial.as_ref(), given.now),
            Command::Recover { cause, under_way } => {
                recover::recover(self, *cause, under_way.as_ref(), given.now)
            }
        }
    }
}

impl Session {
    /// Whether a message may begin a run, asked before a slot is taken and the agent's files are read. A message
    /// whose client id began a run before gets its answer here.
    pub fn may_post(
        &self,
        text: &str,
        client_id: Option<&str>,
        limits: &Limits,
    ) -> Result<Option<Answer>, Refusal> {
        post::may_post(self, text, client_id, limits)
    }
}

impl Session {
    /// Whether a run may start one more subagent. The refusal is for the model to read.
    pub fn may_spawn(&self, run: RunId, limits: &Limits) -> Result<(), Refusal> {
        subagent::may_spawn(self, run, limits)
    }

    /// The answer to a request that was carried out before.
    pub fn repeated(&self, key: &RequestKey) -> Result<Option<Answer>, Refusal> {
        let Some(found) = self.requests.find(key)? else { return Ok(None) };
        let run = found.turn_id.and_then(|run| self.run(run));
        Ok(Some(match (found.checkpoint_id, run) {
            (Some(checkpoint), _) => Answer::Checkpoint { checkpoint },
            (None, Some(run)) if run.kind == RunKind::Message => {
                let message = queue::message_of(run);
                Answer::Posted { run: run.id, message, state: run.state.clone(), repeated: true }
            }
            (None, Some(run)) => Answer::Run { run: run.id, state: run.state.clone() },
            (None, None) => Answer::Done,
        }))
    }

    /// Decides a command that carries a key: as without one, but once.
    fn decide_once(
        &self,
        key: &RequestKey,
        command: &Command,
        given: &mut Given<'_>,
    ) -> Result<Decision, Refusal> {
        if let Some(answer) = self.repeated(key)? {
            return Ok(self::answer(answer));
        }
        let mut decision = self.decide(command, given)?;
        let (turn_id, checkpoint_id) = match &decision.answer {
            Answer::Posted { run, .. } | Answer::Run { run, .. } => (Some(*run), None),
            Answer::Checkpoint { checkpoint } => (None, Some(*checkpoint)),
            Answer::Done | Answer::Held | Answer::Ignored => (None, None),
        };
        if !decision.records.is_empty() {
            // First: the last record of a command that moves the state is the move.
            let requested = Requested { key: key.clone(), turn_id, checkpoint_id, issue_id: None };
            decision.records.insert(0, Body::Session(SessionBody::Requested(requested)));
        }
        Ok(decision)
    }
}

/// A decision that writes nothing and starts nothing.
fn answer(answer: Answer) -> Decision {
    Decision { records: Vec::new(), effects: Vec::new(), answer }
}

/// The refusal of everything that a session which is over no longer does.
fn over(session: &Session) -> Refusal {
    let state = session.state.name();
    Refusal::new(
        Code::Eshutdown,
        format!("the session has {state}; send a message under another name to start a new one"),
    )
}

/// Under what a run would work, when there is a place for it.
fn slot_of(admission: &Admission) -> Result<&RunContext, Refusal> {
    match admission {
        Admission::Granted { context, .. } => Ok(context),
        Admission::Full(hit) => {
            let whose = match hit.scope {
                LimitScope::PerProject => "in this project",
                LimitScope::PerOperator => "of this operator",
            };
            let message = format!(
                "{} of {} runs {whose} are busy; wait for one to end, or cancel one",
                hit.running, hit.limit
            );
            Err(Refusal::new(Code::Ebusy, message))
        }
    }
}

fn busy(message: &str) -> Refusal {
    Refusal::new(Code::Ebusy, message)
}

/// The last record of every command that moves the state.
fn moved(from: StateName, to: StateName, trigger: Trigger, by: Option<u32>) -> Body {
    Body::Session(SessionBody::StateChanged(StateChanged { from, to, trigger, by, limit: None }))
}

/// The running count changed when exactly one side of a move is running.
fn count_changed(from: StateName, to: StateName) -> Option<Effect> {
    ((from == StateName::Running) != (to == StateName::Running)).then_some(Effect::BroadcastRunning)
}
