//! What the tests share: a root in a temporary directory, and sessions whose random life follows the rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_journal::{FileJournal, Journal, LogPath, LogWriter, Owner, RealDisk};
use ctx_session::command::{
    Admission, ApprovalAnswer, Change, CompactionEdits, FinishedTool, Interruption, Outcome, Partial, Pauser,
    PostMessage, Progress, RunContext, Spawn, StartedTool,
};
use ctx_session::conversation::Conversation;
use ctx_session::record::{
    ApprovalScope, CancelReason, Compaction, CompactionFlag, CompactionTrigger, DetachReason, Failure,
    FinishReason, LimitHit, LimitScope, PluginCost, PromptRef, RunWishes, SessionBody,
    Strategy as Shortening, ToolStatus, Usage,
};
use ctx_session::rules::{Create, Fork, Given, create};
use ctx_session::{
    ApprovalId, Body, CallId, CheckpointId, Code, Command, CompactionId, IdSource, IssueId, Limits,
    MessageId, Name, Record, RunId, Scope, Session, SessionId, SubagentId, Timestamp, Ulid,
};
use ctx_views::RootDir;
use proptest::prelude::*;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A root on the real disk.
pub struct Root {
    pub temp: tempfile::TempDir,
    pub dir: RootDir,
    pub journal: Arc<dyn Journal>,
}

impl Root {
    pub fn new() -> Root {
        let temp = tempfile::tempdir().unwrap();
        let dir = RootDir::open(temp.path()).unwrap();
        let journal = Arc::new(FileJournal::new(Arc::new(RealDisk::new(temp.path()).unwrap())));
        Root { temp, dir, journal }
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.temp.path().join(relative)
    }
}

pub fn own() -> Owner {
    Owner::own()
}

/// One thing that happens to a session; what it becomes depends on the state it is in.
#[derive(Debug, Clone)]
pub enum Step {
    Post {
        text: String,
        slot: bool,
        cwd: Option<String>,
    },
    Say {
        text: String,
    },
    Think {
        text: String,
    },
    Tool {
        input: String,
        output: String,
        finish: bool,
    },
    Finish {
        how: u8,
        partial: Option<String>,
    },
    Rename {
        title: String,
    },
    SetModel {
        model: Option<String>,
    },
    Attach {
        takeover: bool,
    },
    Detach,
    ResumeQueued,
    DiscardQueued,
    CancelQueued,
    Crash,
    Archive {
        archived: bool,
    },
    /// The operator pauses, or the model by a tool call that is open.
    Pause {
        by_model: bool,
    },
    EditPrompt {
        text: String,
    },
    Resume {
        slot: bool,
    },
    /// To one of the checkpoints, counted from the newest.
    Rollback {
        back: usize,
        partial: Option<String>,
    },
    Compact,
    /// The oldest messages go, or are proposed to.
    Shorten {
        messages: usize,
        summary: Option<String>,
        proposed: bool,
    },
    Approve {
        messages: Option<usize>,
        summary: Option<String>,
    },
    Reject,
    Flag {
        notes: Option<String>,
    },
    Ask,
    /// A subagent for the open call; it ends with its run.
    Spawn,
    Answer {
        how: u8,
    },
    Bind,
    Unbind,
    /// A message that counts, from the oldest.
    Pin {
        at: usize,
        pinned: bool,
    },
    Fail,
    End,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zäß€ \\n\"\\\\]{1,40}",
        Just("needle in a haystack".to_owned()),
        Just("line\n".to_owned()),
        "[a-z ]{5000,9000}",
    ]
}

pub fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let cwd = prop_oneof![Just(None), Just(Some("/work".to_owned())), Just(Some("/work/sub".to_owned()))];
    let model = prop_oneof![Just(None), Just(Some("debug:script".to_owned()))];
    let step = prop_oneof![
        8 => (text(), prop::bool::weighted(0.8), cwd)
            .prop_map(|(text, slot, cwd)| Step::Post { text, slot, cwd }),
        8 => prop_oneof![4 => text(), 1 => Just(String::new())].prop_map(|text| Step::Say { text }),
        2 => text().prop_map(|text| Step::Think { text }),
        5 => ("[a-z]{0,9}", text(), any::<bool>())
            .prop_map(|(input, output, finish)| Step::Tool { input, output, finish }),
        6 => (0u8..4, proptest::option::of(text())).prop_map(|(how, partial)| Step::Finish { how, partial }),
        2 => "[a-zä]{1,20}".prop_map(|title| Step::Rename { title }),
        2 => model.prop_map(|model| Step::SetModel { model }),
        2 => any::<bool>().prop_map(|takeover| Step::Attach { takeover }),
        2 => Just(Step::Detach),
        3 => Just(Step::ResumeQueued),
        2 => Just(Step::DiscardQueued),
        1 => Just(Step::CancelQueued),
        2 => Just(Step::Crash),
        2 => any::<bool>().prop_map(|archived| Step::Archive { archived }),
        15 => controls(),
        1 => Just(Step::Fail),
        1 => Just(Step::End),
    ];
    prop::collection::vec(step, 1..max)
}

