//! A root to work in, a listener that writes down what it is told, and runs as readable text.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};

use ctx_agent::{
    Ask, CageAsk, CageRules, Guard, Guarded, Job, JobKind, Models, Place, Prepared, Services, prepare,
    prepare_root, sha256_hex,
};
use ctx_cage::rights::Rights;
use ctx_session::command::{
    ApprovalAsk, Approved, Exit, FinishedTool, Outcome, Progress, Spawn, StartedTool,
};
use ctx_session::conversation::{Message, Part, Role};
use ctx_session::issue::IssueAct;
use ctx_session::port::{DeltaKind, PortFuture, Reaped, Retry, RunPort, Step, Stopped};
use ctx_session::record::{ApprovalOutcome, BlobRef, Failure, ToolStatus};
use ctx_session::{
    CallId, IdSource, Limits, MessageId, Name, Refusal, RunId, SessionId, SubagentId, Timestamp, Ulid,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A fresh root and a workspace, gone when the test is.
pub struct Root {
    pub dir: tempfile::TempDir,
    pub limits: Arc<Limits>,
}

impl Root {
    pub fn new() -> Root {
        Root::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Root {
        let root = Root { dir: tempfile::tempdir().unwrap(), limits: Arc::new(limits) };
        std::fs::create_dir(root.work()).unwrap();
        prepare_root(&root.path(), Some(&root.work())).unwrap();
        root
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The directory that coder sees as `/work`.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("my work")
    }

    /// Writes a file of the workspace.
    pub fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes a control file of coder.
    pub fn control(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path().join("agent/coder.d").join(name), text).unwrap();
    }

    pub fn models(&self) -> Models {
        Models::new(self.path(), Arc::clone(&self.limits))
    }

    pub fn prepare(&self, model: Option<&str>, cwd: Option<&str>) -> Result<Prepared, Refusal> {
        prepare_for(&self.path(), &self.limits, "coder", model, cwd, &self.models())
    }

    /// A run of coder for one message, on `debug/script` or another model.
    pub fn job(&self, model: &str, message: &str) -> Work {
        self.job_of(model, vec![said(Role::User, message)])
    }

    pub fn job_of(&self, model: &str, messages: Vec<Message>) -> Work {
        let prepared = self.prepare(Some(model), None).unwrap();
        let guard: Guard = Arc::new(|| Ok(Guarded { words: vec!["env".into()], env: Vec::new() }));
        let (run, kind) = (RunId(Ulid(1)), JobKind::Message);
        let stop = CancellationToken::new();
        let (session, services) = (SessionId(Ulid(2)), Services::default());
        let (limits, subagent) = (Arc::clone(&self.limits), None);
        let job = Job { session, run, kind, limits, guard, services, subagent, stop };
        Work { job, prepared, messages, pending: Vec::new(), steps: 0, todos: Vec::new() }
    }

    /// Runs a message to its end and gives what was told, as text.
    pub async fn run(&self, model: &str, message: &str) -> String {
        let log = Arc::new(Log::default());
        let outcome = self.run_with(self.job(model, message), &log, CancellationToken::new()).await;
        log.text(&outcome)
    }

    pub async fn run_with(&self, work: Work, log: &Arc<Log>, stop: CancellationToken) -> Outcome {
        run_on(&self.models(), work, log, stop).await
    }
}

/// A run, and the session that it works in.
pub struct Work {
    pub job: Job,
    pub prepared: Prepared,
    pub messages: Vec<Message>,
    /// Calls that wait for a resume.
    pub pending: Vec<StartedTool>,
    /// Model calls that were made before.
    pub steps: u32,
    pub todos: Vec<String>,
}

pub async fn run_on(models: &Models, work: Work, log: &Arc<Log>, stop: CancellationToken) -> Outcome {
    let Work { job, prepared, messages, pending, steps, todos } = work;
    let job = Job { stop: stop.clone(), ..job };
    *log.stop.lock().unwrap() = stop;
    let messages = messages.into_iter().map(Arc::new).collect();
    let (prepared, pinned, elided) = (Arc::new(prepared), Default::default(), Default::default());
    let step = Step { messages, pending, prepared, steps, todos, pinned, elided, declined: false };
    *log.step.lock().unwrap() = Some(step);
    ctx_agent::run(job, models, Arc::clone(log) as Arc<dyn RunPort>).await
}

/// Runs a message to its end with these models, and gives what was told.
pub async fn run_message(root: &Root, models: &Models, model: &str, message: &str) -> String {
    let prepared = prepare_for(&root.path(), &root.limits, "coder", Some(model), None, models).unwrap();
    let work = Work { prepared, ..root.job("debug:echo", message) };
    let log = Arc::new(Log::default());
    let outcome = run_on(models, work, &log, CancellationToken::new()).await;
    log.text(&outcome)
}

/// Cages as they are where nobody asks for anything.
pub fn usual_cage() -> CageAsk<'static> {
    static RULES: LazyLock<CageRules> = LazyLock::new(CageRules::default);
    CageAsk { rules: &RULES, user_home: None, is_trusted: false, net: None }
}

