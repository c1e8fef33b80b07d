//! The adapter between the engine's port and the agents: each side keeps its own words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_agent::{
    Ask, BoxFuture, DeltaKind, GuardWords, Instructions, JobKind, Models, Prepared as AgentPrepared,
    Recorded, Report, Retry, Step, Stopped,
};
use ctx_engine::port::{self, Job, Prepare, Prepared, RunReport, Worker};
use ctx_session::command::{ApprovalAsk, Approved, Outcome, Progress};
use ctx_session::issue::IssueAct;
use ctx_session::record::{BlobRef, RunKind};
use ctx_session::{CallId, Limits, MessageId, Refusal, Ulid};
use tokio_util::sync::CancellationToken;

use super::projects;
use crate::commands::guard;

/// The agents of a root.
pub(super) struct Agents {
    root: PathBuf,
    models: Arc<Models>,
    limits: Arc<Limits>,
    guard: Arc<GuardWords>,
}

impl Agents {
    pub(super) fn new(root: &Path, limits: Arc<Limits>) -> Agents {
        let models = Arc::new(Models::new(root, limits.clone()));
        // This very program, whatever was installed in its place meanwhile.
        let guard = Arc::new(GuardWords(vec!["/proc/self/exe".into(), guard::NAME.into(), "--".into()]));
        Agents { root: root.to_owned(), models, limits, guard }
    }
}

impl Worker for Agents {
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal> {
        let snapshot = ask.snapshot.as_deref().map(projects::snapshot).transpose()?;
        let recorded = ask.recorded.clone().map(|recorded| Recorded {
            policy: recorded.policy,
            instructions: recorded
                .instructions
                .map(|files| files.into_iter().map(|(source, text)| Instructions { source, text }).collect()),
        });
        let ask = Ask {
            root: &self.root,
            agent: &ask.agent,
            snapshot: snapshot.as_ref(),
            owner: ask.owner,
            model_override: ask.model_override.as_deref(),
            cwd: ask.cwd.as_deref(),
            prompts: &ask.prompts,
            recorded: recorded.as_ref(),
            limits: &self.limits,
        };
        let prepared = ctx_agent::prepare(&ask, &self.models)?;
        Ok(Prepared {
            project: prepared.agent.description.project.clone(),
            context: prepared.context.clone(),
            prompts: prepared
                .prompts
                .iter()
                .map(|prompt| &prompt.text)
                .chain(&prepared.instructions)
                .cloned()
                .collect(),
            delegates: prepared.agent.description.settings.compaction.delegate.is_some(),
            handle: Arc::new(prepared),
        })
    }

    fn run(&self, job: Job, report: RunReport, stop: CancellationToken) -> BoxFuture<'static, Outcome> {
        let (models, guard) = (self.models.clone(), self.guard.clone());
        Box::pin(async move {
            let kind = match job.kind {
                RunKind::Message | RunKind::Continuation => JobKind::Message,
                RunKind::Compaction => JobKind::Compaction { strategy: job.strategy },
            };
            let job = ctx_agent::Job { run: job.run, kind, limits: job.limits, guard };
            ctx_agent::run(job, &models, Arc::new(Told(report)), stop).await
        })
    }
}

/// The engine's report in the agents' words.
struct Told(RunReport);

fn stopped(_: port::Stopped) -> Stopped {
    Stopped
}

impl Report for Told {
    fn new_id(&self) -> Ulid {
        self.0.new_id()
    }

    fn step(&self) -> BoxFuture<'_, Result<Step, Stopped>> {
        Box::pin(async move {
            let step = self.0.step().await.map_err(stopped)?;
            // Whoever prepared a run is the one who works on it.
            let prepared = step.prepared.handle.downcast::<AgentPrepared>().map_err(|_| Stopped)?;
            Ok(Step {
                messages: step.messages,
                pending: step.pending,
                prepared,
                steps: step.steps,
                todos: step.todos,
                pinned: step.pinned,
                elided: step.elided,
                declined: step.declined,
            })
        })
    }

    fn approval(&self, ask: ApprovalAsk) -> BoxFuture<'_, Result<Approved, Stopped>> {
        Box::pin(async move { self.0.approval(ask).await.map_err(stopped) })
    }

    fn checkpoint(&self, call: CallId, reason: Option<String>) -> BoxFuture<'_, Result<(), Stopped>> {
        Box::pin(async move { self.0.pause(call, reason).await.map_err(stopped) })
    }

    fn issue(&self, act: IssueAct) -> BoxFuture<'_, Result<Result<String, Refusal>, Stopped>> {
        Box::pin(async move { self.0.issue(act).await.map_err(stopped) })
    }

    fn output(&self, call: CallId) -> BoxFuture<'_, Result<Result<String, Refusal>, Stopped>> {
        Box::pin(async move { self.0.output(call).await.map_err(stopped) })
    }

    fn pack(&self, json: Vec<u8>) -> BoxFuture<'_, Result<(), Stopped>> {
        Box::pin(async move { self.0.pack(json).await.map_err(stopped) })
    }

    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> BoxFuture<'_, Result<(), Stopped>> {
        let kind = match kind {
            DeltaKind::Text => port::DeltaKind::Text,
            DeltaKind::Reasoning => port::DeltaKind::Reasoning,
        };
        Box::pin(async move { self.0.delta(message, kind, text).await.map_err(stopped) })
    }

    fn progress(&self, progress: Progress) -> BoxFuture<'_, Result<(), Stopped>> {
        Box::pin(async move { self.0.progress(progress).await.map_err(stopped) })
    }

    fn store_blob(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<BlobRef, Stopped>> {
        Box::pin(async move { self.0.store_blob(bytes).await.map_err(stopped) })
    }

    fn retrying(&self, retry: Retry) -> BoxFuture<'_, Result<(), Stopped>> {
        tracing::info!(
            code = %retry.code,
            attempt = retry.attempt,
            of = retry.attempts_max,
            wait_ms = retry.wait_ms,
            "retrying a model call"
        );
        Box::pin(async { Ok(()) })
    }
}