/// Steps of a session whose operator does much with it, and which nothing ends.
pub fn operated(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let call = |finish| Step::Tool { input: "README".to_owned(), output: "needle".to_owned(), finish };
    let step = prop_oneof![
        4 => "[a-z]{1,9}".prop_map(|text| Step::Post { text, slot: true, cwd: None }),
        2 => "[a-z]{1,9}".prop_map(|text| Step::Say { text }),
        2 => any::<bool>().prop_map(call),
        3 => Just(Step::Finish { how: 0, partial: None }),
        12 => controls(),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..max)
}

/// What the operator does with a session.
fn controls() -> impl Strategy<Value = Step> {
    let maybe = || proptest::option::of(text());
    prop_oneof![
        4 => any::<bool>().prop_map(|by_model| Step::Pause { by_model }),
        1 => "[a-z]{1,3}".prop_map(|text| Step::EditPrompt { text }),
        3 => prop::bool::weighted(0.8).prop_map(|slot| Step::Resume { slot }),
        3 => (0usize..3, maybe()).prop_map(|(back, partial)| Step::Rollback { back, partial }),
        2 => Just(Step::Compact),
        3 => (0usize..6, maybe(), any::<bool>())
            .prop_map(|(messages, summary, proposed)| Step::Shorten { messages, summary, proposed }),
        2 => (proptest::option::of(0usize..4), maybe())
            .prop_map(|(messages, summary)| Step::Approve { messages, summary }),
        1 => Just(Step::Reject),
        1 => maybe().prop_map(|notes| Step::Flag { notes }),
        2 => Just(Step::Ask),
        1 => Just(Step::Spawn),
        1 => (0u8..3).prop_map(|how| Step::Answer { how }),
        1 => Just(Step::Bind),
        1 => Just(Step::Unbind),
        3 => (0usize..6, prop::bool::weighted(0.7)).prop_map(|(at, pinned)| Step::Pin { at, pinned }),
    ]
}

/// A session that lives by the rules; every step gives the records of its commits.
pub struct Life {
    pub session: Session,
    /// The commits, each with the records that were written together.
    pub commits: Vec<Vec<Record>>,
    ids: IdSource,
    now: Timestamp,
}

impl Life {
    pub fn begin(seed: u64) -> Life {
        Life::begin_as(seed, Some("default"), "coder", 1_794_722_400_000)
    }

    pub fn begin_as(seed: u64, called: Option<&str>, agent: &str, millis: u64) -> Life {
        let mut ids = IdSource::new(seed);
        let now = Timestamp::from_millis(millis);
        let decision = create(Create {
            id: SessionId(ids.next(now)),
            name: called.map(name),
            scope: Scope::Private,
            space: None,
            owner: own().uid,
            agent: Some(name(agent)),
            project: name("default"),
            cwd: "/work".to_owned(),
            dir: None,
            workspace: None,
            model: "debug/echo".to_owned(),
            dsl: None,
            client: Some("test".to_owned()),
            origin: None,
            requested: None,
            app: "ctx test".to_owned(),
        });
        let Some(Body::Session(SessionBody::Meta(meta))) = decision.records.first().cloned() else {
            panic!("no meta")
        };
        let first = Record { seq: 0, time: now, body: Body::Session(SessionBody::Meta(meta.clone())) };
        Life { session: Session::new(*meta, 0, now), commits: vec![vec![first]], ids, now }
    }

    /// A fork of this session, as it is now.
    pub fn fork(&self, seed: u64, called: &str) -> Life {
        let mut ids = IdSource::new(seed);
        let fork = Fork {
            id: SessionId(ids.next(self.now)),
            name: Some(name(called)),
            scope: Scope::Private,
            space: None,
            owner: own().uid,
            client: None,
            requested: None,
            app: "ctx test".to_owned(),
        };
        let last = self.session.next_seq - 1;
        let (meta, forked) = fork.records(&self.session.meta, last);
        let mut records = self.records();
        records[0].body = Body::Session(SessionBody::Meta(Box::new(meta.clone())));
        records.push(Record { seq: last + 1, time: self.now, body: forked });
        let mut session = Session::new(meta, 0, records[0].time);
        for record in &records[1..] {
            session.apply(record);
        }
        // Each with its own time.
        let commits = records.into_iter().map(|record| vec![record]).collect();
        Life { session, commits, ids, now: self.now }
    }