pub fn prepare_for(
    root: &Path,
    limits: &Limits,
    agent: &str,
    model_override: Option<&str>,
    cwd: Option<&str>,
    models: &Models,
) -> Result<Prepared, Refusal> {
    let agent = Name::new(agent).unwrap();
    let ask = Ask {
        root,
        agent: &agent,
        snapshot: None,
        owner: 1000,
        rights: &Rights::own(),
        model_override,
        cwd,
        prompts: &[],
        wishes: &Default::default(),
        recorded: None,
        cage: usual_cage(),
        limits,
        place: Place::default(),
        own_servers: &std::collections::BTreeMap::new(),
    };
    prepare(&ask, models)
}

/// A message of the run that the tests work on.
pub fn said(role: Role, text: &str) -> Message {
    message(role, Part::Text { text: text.to_owned() })
}

pub fn message(role: Role, part: Part) -> Message {
    Message {
        seq: 0,
        id: Ulid(0),
        run: RunId(Ulid(1)),
        role,
        content: vec![part],
        time: Timestamp::from_millis(0),
        caller: None,
    }
}

/// Writes down what a run tells, one line each. Ids are shown as numbers in the order they were made.
#[derive(Default)]
pub struct Log {
    lines: Mutex<Vec<String>>,
    made: Mutex<Vec<Ulid>>,
    pub blobs: Mutex<Vec<Vec<u8>>>,
    /// Cancelled when this line has been told.
    stop_at: Option<(String, CancellationToken)>,
    /// The run's: once it is cancelled, nothing is taken.
    stop: Mutex<CancellationToken>,
    /// From this line on nobody listens.
    deaf_at: Option<String>,
    /// Where the session stands.
    step: Mutex<Option<Step>>,
    /// From this line on the session is paused: there is no next step.
    paused_at: Option<String>,
    /// What was sent to the model, newest last.
    pub packs: Mutex<Vec<Value>>,
    /// What an operator says to every approval.
    approves: Option<ApprovalOutcome>,
    /// The calls that ended, in order, and what the operator was asked.
    pub finished: Mutex<Vec<FinishedTool>>,
    pub asked: Mutex<Vec<ApprovalAsk>>,
    /// Approvals are answered when this many wait.
    pub together: Option<tokio::sync::Barrier>,
}

impl Log {
    pub fn stopping_at(line: &str, stop: &CancellationToken) -> Arc<Log> {
        Arc::new(Log { stop_at: Some((line.to_owned(), stop.clone())), ..Log::default() })
    }

    pub fn answering(approves: ApprovalOutcome) -> Arc<Log> {
        Arc::new(Log { approves: Some(approves), ..Log::default() })
    }

    /// Allows calls when so many wait at once.
    pub fn answering_together(waiting: usize) -> Arc<Log> {
        let together = Some(tokio::sync::Barrier::new(waiting));
        Arc::new(Log { approves: Some(ApprovalOutcome::Allow), together, ..Log::default() })
    }

