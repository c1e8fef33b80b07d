//! The loop: pack the context, call the model, settle its tool calls, repeat until it stops.
//!
//! A stop ends it at the next await and starts nothing more: the whole loop is one future that is dropped. What was
//! told to [`Report`] before stays told; who listens keeps the text that was cut off.

mod call;
pub mod pack;
mod report;
mod settle;

use std::path::PathBuf;
use std::sync::Arc;

use ctx_session::command::{Outcome, RunContext};
use ctx_session::conversation::Message;
use ctx_session::record::{CancelReason, Failure};
use ctx_session::{Code, Limits, RunId};

use tokio_util::sync::CancellationToken;

use crate::model::registry::ModelName;
use crate::model::{Model, ModelError, Models, Request};
use crate::prepare::Agent;
use crate::tool::{Scope, Tools};
use report::Voice;
pub use report::{DeltaKind, Report, Retry, Stopped};

/// A run to be worked on.
#[derive(Debug, Clone)]
pub struct Job {
    pub run: RunId,
    /// As [`crate::prepare()`] gave it; its model is an identity, not an alias.
    pub context: RunContext,
    /// As [`crate::prepare()`] gave it.
    pub prompt: String,
    /// The conversation that counts, the run's own message and what it did so far included.
    pub messages: Vec<Message>,
    pub limits: Arc<Limits>,
    pub agent: Arc<Agent>,
}

/// Why the loop ended before the model did.
#[derive(Debug)]
enum End {
    Failed(Failure),
    /// Nobody listens any more.
    Stopped,
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> End {
        End::Stopped
    }
}

impl From<ModelError> for End {
    fn from(error: ModelError) -> End {
        End::Failed(error.into())
    }
}

/// Works on a run until it is over. After a stop the outcome is `Cancelled`; who asked for it knows why.
pub async fn run(job: Job, models: &Models, report: Arc<dyn Report>, stop: CancellationToken) -> Outcome {
    let work = async {
        let voice = Voice { report: report.as_ref(), stop: &stop };
        match steps(&job, models, &voice).await {
            Ok(()) => Outcome::Done,
            Err(End::Failed(failure)) => Outcome::Failed(failure),
            Err(End::Stopped) => cancelled(),
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => cancelled(),
        outcome = work => outcome,
    }
}

fn cancelled() -> Outcome {
    Outcome::Cancelled { reason: CancelReason::Operator, by: None }
}

/// The steps of a run, one model call each.
async fn steps(job: &Job, models: &Models, voice: &Voice<'_>) -> Result<(), End> {
    let model = open_model(job, models)?;
    let settings = &job.agent.description.settings;
    let tools = Tools::without_effects().only(settings.tools.as_deref());
    let scope = Arc::new(Scope {
        view: Arc::clone(&job.agent.view),
        cwd: PathBuf::from(&job.context.cwd),
        limits: Arc::clone(&job.limits),
        stop: voice.stop.clone(),
    });
    let mut request = Request {
        model: job.context.model.clone(),
        attempt: 1,
        prompt: job.prompt.clone(),
        messages: pack::pack(&job.messages),
        tools: tools.specs(),
    };
    // A run that is taken up again after tool calls may have nothing to add to them.
    let mut acted = pack::ends_with_results(&request.messages);
    let steps_max = settings.max_steps.unwrap_or(job.limits.steps_per_run);
    for step in 1..=steps_max {
        let said = call::call(model.as_ref(), &mut request, step, &job.limits, voice).await?;
        if said.is_empty() && !acted {
            return Err(ModelError::Empty { model: request.model }.into());
        }
        if said.calls.is_empty() {
            return Ok(());
        }
        let settled =
            settle::settle(&said.calls, &tools, &job.agent.description.policy, &scope, voice).await?;
        pack::extend(&mut request.messages, &said.text, settled);
        acted = true;
    }
    Err(End::Failed(Failure {
        code: Code::Etimedout,
        reason: "max_steps".to_owned(),
        message: format!(
            "the run took its {steps_max} steps without coming to an end; send a message to go on, or raise \
             {}",
            if settings.max_steps.is_some() { "primary.max_steps" } else { "limits.steps_per_run" }
        ),
    }))
}

fn open_model(job: &Job, models: &Models) -> Result<Arc<dyn Model>, End> {
    let open = |name: &str| match ModelName::parse(name)? {
        ModelName::Id(id) => models.open(&id),
        ModelName::Alias(_) => models.open(&models.resolve(name)?),
    };
    open(&job.context.model).map_err(|error| End::Failed(error.into()))
}
