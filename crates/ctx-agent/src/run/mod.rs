//! The loop: pack the context, call the model, perform its tool calls, repeat until it stops.
//!
//! It has no copy of the conversation: each step starts from what [`RunPort::step`] gives, so that a pause, an edited
//! prompt or a compaction is seen by the next one, and a loop can be dropped and another go on where it was. A stop ends
//! it at the next await and starts nothing more; who listens keeps the text that was cut off.

mod call;
mod calls;
pub mod compact;
mod delegate;
mod elide;
pub mod pack;
mod sent;
mod shorten;
mod subagent;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use ctx_cage::Cage;
use ctx_session::command::{Outcome, Progress};
use ctx_session::conversation::{Message, Part};
use ctx_session::model_name::in_api;
use ctx_session::port::{RunPort, Step, Stopped};
use ctx_session::project::Strategy;
use ctx_session::record::{CancelReason, CompactionTrigger, Failure};
use ctx_session::{Code, Limits, Name, Refusal, RunId, SessionId};
use tokio_util::sync::CancellationToken;

use crate::describe::Settings;
pub use crate::guard::{Guard, Guarded};
use crate::mcp::ServerWant;
use crate::model::{Model, ModelError, Models, Request};
use crate::prepare::Prepared;
use crate::project::McpServer;
use crate::shells::{ShellKey, ShellWant};
use crate::tool::dispatch::Dispatch;
use crate::tool::mcp::Source;
use crate::tool::output::OUTPUT_READ;
use crate::tool::shell::ShellOf;
use crate::tool::{Scope, Services, Tools};
use call::CallError;
pub(crate) use delegate::may_run;
use shorten::Room;
use subagent::Dispatcher;
pub use subagent::Who;