    /// Goes back to its first commits: what came after them never was.
    pub fn forget_after(&mut self, commits: usize) {
        self.commits.truncate(commits.max(1));
        let records = self.records();
        self.session = Session::new(self.session.meta.clone(), 0, records[0].time);
        for record in &records[1..] {
            self.session.apply(record);
        }
    }

    /// Lives through the steps; those that the rules refuse change nothing.
    pub fn live(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    /// Takes a step and returns the records it committed, if any.
    pub fn step(&mut self, step: &Step) -> Option<&[Record]> {
        self.now = Timestamp::from_millis(self.now.as_millis() + 7);
        let command = self.command(step)?;
        // Few, so that there are some to gather into one.
        let limits = Limits { compactions_per_session: 3, compactions_aggregated: 2, ..Limits::default() };
        let mut given = Given { now: self.now, ids: &mut self.ids, limits: &limits };
        let decision = self.session.decide(&command, &mut given).ok()?;
        if decision.records.is_empty() {
            return None;
        }
        let from = self.session.next_seq;
        let records: Vec<Record> = decision
            .records
            .into_iter()
            .zip(from..)
            .map(|(body, seq)| Record { seq, time: self.now, body })
            .collect();
        for record in &records {
            self.session.apply(record);
        }
        self.commits.push(records);
        self.commits.last().map(Vec::as_slice)
    }

    fn command(&mut self, step: &Step) -> Option<Command> {
        if let Some(command) = self.control(step) {
            return Some(command);
        }
        let run = self.session.current_run().map(|run| run.id);
        let progress =
            |run: Option<RunId>, progress| Some(Command::Progress { run: run?, caller: None, progress });
        let mut id = || self.ids.next(self.now);
        match step.clone() {
            Step::Post { text, slot, cwd } => Some(post(text, slot, cwd)),
            Step::Say { text } => {
                let message_id = MessageId(id());
                let usage = Some(Usage { input: 3, output: 5, ..Usage::default() });
                let finish_reason = FinishReason::Stop;
                progress(run, Progress::AssistantFinished { message_id, text, finish_reason, usage })
            }
            Step::Think { text } => {
                let message_id = MessageId(id());
                progress(run, Progress::ReasoningFinished { message_id, text })
            }
            Step::Tool { input, output, finish } => {
                let open = self.session.open_tools().next().map(|(call, _)| call);
                match (finish, open) {
                    (true, Some(call_id)) => progress(run, tool_finished(call_id, output)),
                    (true, None) | (false, _) => progress(run, tool_started(CallId(id()), input)),
                }
            }
            Step::Finish { how, partial } => {
                let outcome = match how {
                    0 | 1 => Outcome::Done,
                    2 => Outcome::Failed(failure("provider_error")),
                    _ => Outcome::Cancelled { reason: CancelReason::Operator, by: Some(own().uid) },
                };
                let partial = partial.map(|text| Partial { message_id: MessageId(id()), text });
                Some(Command::FinishRun { run: run?, outcome, partial })
            }
            Step::Rename { title } => {
                Some(Command::Change(Change { title: Some(title), ..Change::default() }))
            }
            Step::SetModel { model } => {
                Some(Command::Change(Change { model: Some(model), ..Change::default() }))
            }
            Step::Attach { takeover } => {
                let (connection, user) = (id(), own().uid);
                Some(Command::Attach { connection, user, device_hint: None, takeover })
            }
            Step::Detach => {
                let connection = self.session.attached?.connection;
                Some(Command::Detach { connection, reason: DetachReason::Clean })
            }
            Step::ResumeQueued => Some(Command::ResumeQueued { admission: granted("/work"), by: own().uid }),
            Step::DiscardQueued => Some(Command::DiscardQueued { by: own().uid }),
            Step::CancelQueued => {
                let reason = CancelReason::Operator;
                Some(Command::CancelRun { run: run?, reason, by: Some(own().uid), partial: None })
            }
            Step::Crash => Some(Command::Recover { cause: Interruption::DaemonCrash, under_way: None }),
            Step::Archive { archived } => {
                Some(Command::Change(Change { archived: Some(archived), by: own().uid, ..Change::default() }))
            }
            Step::Fail => Some(Command::Fail { failure: failure("broken"), partial: None }),
            Step::End => Some(Command::End { by: own().uid, partial: None }),
            Step::Pause { .. }
            | Step::EditPrompt { .. }
            | Step::Resume { .. }
            | Step::Rollback { .. }
            | Step::Compact
            | Step::Shorten { .. }
            | Step::Approve { .. }
            | Step::Reject
            | Step::Flag { .. }
            | Step::Ask
            | Step::Spawn
            | Step::Answer { .. }
            | Step::Bind
            | Step::Unbind
            | Step::Pin { .. } => None,
        }
    }

    /// The command of a step that the operator takes, where there is something to take it with.
    fn control(&mut self, step: &Step) -> Option<Command> {
        let by = own().uid;
        let session = &self.session;
        let run = session.current_run().map(|run| run.id);
        let paused_at = session.paused_at().map(|checkpoint| checkpoint.id());
        let open = session.open_tools().next().map(|(call, _)| call);
        let conversation = self.conversation();
        let counting = |n: usize| -> Vec<Ulid> {
            let mut ids: Vec<Ulid> = conversation
                .messages(&self.session.ledger)
                .iter()
                .take(n)
                .map(|message| message.id)
                .collect();
            // A call and its result are one.
            ids.dedup();
            ids
        };
        let newest = session.control.compactions.last().map(|compaction| compaction.id());
        match step.clone() {
            Step::Pause { by_model } => {
                let by = match (by_model, run, open) {
                    (true, Some(run), Some(call)) => Pauser::Model { run, call },
                    (true, ..) | (false, ..) => Pauser::Operator { by },
                };
                Some(Command::Checkpoint { by, reason: Some("to look".to_owned()) })
            }
            Step::EditPrompt { text } => {
                let target = "primary".to_owned();
                Some(Command::EditPrompt { checkpoint: paused_at?, target, hash: text, by })
            }
            Step::Resume { slot } => {
                let admission = if slot { granted("/work") } else { no_slot() };
                Some(Command::Resume { checkpoint: paused_at?, admission, by, message: None })
            }
            Step::Rollback { back, partial } => {
                let checkpoint: CheckpointId = session.control.checkpoints.iter().rev().nth(back)?.id();
                let partial =
                    partial.map(|text| Partial { message_id: MessageId(self.ids.next(self.now)), text });
                Some(Command::Rollback { checkpoint, by, partial, files: None })
            }
            Step::Compact => Some(Command::Compact { strategy: None, admission: granted("/work"), by }),
            Step::Shorten { messages, summary, proposed } => {
                let ids = counting(messages);
                let made = self.compaction(run?, ids, summary, proposed);
                Some(Command::Progress {
                    run: run?,
                    caller: None,
                    progress: Progress::Compacted(Box::new(made)),
                })
            }
            Step::Approve { messages, summary } => {
                let edits = CompactionEdits { superseded: messages.map(counting), summary };
                let admission = granted("/work");
                Some(Command::ApproveCompaction { compaction: newest?, edits, admission, by })
            }
            Step::Reject => Some(Command::RejectCompaction { compaction: newest?, by }),
            Step::Flag { notes } => {
                let flag = Some(notes.as_ref().map(|_| CompactionFlag::Bad));
                Some(Command::FlagCompaction { compaction: newest?, flag, notes: Some(notes), by })
            }
            Step::Spawn => Some(Command::Progress {
                caller: None,
                run: run?,
                progress: Progress::SubagentSpawned(Box::new(Spawn {
                    invocation_id: SubagentId(self.ids.next(self.now)),
                    call_id: open?,
                    name: "tester".to_owned(),
                    model: "debug/script".to_owned(),
                    prompt: "run the tests".to_owned(),
                    walltime_ms: None,
                    memory_bytes: None,
                })),
            }),
            Step::Ask => Some(Command::Progress {
                caller: None,
                run: run?,
                progress: Progress::ApprovalRequested {
                    approval_id: ApprovalId(self.ids.next(self.now)),
                    call_id: open?,
                    tool: "fs.read".to_owned(),
                    subject: Some("README".to_owned()),
                    pattern: None,
                    diff: None,
                    expires_at: Timestamp::from_millis(self.now.as_millis() + 300_000),
                },
            }),
            Step::Answer { how } => {
                let approval = session.control.open_approvals().next()?.asked.approval_id;
                let answer = match how {
                    0 => ApprovalAnswer::Allow { by, scope: ApprovalScope::Session },
                    1 => ApprovalAnswer::Deny { by },
                    _ => ApprovalAnswer::Timeout,
                };
                Some(Command::AnswerApproval { approval, answer, note: None })
            }
            Step::Bind => Some(Command::Bind { issue: IssueId(self.ids.next(self.now)), by }),
            Step::Unbind => Some(Command::Unbind { by }),
            Step::Pin { at, pinned } => {
                let message = session.ledger.counting().nth(at)?.id;
                Some(Command::Pin { message, pinned, by })
            }
            _ => None,
        }
    }

    fn compaction(
        &mut self,
        run: RunId,
        ids: Vec<Ulid>,
        summary: Option<String>,
        proposed: bool,
    ) -> Compaction {
        let ledger = &self.session.ledger;
        let last: Vec<Ulid> = ledger.last_exchange().map(|entry| entry.id).collect();
        let old = ledger.counting().filter(|entry| entry.output.is_some() && !last.contains(&entry.id));
        let elided = old.map(|entry| CallId(entry.id)).take(2).collect();
        let mut id = || self.ids.next(self.now);
        let summary = summary.filter(|_| !ids.is_empty());
        Compaction {
            compaction_id: CompactionId(id()),
            turn_id: run,
            agent_path: "coder".to_owned(),
            trigger: CompactionTrigger::ThresholdCrossed,
            strategy: if proposed { Shortening::Checkpoint } else { Shortening::Summarize },
            proposed,
            window: Some(1_000),
            used: Some(910),
            threshold_estimate: 0.91,
            after_estimate: 0.55,
            window_upper: 0.85,
            window_lower: 0.6,
            superseded_message_ids: ids,
            elided_call_ids: elided,
            summary_message_id: summary.as_ref().map(|_| MessageId(id())),
            summary,
            plugins_fired: Vec::new(),
            plugin_cost: (!proposed).then(|| PluginCost {
                provider: "debug".to_owned(),
                model: "echo".to_owned(),
                input_tokens: 100,
                output_tokens: 10,
                cost_usd: 0.0,
            }),
            fallback_occurred: false,
            fallback_reason: None,
            checkpoint_id: None,
        }
    }

    /// The messages that count, as the rules say.
    pub fn conversation(&self) -> Conversation {
        let mut conversation = Conversation::default();
        for record in self.commits.iter().flatten() {
            conversation.apply(record);
        }
        conversation
    }

    pub fn records(&self) -> Vec<Record> {
        self.commits.iter().flatten().cloned().collect()
    }

    /// Writes the whole life into a log.
    pub fn write(&self, journal: &dyn Journal, log: &LogPath) -> Box<dyn LogWriter> {
        let (first, rest) = self.commits.split_first().unwrap();
        let writer = journal.create(log, own(), first[0].time, &bodies(first)).unwrap();
        for commit in rest {
            append(&*writer, commit);
        }
        writer
    }
}

pub fn append(writer: &dyn LogWriter, commit: &[Record]) {
    writer.append(commit[0].seq, commit[0].time, &bodies(commit)).unwrap();
}

fn bodies(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.body.to_json()).collect()
}

