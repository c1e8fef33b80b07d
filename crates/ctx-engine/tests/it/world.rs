//! An engine for a test: its disk, its clock, its worker, and a strict reader of its logs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ctx_engine::port::{Job, NoProjects, Prepare, Prepared, ProcessAct, ProjectFiles, Worker};
use ctx_engine::{Caller, Clock, Engine, Fresh, NewSession, Parts, Post, Posted};
use ctx_journal::FileJournal;
use ctx_journal::sim::SimDisk;
use ctx_session::command::{ApprovalAsk, FinishedTool, Outcome, Progress, RunContext, StartedTool};
use ctx_session::conversation::{Message, Role};
use ctx_session::port::{DeltaKind, RunPort, Step, Stopped};
use ctx_session::project::Strategy;
use ctx_session::record::{
    CancelReason, Compaction, CompactionTrigger, FinishReason, PromptRef, RunKind, Scope, ToolStatus,
};
use ctx_session::{
    CallId, CompactionId, Limits, MessageId, Name, Refusal, RunId, RunState, SessionId, Timestamp,
};
use ctx_views::RootDir;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub const ME: Caller = Caller { uid: 1000, gid: 1000 };

/// Everything a test holds.
pub struct World {
    pub disk: SimDisk,
    pub clock: Arc<SetClock>,
    pub engine: Engine,
    /// Lets workers go on that wait for it.
    pub go: Arc<Notify>,
    /// Whoever touches a session's processes panics.
    pub breaks: Arc<AtomicBool>,
}

/// A clock that stands where it was set.
#[derive(Debug)]
pub struct SetClock(AtomicU64);

impl SetClock {
    pub fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

struct Shared(Arc<SetClock>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.0.load(Ordering::SeqCst))
    }
}

impl World {
    /// Lets time pass. A driver that sleeps sees it when it is next spoken to.
    pub fn pass(&self, millis: u64) {
        self.clock.0.fetch_add(millis, Ordering::SeqCst);
    }

    pub async fn new() -> World {
        World::on(SimDisk::new(), Limits::default()).await
    }

    /// A daemon's start on a disk that may have been used before.
    pub async fn on(disk: SimDisk, limits: Limits) -> World {
        let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
        World::at(disk, limits, clock).await
    }

    pub async fn at(disk: SimDisk, limits: Limits, clock: Arc<SetClock>) -> World {
        World::made(disk, limits, clock, None, Arc::new(NoProjects)).await
    }

    /// One that finds project files where it is told to.
    pub async fn with_projects(disk: SimDisk, files: Arc<dyn ProjectFiles>) -> World {
        let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
        World::made(disk, Limits::default(), clock, None, files).await
    }

    /// One that shows its sessions as files beneath a real directory; the logs stay on the simulated disk.
    pub async fn showing(disk: SimDisk, root: &Path) -> World {
        let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
        // Long enough that nothing happens to a session because it is idle.
        let limits = Limits { idle_unload_ms: 3_600_000, ..Limits::default() };
        World::made(disk, limits, clock, Some(RootDir::open(root).unwrap()), Arc::new(NoProjects)).await
    }

    async fn made(
        disk: SimDisk,
        limits: Limits,
        clock: Arc<SetClock>,
        root: Option<RootDir>,
        project_files: Arc<dyn ProjectFiles>,
    ) -> World {
        let (go, breaks) = (Arc::new(Notify::new()), Arc::<AtomicBool>::default());
        let parts = Parts {
            journal: Arc::new(FileJournal::new(Arc::new(disk.clone()))),
            memory: Arc::new(FileJournal::in_memory()),
            root,
            worker: Arc::new(Hands { go: go.clone(), breaks: breaks.clone() }),
            project_files,
            spaces: Arc::new(ctx_engine::NoSpaces),
            workspace: None,
            limits,
            fresh: Fresh::new(Shared(clock.clone()), 7),
            uid: 0,
            gid: 0,
            app: "test".to_owned(),
        };
        let engine = Engine::new(parts);
        engine.start().await.unwrap();
        World { disk, clock, engine, go, breaks }
    }

    pub async fn session(&self, name: &str) -> SessionId {
        let new = NewSession {
            object: ctx_session::Object::Agent(Name::new("coder").unwrap()),
            project: None,
            name: Some(Name::of_session(name).unwrap()),
            scope: Scope::Private,
            space: None,
            cwd: None,
            dir: None,
            earlier: Vec::new(),
            client: None,
            key: None,
        };
        self.engine.create(ME, new).await.unwrap()
    }

    pub fn find(&self, name: &str) -> SessionId {
        let found = self.engine.list(ME, |summary| summary.meta.name.as_str() == name);
        found.first().unwrap_or_else(|| panic!("no session {name}")).id()
    }