/// A run to be worked on.
#[derive(Clone)]
pub struct Job {
    pub session: SessionId,
    pub run: RunId,
    pub kind: JobKind,
    pub limits: Arc<Limits>,
    /// Who looks after commands that are delegated to.
    pub guard: Guard,
    /// What tools have that outlives this run.
    pub services: Services,
    /// The subagent whose work it is; None: the primary's.
    pub subagent: Option<Who>,
    /// Cancelled when the run is to stop.
    pub stop: CancellationToken,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Answer the last message.
    Message,
    /// Make the conversation shorter; None: in the agent's own way.
    Compaction { strategy: Option<Strategy> },
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

impl From<CallError> for End {
    fn from(error: CallError) -> End {
        match error {
            CallError::Model(error) => error.into(),
            CallError::Stopped => End::Stopped,
        }
    }
}

/// Works on a run until it is over. After a stop the outcome is `Cancelled`; who asked for it knows why.
pub async fn run(job: Job, models: &Models, port: Arc<dyn RunPort>) -> Outcome {
    let work = async {
        let done = match job.kind {
            JobKind::Message => answer(&job, models, port.as_ref()).await,
            JobKind::Compaction { strategy } => compact_now(&job, strategy, models, port.as_ref()).await,
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(End::Failed(failure)) => Outcome::Failed(failure),
            Err(End::Stopped) => cancelled(),
        }
    };
    tokio::select! {
        biased;
        () = job.stop.cancelled() => {
            // The shell of a subagent ends with it; the others of its session go on.
            if job.subagent.is_none() {
                job.services.end(job.session, Duration::from_millis(job.limits.stop_grace_ms)).await;
            }
            end_files(&job, port.as_ref()).await;
            cancelled()
        }
        outcome = work => {
            end_files(&job, port.as_ref()).await;
            outcome
        }
    }
}

/// What a run has changed is known when it is over; a subagent's work is part of its run's.
async fn end_files(job: &Job, port: &dyn RunPort) {
    if job.subagent.is_none()
        && let Some(notice) = job.services.files.after(job.session).await
    {
        // A run that cannot be written to any more ends all the same; the daemon's log has the reason, too.
        let _ = port.progress(notice).await;
    }
}

/// The shell of a run: in the cage that the run was prepared with.
fn shell_of(job: &Job, prepared: &Prepared) -> ShellOf {
    let agent = &prepared.agent;
    // A subagent has a cage of its own, as the project file describes it.
    let subagents = &agent.description.settings.subagents;
    let own = match &job.subagent {
        None => agent.cages.own(),
        Some(who) => match subagents.iter().find(|(name, _)| name.as_str() == who.name) {
            Some((_, subagent)) => agent.cages.of_subagent(&subagent.cage, job.limits.subagent_walltime_ms),
            None => agent.cages.own(),
        },
    };
    let want = own.map(|cage| want_of(prepared, cage));
    ShellOf {
        key: ShellKey { session: job.session, subagent: job.subagent.as_ref().map(|who| who.id.0) },
        want,
        hosts: agent.description.settings.hosts.clone(),
        owner: agent.owner,
        home: agent.cages.user_home().map(Path::to_owned),
    }
}

/// The tools with those of MCP servers, which are started where they are not there. They are the session's: a subagent has the
/// same ones.
async fn with_servers(mut tools: Tools, job: &Job, prepared: &Prepared) -> Tools {
    let agent = &prepared.agent;
    let settings = &agent.description.settings;
    // A compaction calls no tool.
    let is_needed = job.kind == JobKind::Message && !settings.mcp.is_empty();
    let Some(servers) = job.services.mcp.as_ref().filter(|_| is_needed) else { return tools };
    let named = |name: &Name| {
        let is_of = |tool: &String| tool.split_once('.').is_some_and(|(of, _)| of == name.as_str());
        settings.tools.as_ref().is_none_or(|tools| tools.iter().any(is_of))
    };
    let want = |server: &McpServer| {
        let cage = agent.cages.of_server(&server.cage);
        let cwd = match &cage {
            Ok(Some(cage)) => cage.cwd.clone(),
            Ok(None) | Err(_) => agent.on_machine(&prepared.context.cwd),
        };
        ServerWant { server: server.clone(), cage, uid: agent.owner, cwd, guard: Arc::clone(&job.guard) }
    };
    let wants: BTreeMap<Name, ServerWant> = settings
        .mcp
        .iter()
        .filter(|(name, _)| named(name))
        .map(|(name, server)| (name.clone(), want(server)))
        .collect();
    for (name, offers) in servers.offers(job.session, job.run, &wants).await {
        let Some(want) = wants.get(&name).cloned() else { continue };
        let source = Source { servers: Arc::clone(servers), run: job.run, name, want };
        tools = tools.and_of_server(source, offers.map_err(|refusal| refusal.message));
    }
    tools
}

/// Where what a session starts works: in a cage as the agent sees it.
fn want_of(prepared: &Prepared, cage: Option<Cage>) -> ShellWant {
    let agent = &prepared.agent;
    let cwd = match &cage {
        Some(_) => PathBuf::from(&prepared.context.cwd),
        None => agent.on_machine(&prepared.context.cwd),
    };
    ShellWant { cwd, cage, uid: agent.owner, home: agent.cages.user_home().map(Path::to_owned), host: None }
}

/// In what a terminal of the operator's runs that is to be in the agent's own cage.
pub fn own_want(prepared: &Prepared) -> Result<ShellWant, Refusal> {
    prepared.agent.cages.own().map(|cage| want_of(prepared, cage))
}

fn cancelled() -> Outcome {
    Outcome::Cancelled { reason: CancelReason::Operator, by: None }
}

/// What one step works with.
struct Desk {
    step: Step,
    prepared: Arc<Prepared>,
    model: Arc<dyn Model>,
    tools: Tools,
    scope: Arc<Scope>,
    request: Request,
    /// Whether the conversation ends with what tools gave.
    acted: bool,
    /// Whether the model is reminded of open todos.
    reminded: bool,
}

impl Desk {
    /// Prepares a step. Nothing is kept from the step before, because a compaction or a pause in between changes what the model is shown.
    async fn set(job: &Job, models: &Models, port: &dyn RunPort) -> Result<Desk, End> {
        let mut step = port.step().await?;
        // Whoever prepared a run is the one who works on it.
        let prepared = step.prepared.clone().downcast::<Prepared>().map_err(|_| Stopped)?;
        let prepared = match &job.subagent {
            None => prepared,
            Some(who) => Arc::new(prepared.of_subagent(&who.name, models).map_err(no_subagent)?),
        };
        let shown = elide::shown(std::mem::take(&mut step.messages), &step.elided);
        step.messages = pack::without_cut_off(pack::in_order(&shown), job.kind == JobKind::Message);
        let model = open_model(&prepared.context.model, models, prepared.agent.owner)?;
        let settings = &prepared.agent.description.settings;
        let tools = with_servers(Tools::all().and(Dispatch::to(&settings.subagents)), job, &prepared).await;
        let tools = tools.and_own(&prepared.agent.own_tools).only(settings.tools.as_deref());
        let tools = match &job.subagent {
            Some(who) => {
                let found = settings.subagents.iter().find(|(name, _)| name.as_str() == who.name);
                tools.for_subagent(found.is_some_and(|(_, subagent)| subagent.terminal))
            }
            None => tools,
        };
        if job.subagent.is_none() {
            let (workspace, owner) = (prepared.workspace.as_ref(), prepared.agent.owner);
            job.services.files.begin(job.session, job.run, workspace, owner);
        }
        let scope = Arc::new(Scope {
            session: job.session,
            // A subagent has not seen what the primary has read.
            reader: job.subagent.as_ref().map_or(job.session.0, |who| who.id.0),
            view: Arc::clone(&prepared.agent.view),
            cwd: PathBuf::from(&prepared.context.cwd),
            limits: Arc::clone(&job.limits),
            services: job.services.clone(),
            policy: Arc::new(prepared.agent.description.policy.clone()),
            approvals: prepared.context.approvals,
            redaction: prepared.agent.redaction.clone(),
            shell: shell_of(job, &prepared),
            stop: job.stop.clone(),
        });
        let mut messages = prepared.earlier.clone();
        messages.extend(pack::pack(&step.messages));
        let acted = pack::ends_with_results(&messages);
        let can_keep = tools.get(crate::tool::todo::TODO).is_ok();
        let reminder = pack::reminder(&step.todos, &messages).filter(|_| can_keep);
        let reminded = reminder.is_some();
        messages.extend(reminder);
        let request = Request {
            model: prepared.context.model.clone(),
            attempt: 1,
            prompt: prepared.prompt.clone(),
            messages,
            tools: tools.specs(),
            images: Arc::new(images(&step.messages, port).await?),
        };
        Ok(Desk { step, prepared, model, tools, scope, request, acted, reminded })
    }
}

/// The images of a conversation, as models are sent them. One whose bytes are gone is left out, and told of in words.
async fn images(messages: &[Arc<Message>], port: &dyn RunPort) -> Result<HashMap<String, String>, Stopped> {
    let mut images = HashMap::new();
    for part in messages.iter().flat_map(|message| &message.content) {
        let Part::Image(image) = part else { continue };
        if !images.contains_key(&image.sha256)
            && let Ok(bytes) = port.read_blob(image.sha256.clone()).await?
        {
            images.insert(image.sha256.clone(), BASE64.encode(bytes));
        }
    }
    Ok(images)
}

impl Desk {
    /// What of it can be made shorter.
    fn talk(&self) -> compact::Talk<'_> {
        let reads_back = self.tools.get(OUTPUT_READ).is_ok();
        compact::Talk { messages: &self.step.messages, pinned: &self.step.pinned, reads_back }
    }