    pub fn deaf_at(line: &str) -> Arc<Log> {
        Arc::new(Log { deaf_at: Some(line.to_owned()), ..Log::default() })
    }

    pub fn paused_at(line: &str) -> Arc<Log> {
        Arc::new(Log { paused_at: Some(line.to_owned()), ..Log::default() })
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn text(&self, outcome: &Outcome) -> String {
        let mut text = String::new();
        for line in self.lines() {
            writeln!(text, "{line}").unwrap();
        }
        let end = match outcome {
            Outcome::Done => "done".to_owned(),
            Outcome::Failed(failure) => {
                format!("failed {} {}: {}", failure.code, failure.reason, failure.message)
            }
            Outcome::Cancelled { .. } => "cancelled".to_owned(),
        };
        writeln!(text, "{end}").unwrap();
        text
    }

    fn tell(&self, line: String) -> Result<(), Stopped> {
        let deaf = self.deaf_at.as_deref() == Some(line.as_str());
        let stop = self.stop_at.as_ref().filter(|(at, _)| *at == line);
        self.lines.lock().unwrap().push(line);
        if let Some((_, stop)) = stop {
            stop.cancel();
        }
        if deaf { Err(Stopped) } else { self.go_on() }
    }

    fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.lock().unwrap().is_cancelled() { Err(Stopped) } else { Ok(()) }
    }

    fn say(&self, role: Role, id: Ulid, part: Part) {
        let mut step = self.step.lock().unwrap();
        let Some(step) = step.as_mut() else { return };
        step.messages.push(Arc::new(Message { id, ..message(role, part) }));
    }

    /// What a session would know after this.
    fn follow(&self, progress: &Progress) {
        match progress {
            Progress::AssistantFinished { message_id, text, .. } if !text.is_empty() => {
                self.say(Role::Assistant, message_id.0, Part::Text { text: text.clone() });
            }
            Progress::ToolsStarted(calls) | Progress::ToolsStartedUpTo { calls, .. } => {
                if let Some(step) = self.step.lock().unwrap().as_mut() {
                    step.pending.clear();
                }
                for call in calls {
                    let (call_id, name, input) = (call.call_id.0, call.name.clone(), call.input.clone());
                    self.say(
                        Role::Assistant,
                        call_id,
                        Part::ToolCall { call_id, name, input, provider: call.provider.clone() },
                    );
                }
            }
            Progress::ToolFinished(finished) => {
                self.finished.lock().unwrap().push(finished.as_ref().clone());
                let (call_id, status, text) = (finished.call_id.0, finished.status, finished.output.clone());
                self.say(Role::Tool, call_id, Part::ToolResult { call_id, status, text });
            }
            Progress::Compacted(made) => {
                let mut step = self.step.lock().unwrap();
                let Some(step) = step.as_mut() else { return };
                step.messages.retain(|message| !made.superseded_message_ids.contains(&message.id));
                if let (Some(text), Some(id)) = (&made.summary, made.summary_message_id) {
                    let part = Part::Text { text: text.clone() };
                    step.messages.insert(0, Arc::new(Message { id: id.0, ..message(Role::System, part) }));
                }
            }
            Progress::AssistantStarted { .. } => {
                if let Some(step) = self.step.lock().unwrap().as_mut() {
                    step.steps += 1;
                }
            }
            Progress::AssistantFinished { .. }
            | Progress::ReasoningFinished { .. }
            | Progress::Retrying(_)
            | Progress::Noticed { .. }
            | Progress::SubagentSpawned(_)
            | Progress::SubagentRunning { .. }
            | Progress::SubagentExited { .. }
            | Progress::ApprovalRequested { .. } => {}
            Progress::Together(parts) => parts.iter().for_each(|part| self.follow(part)),
        }
    }

    fn number(&self, id: Ulid) -> usize {
        self.made.lock().unwrap().iter().position(|made| *made == id).unwrap() + 1
    }