    pub async fn post(&self, id: SessionId, client_id: &str, text: &str) -> Result<Posted, Refusal> {
        let post = Post { text: text.to_owned(), client_id: Some(client_id.to_owned()), ..Post::default() };
        self.engine.post(ME, id, post).await
    }

    /// Posts and waits for the end of the run.
    pub async fn say(&self, id: SessionId, client_id: &str, text: &str) -> RunState {
        let posted = self.post(id, client_id, text).await.unwrap();
        self.end_of(id, &posted).await
    }

    pub async fn end_of(&self, id: SessionId, posted: &Posted) -> RunState {
        eventually("the end of the run", async || {
            let session = self.engine.look(ME, id).await.ok()?;
            session.run(posted.run).map(|run| run.state.clone()).filter(RunState::is_over)
        })
        .await
    }

    /// A log, read strictly: whole lines, no gap, whole commands.
    #[track_caller]
    pub fn log(&self, name: &str) -> Vec<Value> {
        let path = format!("home/1000/agent/coder/session/{name}/events.jsonl");
        let text = String::from_utf8(self.disk.contents(&path).expect("a log")).unwrap();
        assert!(text.ends_with('\n'), "a torn tail");
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (at, record) in records.iter().enumerate() {
            assert_eq!(record["seq"], at as u64, "a gap: {record}");
        }
        assert_eq!(records.last().unwrap()["more"], Value::Null, "half a command");
        records
    }
}

/// How often a client id is in a log.
pub fn times_there(log: &[Value], client_id: &str) -> usize {
    log.iter().filter(|record| record["client_id"] == client_id).count()
}

/// Each run of a log ends once.
#[track_caller]
pub fn every_run_ends_once(log: &[Value]) {
    let is_end =
        |record: &&Value| matches!(record["type"].as_str(), Some("run_finished" | "failed" | "cancelled"));
    for created in log.iter().filter(|record| record["type"] == "run_created") {
        let ends = log.iter().filter(is_end).filter(|end| end["turn_id"] == created["turn_id"]).count();
        assert_eq!(ends, 1, "ends of {created}");
    }
}

/// Asks until there is an answer; for what no event tells of.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A worker that does what the message says: `hold`, `steps N`, `panic`, `deaf`, `speak` (waits in the middle of its
/// answer), `tools` (waits before its calls are known), `ask` (for an approval), `busy` (waits in the middle of a tool);
/// anything else it repeats.
struct Hands {
    go: Arc<Notify>,
    breaks: Arc<AtomicBool>,
}

impl Worker for Hands {
    fn processes(&self, _: u32, _: SessionId, _: ProcessAct) -> BoxFuture<'static, ()> {
        assert!(!self.breaks.load(Ordering::SeqCst), "broken, as the test wants it");
        Box::pin(std::future::ready(()))
    }

    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal> {
        let prompt = ask.prompts.first().map_or("be brief", |(_, text)| text.as_str()).to_owned();
        // Not the hash that the journal would give it, but another for another text.
        let hash = format!("hash of {prompt}");
        let context = RunContext {
            model: "test/hands".to_owned(),
            cwd: "/work".to_owned(),
            policy: Vec::new(),
            cage: None,
            sources: Vec::new(),
            prompts: vec![PromptRef { target: "primary".to_owned(), hash }],
            redact: None,
            approvals: None,
        };
        // What a project's session keeps is, here, its project's name.
        let project = ask.snapshot.as_deref().map_or("default", |bytes| std::str::from_utf8(bytes).unwrap());
        let project = Name::new(project).unwrap();
        Ok(Prepared {
            project,
            context,
            prompts: Vec::new(),
            delegates: false,
            workspace: None,
            handle: Arc::new(()),
        })
    }

    fn run(
        &self,
        job: Job,
        report: Arc<dyn RunPort>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Outcome> {
        let go = self.go.clone();
        Box::pin(async move {
            let stopped = Outcome::Cancelled { reason: CancelReason::Operator, by: None };
            let Ok(step) = report.step().await else { return stopped };
            if job.kind == RunKind::Compaction {
                return compact(report.as_ref(), &step, job.run, job.strategy)
                    .await
                    .map_or(stopped, |()| Outcome::Done);
            }
            let user = step.messages.iter().rfind(|message| message.role == Role::User);
            let text = user.map(|message| message.text()).unwrap_or_default();
            let words: Vec<&str> = text.split(' ').collect();
            match words.as_slice() {
                ["panic"] => panic!("the worker was told to"),
                ["deaf"] => {
                    let message = MessageId(report.new_id());
                    // Whoever sees this record knows that the worker listens to nobody from here on.
                    let model = "test/hands".to_owned();
                    let begun = Progress::AssistantStarted { message_id: message, model, step: 1 };
                    let _ = report.progress(begun).await;
                    let _ = report.delta(message, DeltaKind::Text, "said before".to_owned()).await;
                    std::future::pending().await
                }
                ["hold"] => {
                    let message = MessageId(report.new_id());
                    let _ = report.delta(message, DeltaKind::Text, "said before".to_owned()).await;
                    stop.cancelled().await;
                    stopped
                }
                ["speak" | "tools" | "ask" | "busy"] => {
                    steer(text.as_str(), report.as_ref(), step, &go).await.map_or(stopped, |()| Outcome::Done)
                }
                ["steps", number] => {
                    for _ in 0..number.parse::<u32>().unwrap() {
                        if say(report.as_ref(), "a step").await.is_err() {
                            return stopped;
                        }
                    }
                    Outcome::Done
                }
                _ => match say(report.as_ref(), &text).await {
                    Ok(()) => Outcome::Done,
                    Err(_) => stopped,
                },
            }
        })
    }
}

