//! The agents of a root behind the engine's port. What a run says to its session goes through [`RunPort`], which both
//! sides know.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_agent::{Ask, BoxFuture, GuardWords, JobKind, Models};
use ctx_engine::port::{Job, Prepare, Prepared, Worker};
use ctx_session::command::Outcome;
use ctx_session::port::RunPort;
use ctx_session::record::RunKind;
use ctx_session::{Limits, Refusal};
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
        let ask = Ask {
            root: &self.root,
            agent: &ask.agent,
            snapshot: snapshot.as_ref(),
            owner: ask.owner,
            model_override: ask.model_override.as_deref(),
            cwd: ask.cwd.as_deref(),
            prompts: &ask.prompts,
            recorded: ask.recorded.as_ref(),
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

    fn run(&self, job: Job, port: Arc<dyn RunPort>, stop: CancellationToken) -> BoxFuture<'static, Outcome> {
        let (models, guard) = (self.models.clone(), self.guard.clone());
        Box::pin(async move {
            let kind = match job.kind {
                RunKind::Message | RunKind::Continuation => JobKind::Message,
                RunKind::Compaction => JobKind::Compaction { strategy: job.strategy },
            };
            let job = ctx_agent::Job { run: job.run, kind, limits: job.limits, guard, stop };
            ctx_agent::run(job, &models, port).await
        })
    }
}