    fn show_calls(&self, calls: Vec<StartedTool>, word: &str) -> String {
        let calls = calls.into_iter().map(|call| {
            let theirs = call.provider_call_id.map(|id| format!(" ({id})")).unwrap_or_default();
            format!("#{} {word} {} {}{theirs}", self.number(call.call_id.0), call.name, call.input)
        });
        calls.collect::<Vec<_>>().join("\n")
    }

    fn show(&self, progress: Progress) -> String {
        match progress {
            Progress::AssistantStarted { message_id, model, step } => {
                format!("#{} started step {step} {model}", self.number(message_id.0))
            }
            Progress::AssistantFinished { message_id, text, finish_reason, usage } => {
                let cost = usage.map(|u| format!(" {}+{} tokens", u.input, u.output)).unwrap_or_default();
                format!("#{} finished {finish_reason:?} {text:?}{cost}", self.number(message_id.0))
            }
            Progress::ReasoningFinished { message_id, text } => {
                format!("#{} reasoned {text:?}", self.number(message_id.0))
            }
            Progress::Retrying(retry) => {
                let Retry { code, attempt, attempts_max, wait_ms, .. } = retry;
                format!("retries {code} after attempt {attempt} of {attempts_max} in {wait_ms} ms")
            }
            Progress::Noticed { reason, message } => format!("notices {reason}: {message}"),
            Progress::ToolsStarted(calls) => self.show_calls(calls, "calls"),
            Progress::ToolsStartedUpTo { calls, behind } => {
                self.show_calls(calls, "calls") + "\n" + &self.show_calls(behind, "will call")
            }
            Progress::Compacted(made) => {
                let (how, why) = (made.strategy.as_str(), made.trigger);
                let what = if made.proposed { "proposes" } else { "compacts" };
                let fallback = made.fallback_reason.map(|why| format!(", but {why}")).unwrap_or_default();
                let summary = made.summary.map(|text| format!(" to {text:?}")).unwrap_or_default();
                let count = made.superseded_message_ids.len();
                format!("{what} {count} by {how} for {why:?}{summary}{fallback}")
            }
            Progress::Together(parts) => {
                parts.into_iter().map(|part| self.show(part)).collect::<Vec<_>>().join("\n")
            }
            Progress::ApprovalRequested { .. } => unreachable!("approvals are asked for on their own"),
            Progress::SubagentSpawned(_)
            | Progress::SubagentRunning { .. }
            | Progress::SubagentExited { .. } => {
                unreachable!("this session has no subagents")
            }
            Progress::ToolFinished(finished) => {
                let FinishedTool { call_id, status, output, truncated, blob, .. } = *finished;
                let word = match status {
                    ToolStatus::Ok => "gave",
                    ToolStatus::Error => "failed",
                    ToolStatus::Interrupted => "interrupted",
                    ToolStatus::Skipped => "skipped",
                };
                assert_eq!(truncated, blob.is_some());
                let blob = blob.map(|blob| format!(" blob of {}", blob.size)).unwrap_or_default();
                format!("#{} {word} {output:?}{blob}", self.number(call_id.0))
            }
        }
    }
}

impl RunPort for Log {
    fn new_id(&self) -> Ulid {
        let mut made = self.made.lock().unwrap();
        let millis = made.len() as u64 + 1;
        let id = IdSource::new(7).next(Timestamp::from_millis(millis));
        made.push(id);
        id
    }