async fn say(report: &dyn RunPort, text: &str) -> Result<(), Stopped> {
    let message_id = MessageId(report.new_id());
    let model = "test/hands".to_owned();
    report.progress(Progress::AssistantStarted { message_id, model, step: 1 }).await?;
    report.delta(message_id, DeltaKind::Text, text.to_owned()).await?;
    let (text, finish_reason) = (text.to_owned(), FinishReason::Stop);
    report.progress(Progress::AssistantFinished { message_id, text, finish_reason, usage: None }).await
}

/// Runs that an operator steers. Each begins where the log says that it is.
async fn steer(what: &str, report: &dyn RunPort, step: Step, go: &Notify) -> Result<(), Stopped> {
    let has_result = |message: &Arc<Message>| message.role == Role::Tool;
    if !step.pending.is_empty() {
        call(what, report, step.pending, go).await?;
    } else if !step.messages.iter().any(has_result) {
        let message_id = MessageId(report.new_id());
        let model = "test/hands".to_owned();
        report.progress(Progress::AssistantStarted { message_id, model, step: 1 }).await?;
        report.delta(message_id, DeltaKind::Text, "thinking".to_owned()).await?;
        if what != "busy" {
            go.notified().await;
        }
        let calls = what != "speak";
        let finish_reason = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        let text = "thinking".to_owned();
        report.progress(Progress::AssistantFinished { message_id, text, finish_reason, usage: None }).await?;
        if !calls {
            return Ok(());
        }
        let tool = |name: &str| StartedTool {
            call_id: CallId(report.new_id()),
            provider_call_id: None,
            name: name.to_owned(),
            input: Value::Null,
            provider: None,
        };
        call(what, report, vec![tool("one"), tool("two")], go).await?;
    }
    report.step().await?;
    say(report, "all done").await
}

async fn call(what: &str, report: &dyn RunPort, calls: Vec<StartedTool>, go: &Notify) -> Result<(), Stopped> {
    report.progress(Progress::ToolsStarted(calls.clone())).await?;
    for StartedTool { call_id, name, .. } in calls {
        if what == "busy" {
            go.notified().await;
        }
        let mut output = format!("{name} made");
        if what == "ask" && name == "one" {
            let ask = ApprovalAsk {
                call: call_id,
                tool: name,
                subject: None,
                pattern: None,
                diff: None,
                is_answerable: true,
            };
            output = format!("{:?}", report.approval(ask).await?.outcome);
        }
        let finished = FinishedTool::new(call_id, ToolStatus::Ok, 1, output);
        report.progress(Progress::ToolFinished(Box::new(finished))).await?;
    }
    Ok(())
}

/// A compaction that takes out everything but the last exchange.
async fn compact(
    report: &dyn RunPort,
    step: &Step,
    run: RunId,
    strategy: Option<Strategy>,
) -> Result<(), Stopped> {
    let gone = step.messages.len().saturating_sub(2);
    let strategy = strategy.unwrap_or(Strategy::Drop);
    let made = Compaction {
        compaction_id: CompactionId(report.new_id()),
        turn_id: run,
        agent_path: "primary".to_owned(),
        trigger: CompactionTrigger::OperatorManual,
        strategy,
        proposed: strategy == Strategy::Checkpoint,
        window: None,
        used: None,
        threshold_estimate: 0.5,
        after_estimate: 0.1,
        window_upper: 0.85,
        window_lower: 0.6,
        superseded_message_ids: step.messages.iter().take(gone).map(|message| message.id).collect(),
        elided_call_ids: Vec::new(),
        summary_message_id: None,
        summary: None,
        plugins_fired: Vec::new(),
        plugin_cost: None,
        fallback_occurred: false,
        fallback_reason: None,
        checkpoint_id: None,
    };
    report.progress(Progress::Compacted(Box::new(made))).await
}
