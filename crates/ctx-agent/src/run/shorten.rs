//! The strategies: how a conversation is made shorter, and what is recorded of it.
//!
//! Whatever goes wrong, or takes too long, ends in dropping the oldest exchanges, and the record says so.

use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::Progress;
use ctx_session::conversation::{Part, Role};
use ctx_session::estimate::{MESSAGE_TOKENS, left, share, tokens};
use ctx_session::model_name::in_api;
use ctx_session::project::{Compaction as Settings, Delegate, Strategy};
use ctx_session::record::{Compaction, CompactionTrigger, PluginCost, PluginFired, Usage};
use ctx_session::{CompactionId, Limits, MessageId};
use tokio::time::Instant;

use super::call::tries_again;
use super::compact::{Plan, plan, request_tokens, transcript};
use super::delegate::Delegated;
use super::{Desk, Job, delegate, open_model};
use crate::model::{Event, Model, ModelError, Models, Request, Turn};
use ctx_session::port::RunPort;
use ctx_session::port::Stopped;

/// Whose window it is: the agent that the session talks to.
const AGENT_PATH: &str = "primary";
/// What a model that sums up is told.
const SUMMARIZE: &str = "You sum up the beginning of a conversation between a user and a coding agent, so that the agent can \
    go on without it. Keep goals, decisions, names of files, what is still open, and the call_id of a tool call whose output \
    may be wanted again: the agent reads it back with output.read. Be brief.";

/// What a summary may take, in time and in length: a message's, which an operator's own has to keep to as well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub time: Duration,
    pub bytes: usize,
}

impl Bounds {
    /// Why a summary that is longer is none.
    pub fn too_long(&self) -> String {
        format!("the summary had more than {} bytes", self.bytes)
    }
}

/// A summary that a model or a command gave.
pub(super) struct Summary {
    pub text: String,
    pub cost: Option<PluginCost>,
}

/// What came of asking for one: the summary or why there is none, and who else took part.
struct SummedUp {
    said: Result<Summary, NoSummary>,
    fired: Option<PluginFired>,
}

/// Why there is no summary.
enum NoSummary {
    Because(String),
    /// Nobody waits for one any more.
    Stopped,
}

impl From<String> for NoSummary {
    fn from(why: String) -> NoSummary {
        NoSummary::Because(why)
    }
}

impl From<Stopped> for NoSummary {
    fn from(_: Stopped) -> NoSummary {
        NoSummary::Stopped
    }
}

fn settings(desk: &Desk) -> &Settings {
    &desk.prepared.agent.description.settings.compaction
}

/// Whose window it is: the primary's, or that of one of its subagents.
fn agent_path(job: &Job) -> String {
    match &job.subagent {
        None => AGENT_PATH.to_owned(),
        Some(who) => format!("{AGENT_PATH}/{}", who.name),
    }
}

/// Whether the window is so full that room must be made, and some can be.
pub(super) fn is_due(desk: &Desk) -> bool {
    let Some(window) = desk.window() else { return false };
    let used = request_tokens(&desk.request);
    // Who has declined a proposal manages the window: it does not come back until room was made.
    let is_declined = desk.step.declined && settings(desk).strategy == Strategy::Checkpoint;
    share(used, window) >= settings(desk).upper && !is_declined && is_possible(desk)
}

/// Whether there is anything that could go.
pub(super) fn is_possible(desk: &Desk) -> bool {
    !plan(&desk.talk(), u64::MAX, 0).is_empty()
}

/// Makes the conversation shorter, and records it. A proposal ends the run.
pub(super) async fn shorten(
    desk: &Desk,
    job: &Job,
    trigger: CompactionTrigger,
    strategy: Option<Strategy>,
    models: &Models,
    port: &dyn RunPort,
) -> Result<Room, Stopped> {
    let settings = settings(desk);
    let strategy = strategy.unwrap_or(settings.strategy);
    let used = request_tokens(&desk.request);
    // A model whose window nobody knows has just said that this is too much for it.
    let window = desk.window().unwrap_or(used);
    let goal = goal(trigger, strategy, used, window, settings);
    let plan = plan(&desk.talk(), used, goal);
    let mut made = Compaction {
        compaction_id: CompactionId(port.new_id()),
        turn_id: job.run,
        agent_path: agent_path(job),
        trigger,
        strategy,
        proposed: strategy == Strategy::Checkpoint && !plan.is_empty(),
        window: Some(window),
        used: Some(used),
        threshold_estimate: share(used, window),
        after_estimate: share(used.saturating_sub(plan.gain()), window),
        window_upper: settings.upper,
        window_lower: settings.lower,
        superseded_message_ids: plan.ids.clone(),
        elided_call_ids: plan.elided.clone(),
        summary_message_id: None,
        summary: None,
        plugins_fired: Vec::new(),
        plugin_cost: None,
        fallback_occurred: false,
        fallback_reason: None,
        checkpoint_id: None,
    };
    // References need nobody's words.
    if !plan.ids.is_empty() {
        let bounds =
            Bounds { time: Duration::from_millis(job.limits.compaction_ms), bytes: job.limits.message_bytes };
        match strategy {
            Strategy::Drop => {}
            Strategy::Checkpoint => propose(&mut made, &plan, used, window),
            Strategy::Summarize => {
                put(&mut made, summarize(desk, job, &plan, port, bounds).await, &plan, port)?;
            }
            Strategy::Delegate => {
                put(&mut made, delegate(desk, job, &plan, models, port, bounds).await, &plan, port)?;
            }
        }
    }
    let mut is_cut = plan.is_cut;
    if made.fallback_occurred {
        is_cut = fall_back(&mut made, desk, used, window);
    }
    port.progress(Progress::Compacted(Box::new(made))).await?;
    Ok(if is_cut { Room::More } else { Room::AllThereIs })
}