    /// The model's window, in tokens as we estimate them.
    fn window(&self) -> Option<u64> {
        let learned = &self.scope.services.calibration;
        self.model.window().map(|window| learned.in_ours(&self.request.model, window))
    }

    fn settings(&self) -> &Settings {
        &self.prepared.agent.description.settings
    }
}

/// The steps of a run, one model call each.
async fn answer(job: &Job, models: &Models, port: &dyn RunPort) -> Result<(), End> {
    // What a step has tried already: to make room before the call, and after the provider said it does not fit.
    let (mut made_room, mut overflowed) = (false, false);
    let mut noticed = false;
    loop {
        let mut desk = Desk::set(job, models, port).await?;
        subagent::check_memory(job, &desk.scope)?;
        // The log counts the steps: a pause or a restart gives a run no more of them.
        let step = desk.step.steps.saturating_add(1);
        if !desk.step.pending.is_empty() {
            perform_calls(&desk, Vec::new(), &desk.step.pending, job, models, port).await?;
            continue;
        }
        let own = desk.settings().max_steps;
        let max = own.unwrap_or(job.limits.steps_per_run);
        if step > max {
            return Err(too_many_steps(max, own.is_some()));
        }
        if let Err(failure) = port.may_spend().await? {
            return Err(End::Failed(failure));
        }
        if step == 1 && !noticed && !desk.model.has_price() && job.limits.spends_are_limited() {
            noticed = true;
            port.progress(no_price(&in_api(&desk.request.model))).await?;
        }
        if !made_room && shorten::is_due(&desk) {
            let trigger = CompactionTrigger::ThresholdCrossed;
            made_room = shorten::shorten(&desk, job, trigger, None, models, port).await? == Room::AllThereIs;
            continue;
        }
        desk.request.attempt = 1 + u32::from(overflowed);
        port.pack(sent::describe(job, step, &desk)).await?;
        let said = match call::call(desk.model.as_ref(), &mut desk.request, step, &job.limits, port).await {
            Err(CallError::Model(ModelError::Overflow { .. }))
                if !overflowed && shorten::is_possible(&desk) =>
            {
                overflowed = true;
                let trigger = CompactionTrigger::ProviderOverflowRetry;
                shorten::shorten(&desk, job, trigger, None, models, port).await?;
                continue;
            }
            other => other?,
        };
        if let Some(usage) = said.usage {
            let estimated = compact::request_tokens(&desk.request);
            job.services.calibration.learn(&desk.request.model, estimated, usage.input);
        }
        // Only an answer ends a step: one that was cut off by an overflow does not give it another compaction.
        (made_room, overflowed) = (false, false);
        // A run that is taken up again after tool calls may have nothing to add to them.
        if said.is_empty() && !desk.acted {
            return Err(ModelError::Empty { model: in_api(&desk.request.model) }.into());
        }
        if said.calls.is_empty() {
            return Ok(());
        }
        let calls = calls::started(said.calls, port);
        perform_calls(&desk, said.unrecorded, &calls, job, models, port).await?;
        // It was told what it wanted called; whoever asked it makes of that what they like.
        if desk.settings().is_model {
            return Ok(());
        }
    }
}