    fn delta(&self, message: MessageId, kind: DeltaKind, text: String) -> PortFuture<'_, ()> {
        let word = match kind {
            DeltaKind::Text => "text",
            DeltaKind::Reasoning => "thinks",
        };
        let line = format!("#{} {word} {text:?}", self.number(message.0));
        Box::pin(async move { self.tell(line) })
    }

    fn progress(&self, progress: Progress) -> PortFuture<'_, ()> {
        self.follow(&progress);
        let lines = self.show(progress);
        Box::pin(async move { lines.split('\n').try_for_each(|line| self.tell(line.to_owned())) })
    }

    fn step(&self) -> PortFuture<'_, Step> {
        let step = self.step.lock().unwrap().clone();
        let is_paused = self.paused_at.as_ref().is_some_and(|at| self.lines.lock().unwrap().contains(at));
        Box::pin(async move { step.filter(|_| !is_paused).ok_or(Stopped) })
    }

    fn approval(&self, ask: ApprovalAsk) -> PortFuture<'_, Approved> {
        if !ask.is_answerable {
            return Box::pin(async { Ok(Approved { outcome: ApprovalOutcome::Deny, note: None }) });
        }
        self.asked.lock().unwrap().push(ask.clone());
        let line = format!("asks for {} on {}", ask.tool, ask.subject.unwrap_or_default());
        let outcome = self.approves.unwrap_or(ApprovalOutcome::Timeout);
        Box::pin(async move {
            self.tell(line)?;
            if let Some(all) = &self.together {
                all.wait().await;
            }
            Ok(Approved { outcome, note: Some("a word".to_owned()) })
        })
    }

    fn checkpoint(&self, call: CallId, reason: Option<String>) -> PortFuture<'_, ()> {
        self.say(
            Role::Tool,
            call.0,
            Part::ToolResult { call_id: call.0, status: ToolStatus::Ok, text: "resumed".to_owned() },
        );
        let line = format!("#{} pauses: {}", self.number(call.0), reason.unwrap_or_default());
        Box::pin(async move { self.tell(line) })
    }

    fn issue(&self, act: IssueAct) -> PortFuture<'_, Result<String, Refusal>> {
        let line = format!("{act:?}");
        Box::pin(async move { self.tell(line).map(|()| Ok("noted".to_owned())) })
    }

    fn output(&self, call: CallId) -> PortFuture<'_, Result<String, Refusal>> {
        let line = format!("reads back #{}", self.number(call.0));
        let whole = self.blobs.lock().unwrap().first().cloned();
        let whole = whole.map(|bytes| String::from_utf8(bytes).unwrap());
        let missing = Refusal::new(ctx_session::Code::Enoent, "no such output");
        Box::pin(async move { self.tell(line).map(|()| whole.ok_or(missing)) })
    }

    fn pack(&self, json: Vec<u8>) -> PortFuture<'_, ()> {
        self.packs.lock().unwrap().push(serde_json::from_slice(&json).unwrap());
        Box::pin(async { Ok(()) })
    }

    fn read_blob(&self, sha256: String) -> PortFuture<'_, Result<Vec<u8>, Refusal>> {
        let blobs = self.blobs.lock().unwrap();
        let found = blobs.iter().find(|bytes| sha256_hex(bytes) == sha256).cloned();
        let missing = Refusal::new(ctx_session::Code::Enoent, "no such blob");
        Box::pin(async move { Ok(found.ok_or(missing)) })
    }

    fn may_spend(&self) -> PortFuture<'_, Result<(), Failure>> {
        Box::pin(async { Ok(Ok(())) })
    }

    fn store_blob(&self, bytes: Vec<u8>) -> PortFuture<'_, BlobRef> {
        Box::pin(async move {
            let blob = BlobRef { sha256: sha256_hex(&bytes), size: bytes.len() as u64 };
            self.blobs.lock().unwrap().push(bytes);
            Ok(blob)
        })
    }

    fn spawn(&self, spawn: Spawn) -> PortFuture<'_, Result<Arc<dyn RunPort>, Refusal>> {
        let line = format!("spawns {}", spawn.name);
        let none = Refusal::new(ctx_session::Code::Ebusy, "this session has no subagents");
        Box::pin(async move { self.tell(line).map(|()| Err(none)) })
    }

    fn reap(&self, _: SubagentId, _: Exit) -> PortFuture<'_, Reaped> {
        Box::pin(async { Err(Stopped) })
    }

    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let stop = self.stop.lock().unwrap().clone();
        Box::pin(async move { stop.cancelled().await })
    }
}