/// Whether another compaction could make more room at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    AllThereIs,
    /// One record does not name all that has to go.
    More,
}

/// How many tokens are to be left. Who asks for a summary by hand wants one; who asks to drop wants room.
fn goal(trigger: CompactionTrigger, strategy: Strategy, used: u64, window: u64, settings: &Settings) -> u64 {
    let lower = (settings.lower * window as f64) as u64;
    match (trigger, strategy) {
        (
            CompactionTrigger::OperatorManual,
            Strategy::Summarize | Strategy::Delegate | Strategy::Checkpoint,
        ) => 0,
        // Our estimate was too low: go by what was sent.
        (CompactionTrigger::ProviderOverflowRetry, _) => lower.min((settings.lower * used as f64) as u64),
        (
            CompactionTrigger::OperatorManual
            | CompactionTrigger::ThresholdCrossed
            | CompactionTrigger::Scheduled,
            _,
        ) => lower,
    }
}

/// What `drop` would have done, which may be nothing. Says whether one record does not name all that has to go.
fn fall_back(made: &mut Compaction, desk: &Desk, used: u64, window: u64) -> bool {
    let goal = goal(made.trigger, Strategy::Drop, used, window, settings(desk));
    let plan = plan(&desk.talk(), used, goal);
    made.after_estimate = share(used.saturating_sub(plan.gain()), window);
    made.superseded_message_ids = plan.ids;
    made.elided_call_ids = plan.elided;
    plan.is_cut
}

/// What is proposed, in words. Approved as it is, it stands where the messages stood, so that the model knows of the gap.
fn propose(made: &mut Compaction, plan: &Plan, used: u64, window: u64) {
    let (count, size) = (plan.ids.len(), plan.tokens);
    let what = if count == 1 { "1 message was".to_owned() } else { format!("{count} messages were") };
    let text = format!("{what} left out here to make room, about {size} tokens; the session's log has them.");
    made.after_estimate = share(left(used, plan.gain(), Some(&text)), window);
    made.summary = Some(text);
}

/// Takes over a summary. One that is empty, or no shorter than what it sums up, counts as failed: then the messages go without one.
fn put(made: &mut Compaction, summed_up: SummedUp, plan: &Plan, port: &dyn RunPort) -> Result<(), Stopped> {
    made.plugins_fired.extend(summed_up.fired);
    let why = match summed_up.said {
        Err(NoSummary::Stopped) => return Err(Stopped),
        Err(NoSummary::Because(why)) => why,
        Ok(summary) => {
            made.plugin_cost = summary.cost;
            let text = summary.text.trim();
            if text.is_empty() {
                "the summary was empty".to_owned()
            } else if tokens(text) >= said_tokens(plan) {
                "the summary was not shorter than what it sums up".to_owned()
            } else {
                let (used, window) = (made.used.unwrap_or_default(), made.window.unwrap_or_default());
                made.after_estimate = share(left(used, plan.gain(), Some(text)), window);
                made.summary_message_id = Some(MessageId(port.new_id()));
                made.summary = Some(text.to_owned());
                return Ok(());
            }
        }
    };
    made.fallback_occurred = true;
    made.fallback_reason = Some(why);
    Ok(())
}

/// What the messages that go are taken for, without what each costs besides: who repeats them has not summed them up.
fn said_tokens(plan: &Plan) -> u64 {
    let besides = MESSAGE_TOKENS.saturating_mul(plan.messages.len() as u64);
    plan.tokens.saturating_sub(besides)
}

async fn timed(
    limit: Duration,
    work: impl Future<Output = Result<Summary, NoSummary>>,
) -> Result<Summary, NoSummary> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(format!("it took longer than {} s", limit.as_secs_f64()).into()),
    }
}

async fn summarize(desk: &Desk, job: &Job, plan: &Plan, port: &dyn RunPort, bounds: Bounds) -> SummedUp {
    let request = request(&desk.request.model, SUMMARIZE.to_owned(), plan);
    let asked = ask(desk.model.as_ref(), request, &job.limits, port, bounds);
    SummedUp { said: timed(bounds.time, asked).await, fired: None }
}