async fn perform_calls(
    desk: &Desk,
    unrecorded: Vec<Progress>,
    calls: &[ctx_session::command::StartedTool],
    job: &Job,
    models: &Models,
    port: &dyn RunPort,
) -> Result<(), End> {
    let agent = &*desk.prepared.agent;
    let dispatcher = Dispatcher { job, models, agent };
    calls::perform(unrecorded, calls, &desk.tools, &desk.scope, &dispatcher, port).await
}

/// What it costs is counted as nothing, so no limit of spending is ever reached with it.
fn no_price(model: &str) -> Progress {
    Progress::Noticed {
        reason: "no_price".to_owned(),
        message: format!("the price of {model} is not known: what it costs counts for no spend limit"),
    }
}

/// A prompt edit cannot take a subagent away; only a damaged snapshot can.
fn no_subagent(message: String) -> End {
    End::Failed(Failure { code: Code::Enoent, reason: "no_subagent".to_owned(), message })
}

/// A compaction that the operator asked for: it leaves a record also when there was nothing to do.
async fn compact_now(
    job: &Job,
    strategy: Option<Strategy>,
    models: &Models,
    port: &dyn RunPort,
) -> Result<(), End> {
    let desk = Desk::set(job, models, port).await?;
    shorten::shorten(&desk, job, CompactionTrigger::OperatorManual, strategy, models, port).await?;
    Ok(())
}

fn too_many_steps(max: u32, is_the_projects: bool) -> End {
    let which = if is_the_projects { "primary.max_steps" } else { "limits.steps_per_run" };
    End::Failed(Failure {
        code: Code::Etimedout,
        reason: "max_steps".to_owned(),
        message: format!(
            "the run reached its limit of {max} steps; send a message to continue, or raise {which}"
        ),
    })
}

fn open_model(name: &str, models: &Models, owner: u32) -> Result<Arc<dyn Model>, End> {
    let open = |name: &str| models.open_for(&models.resolve_for(name, owner)?, owner);
    open(name).map_err(|error| End::Failed(error.into()))
}