fn post(text: String, slot: bool, cwd: Option<String>) -> Command {
    let admission = if slot { granted("/work") } else { no_slot() };
    let by = own().uid;
    let wishes = RunWishes::default();
    Command::PostMessage(PostMessage {
        text,
        images: Vec::new(),
        client_id: None,
        model_override: None,
        cwd,
        wishes,
        admission,
        by,
    })
}

fn no_slot() -> Admission {
    Admission::Full(LimitHit { scope: LimitScope::PerProject, running: 4, limit: 4 })
}

fn granted(cwd: &str) -> Admission {
    let context = RunContext {
        model: "debug/echo".to_owned(),
        cwd: cwd.to_owned(),
        policy: Vec::new(),
        cage: None,
        sources: Vec::new(),
        prompts: vec![PromptRef { target: "primary".to_owned(), hash: "0".to_owned() }],
        redact: None,
        approvals: None,
    };
    let running = [LimitScope::PerProject, LimitScope::PerOperator];
    Admission::Granted { context, running: running.map(|scope| LimitHit { scope, running: 1, limit: 4 }) }
}

fn tool_started(call_id: CallId, input: String) -> Progress {
    let input = serde_json::json!({ "path": input });
    let tool =
        StartedTool { call_id, provider_call_id: None, name: "fs.read".to_owned(), input, provider: None };
    Progress::ToolsStarted(vec![tool])
}

fn tool_finished(call_id: CallId, output: String) -> Progress {
    Progress::ToolFinished(Box::new(FinishedTool::new(call_id, ToolStatus::Ok, 4, output)))
}

fn failure(reason: &str) -> Failure {
    Failure { code: Code::Eio, reason: reason.to_owned(), message: "it went wrong".to_owned() }
}

/// Every view file of a session directory with its bytes. The log, and what a crash left beside, are not views.
pub fn view_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() && !name.starts_with("events.jsonl") && !name.starts_with('.')
        {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}