/// What a model that sums up is asked.
fn request(model: &str, prompt: String, plan: &Plan) -> Request {
    let text = format!("Sum up this part of the conversation:\n\n{}", transcript(&plan.messages));
    Request {
        model: model.to_owned(),
        attempt: 1,
        prompt,
        messages: vec![Turn { role: Role::User, content: vec![Part::Text { text }] }],
        tools: Vec::new(),
        images: Arc::default(),
    }
}

/// Asks a model for a summary, again at a rate limit as any call. Nobody is shown how it comes; the record has it.
async fn ask(
    model: &dyn Model,
    mut request: Request,
    limits: &Limits,
    port: &dyn RunPort,
    bounds: Bounds,
) -> Result<Summary, NoSummary> {
    if let Err(failure) = port.may_spend().await? {
        return Err(failure.message.into());
    }
    let (text, usage) = loop {
        let error = match listen(model, &request, bounds).await {
            Ok(heard) => break heard,
            Err(Unheard::TooLong) => return Err(bounds.too_long().into()),
            Err(Unheard::Failed(error)) => error,
        };
        if !tries_again(&error, &mut request, limits, port).await? {
            return Err(error.to_string().into());
        }
    };
    let name = request.model.as_str();
    let (provider, model) = name.split_once(['/', ':']).unwrap_or(("", name));
    let cost = PluginCost {
        provider: provider.to_owned(),
        model: model.to_owned(),
        input_tokens: usage.input,
        output_tokens: usage.output,
        cost_usd: usage.cost_nano_usd as f64 / 1e9,
    };
    Ok(Summary { text, cost: Some(cost) })
}

/// Why a summary was not heard to its end.
enum Unheard {
    Failed(ModelError),
    TooLong,
}

impl From<ModelError> for Unheard {
    fn from(error: ModelError) -> Unheard {
        Unheard::Failed(error)
    }
}

/// Hears a summary to its end.
async fn listen(model: &dyn Model, request: &Request, bounds: Bounds) -> Result<(String, Usage), Unheard> {
    let mut answer = model.call(request.clone()).await?;
    let (mut text, mut usage) = (String::new(), Usage::default());
    loop {
        match answer.next().await? {
            Some(Event::Text(piece)) if text.len().saturating_add(piece.len()) > bounds.bytes => {
                return Err(Unheard::TooLong);
            }
            Some(Event::Text(piece)) => text.push_str(&piece),
            Some(Event::Usage(more)) => usage = usage.plus(more),
            Some(Event::Reasoning(_) | Event::ToolCall(_)) => {}
            Some(Event::Finish(_)) => return Ok((text, usage)),
            None => {
                let detail = "the summary ended in the middle".to_owned();
                return Err(ModelError::BrokenStream { model: in_api(&request.model), detail }.into());
            }
        }
    }
}

/// Another model with a prompt of its own, or a command, sums up. Whatever comes of it, it took part.
async fn delegate(
    desk: &Desk,
    job: &Job,
    plan: &Plan,
    models: &Models,
    port: &dyn RunPort,
    bounds: Bounds,
) -> SummedUp {
    let Some(whom) = &settings(desk).delegate else {
        let why = "the project file names nobody to delegate to".to_owned();
        return SummedUp { said: Err(why.into()), fired: None };
    };
    let name = match whom {
        Delegate::Subagent(name) => name.clone(),
        Delegate::Command(command) => command.first().cloned().unwrap_or_default(),
    };
    let begin = Instant::now();
    let said = timed(bounds.time, delegated(desk, job, whom, plan, models, port, bounds)).await;
    let duration_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result_kind = if said.is_ok() { "compactor_result" } else { "error" }.to_owned();
    let fired = PluginFired { name, role: "compactor".to_owned(), duration_ms, result_kind };
    SummedUp { said, fired: Some(fired) }
}

async fn delegated(
    desk: &Desk,
    job: &Job,
    whom: &Delegate,
    plan: &Plan,
    models: &Models,
    port: &dyn RunPort,
    bounds: Bounds,
) -> Result<Summary, NoSummary> {
    let agent = &desk.prepared.agent;
    match whom {
        Delegate::Subagent(name) => {
            let (model, prompt) = agent.subagent(name)?;
            let opened = open_model(&model, models, agent.owner)
                .map_err(|_| format!("the model `{model}` cannot be opened"))?;
            ask(opened.as_ref(), request(&model, prompt, plan), &job.limits, port, bounds).await
        }
        Delegate::Command(command) => {
            let cwd = agent.place_of_commands()?;
            let delegated = Delegated { command, cwd, guard: (job.guard)()? };
            Ok(delegate::command(delegated, &transcript(&plan.messages), bounds).await?)
        }
    }
}
