//! A subagent: the same loop over a way of its own to the session, with a model, a prompt and a conversation of its own.
//!
//! It is part of the run that asked for it and ends with it. Its time is counted by the session, which also says what
//! became of it; its last text is the result of the call.

use std::sync::Arc;

use ctx_cage::Limit;
use ctx_session::command::{Exit, Outcome, Progress, Spawn};
use ctx_session::port::{Reaped, RunPort, Stopped};
use ctx_session::record::{ExitCause, Failure};
use ctx_session::subagent::Consequence;
use ctx_session::{CallId, Code, SubagentId};

use super::{End, Job, JobKind, cancelled, run};
use crate::BoxFuture;
use crate::model::Models;
use crate::prepare::Agent;
use crate::shells::ShellKey;
use crate::tool::dispatch::Dispatched;
use crate::tool::{Scope, ToolError};

/// Reasons of failures.
const SPAWN_FAILED: &str = "subagent_spawn";
const OUT_OF_MEMORY: &str = "subagent_memory";

/// The subagent that a job is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    pub id: SubagentId,
    pub name: String,
}

/// Who runs the subagents of a run.
pub(super) struct Dispatcher<'a> {
    pub job: &'a Job,
    pub models: &'a Models,
    pub agent: &'a Agent,
}

impl Dispatcher<'_> {
    /// Runs a subagent to its end. The inner error is for the model to read. Boxed: a loop in a loop.
    pub(super) fn dispatch<'a>(
        &'a self,
        call: CallId,
        asked: Dispatched,
        port: &'a dyn RunPort,
    ) -> BoxFuture<'a, Result<Result<String, ToolError>, End>> {
        Box::pin(async move {
            let spawn = match self.spawn(call, asked, port) {
                Ok(spawn) => spawn,
                Err(error) => return Ok(Err(error)),
            };
            let who = Who { id: spawn.invocation_id, name: spawn.name.clone() };
            let own = match port.spawn(spawn).await? {
                Ok(own) => own,
                Err(refusal) => return Ok(Err(ToolError::new(refusal.code, refusal.message))),
            };
            let exit = exit_of(self.work(&who, own).await);
            if let Some(shells) = &self.job.services.shells {
                shells.forget(ShellKey { session: self.job.session, subagent: Some(who.id.0) }).await;
            }
            let reaped = port.reap(who.id, exit).await?;
            result_of(&who.name, reaped)
        })
    }

    fn spawn(&self, call: CallId, asked: Dispatched, port: &dyn RunPort) -> Result<Spawn, ToolError> {
        let Dispatched { agent: name, prompt } = asked;
        let wrong = |message| ToolError::new(Code::Enoent, message);
        let (model, _) = self.agent.subagent(&name).map_err(wrong)?;
        let model = self.models.resolve_for(&model, self.agent.owner).map_err(|error| {
            let message = format!("the model of the subagent `{name}`: {error}");
            ToolError::new(Code::Enoent, message)
        })?;
        let subagents = &self.agent.description.settings.subagents;
        let asked = subagents.iter().find(|(known, _)| known.as_str() == name).map(|(_, found)| &found.cage);
        let walltime_ms = asked.and_then(|cage| cage.walltime_ms);
        let usual = self.job.limits.subagent_walltime_ms;
        // What is wrong with its cage is said when it needs it.
        let cage = asked.and_then(|asked| self.agent.cages.of_subagent(asked, usual).ok().flatten());
        Ok(Spawn {
            invocation_id: SubagentId(port.new_id()),
            call_id: call,
            name,
            model: model.to_string(),
            prompt,
            walltime_ms,
            memory_bytes: cage.map(|cage| cage.limits.memory_bytes),
        })
    }

    /// Starts the cage of a subagent that is about to run its first command. One that cannot be started ends the run.
    pub(super) async fn enter_cage(&self, scope: &Scope, port: &dyn RunPort) -> Result<(), End> {
        let (Some(who), Some(shells)) = (&self.job.subagent, &self.job.services.shells) else {
            return Ok(());
        };
        if shells.is_open(scope.shell.key) {
            return Ok(());
        }
        let opened = match &scope.shell.want {
            Ok(want) => shells.open(scope.shell.key, want).await,
            Err(refusal) => Err(refusal.clone()),
        };
        match opened {
            Ok(Some(cage)) => Ok(port.progress(Progress::SubagentRunning { cage_id: Some(cage) }).await?),
            Ok(None) => Ok(()),
            Err(refusal) => Err(End::Failed(Failure {
                code: refusal.code,
                reason: SPAWN_FAILED.to_owned(),
                message: format!("Subagent {} could not be started: {}", who.name, refusal.message),
            })),
        }
    }

    /// Its loop, until it ends or is stopped.
    async fn work(&self, who: &Who, own: Arc<dyn RunPort>) -> Outcome {
        let stop = self.job.stop.child_token();
        // Work that cannot be dropped looks at it.
        let _guard = stop.clone().drop_guard();
        let job = Job { kind: JobKind::Message, subagent: Some(who.clone()), stop, ..self.job.clone() };
        let work = async {
            match own.progress(Progress::SubagentRunning { cage_id: None }).await {
                Ok(()) => run(job, self.models, Arc::clone(&own)).await,
                Err(Stopped) => cancelled(),
            }
        };
        tokio::select! {
            biased;
            () = own.stopped() => cancelled(),
            outcome = work => outcome,
        }
    }
}

/// A subagent whose cage was ended for its memory ends with it.
pub(super) fn check_memory(job: &Job, scope: &Scope) -> Result<(), End> {
    let (Some(who), Some(shells)) = (&job.subagent, &job.services.shells) else { return Ok(()) };
    if shells.limit_reached(scope.shell.key) != Some(Limit::Memory) {
        return Ok(());
    }
    let message = ExitCause::Memory.message(&who.name).unwrap_or_default();
    Err(End::Failed(Failure { code: Code::Enomem, reason: OUT_OF_MEMORY.to_owned(), message }))
}

/// What the end of its loop was. Where the session ended it before, it knows why.
fn exit_of(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::Done => Exit { cause: ExitCause::Answered, message: None },
        Outcome::Failed(failure) if failure.reason == SPAWN_FAILED => {
            Exit { cause: ExitCause::SpawnFailed, message: Some(failure.message) }
        }
        Outcome::Failed(failure) if failure.reason == OUT_OF_MEMORY => {
            Exit { cause: ExitCause::Memory, message: None }
        }
        Outcome::Failed(failure) => {
            let message = Some(format!("{}: {}", failure.code, failure.message));
            Exit { cause: ExitCause::Error, message }
        }
        Outcome::Cancelled { .. } => Exit { cause: ExitCause::RunEnded, message: None },
    }
}

/// What the call that asked for it comes to, or that the run is over.
fn result_of(name: &str, reaped: Reaped) -> Result<Result<String, ToolError>, End> {
    let Reaped { cause, message, said, consequence } = reaped;
    let (code, reason) = match cause {
        ExitCause::Answered if said.is_empty() => return Ok(Ok(format!("[{name} ended without a word]"))),
        ExitCause::Answered => return Ok(Ok(said)),
        ExitCause::Error => (Code::Eio, "subagent_failed"),
        ExitCause::SpawnFailed => (Code::Enoexec, SPAWN_FAILED),
        ExitCause::Walltime => (Code::Etimedout, "subagent_walltime"),
        ExitCause::Memory => (Code::Enomem, OUT_OF_MEMORY),
        ExitCause::RunEnded | ExitCause::DaemonStopped => (Code::Eintr, "subagent_killed"),
    };
    let message = message.unwrap_or_else(|| format!("Subagent {name} ended."));
    match consequence {
        Consequence::RunFails => Err(End::Failed(Failure { code, reason: reason.to_owned(), message })),
        Consequence::RunGoesOn if said.is_empty() => Ok(Err(ToolError::new(code, message))),
        Consequence::RunGoesOn => {
            Ok(Err(ToolError::new(code, format!("{message} The last it said was:\n{said}"))))
        }
    }
}
