//! A session as its log tells it: the state that [`Session::apply`] reaches by reading records in order.
//!
//! What may be asked of a session in which state is decided in [`crate::rules`]; this module only follows.
//! Applying never fails: a log with a damaged line still opens, so a record that does not fit is taken for
//! what it says and nothing more.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;

use crate::control::{Checkpoint, Control};
use crate::ids::{CallId, CheckpointId, MessageId, RunId, SessionId, Ulid};
use crate::ledger::Ledger;
use crate::log_facts::Attaches;
use crate::overview::Overview;
use crate::record::{
    Body, Caller, CompactionBody, Failure, FinishReason, LimitHit, MessageBody, Record, RunBody, RunCreated,
    RunFinish, RunKind, RunWishes, Scope, SessionBody, SessionMeta, StateName, Strategy, ToolBody,
    ToolPending, Usage, User,
};
use crate::request::Requests;
use crate::subagent::{DISPATCH, Subagents};
use crate::terminal::Terminals;
use crate::time::Timestamp;

/// Where a session stands. Illegal combinations (idle with a run, queued without one) cannot be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Idle,
    Running { run: RunId },
    Queued { run: RunId, limit: Option<LimitHit> },
    Paused { checkpoint: CheckpointId },
    Ended,
    Failed(Failure),
}

impl State {
    pub fn name(&self) -> StateName {
        match self {
            State::Idle => StateName::Idle,
            State::Running { .. } => StateName::Running,
            State::Queued { .. } => StateName::Queued,
            State::Paused { .. } => StateName::Paused,
            State::Ended => StateName::Ended,
            State::Failed(_) => StateName::Failed,
        }
    }
}

/// Where a run stands; the API's field `state` has exactly these words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    Pending,
    Running,
    Done,
    Failed(Failure),
    Cancelled,
}

impl RunState {
    pub fn as_str(&self) -> &'static str {
        match self {
            RunState::Pending => "pending",
            RunState::Running => "running",
            RunState::Done => "done",
            RunState::Failed(_) => "failed",
            RunState::Cancelled => "cancelled",
        }
    }

    pub fn is_over(&self) -> bool {
        match self {
            RunState::Pending | RunState::Running => false,
            RunState::Done | RunState::Failed(_) | RunState::Cancelled => true,
        }
    }
}

/// One unit of work: what began it, the agent's loop, its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub kind: RunKind,
    /// The message it works on; a compaction that was asked for has none.
    pub message_id: Option<MessageId>,
    /// What a compaction that was asked for is to do; none: the agent's own.
    pub strategy: Option<Strategy>,
    /// The run whose work it goes on with.
    pub continues: Option<RunId>,
    /// What came with its message for this run alone.
    pub wishes: RunWishes,
    pub state: RunState,
    /// Where the run begins in the log: with the user's message, or where none began it with `run_created`.
    pub first_seq: u64,
    /// The seq of the record that ended it.
    pub end_seq: Option<u64>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// The time of its newest record.
    pub last_at: Timestamp,
    pub usage: Usage,
    /// Model calls that have begun.
    pub steps: u32,
    pub finish_reason: Option<RunFinish>,
    /// The model came to its end: nothing is left to do.
    answered: bool,
}

impl Run {
    fn start(&mut self, time: Timestamp) {
        self.state = RunState::Running;
        self.started_at = self.started_at.or(Some(time));
    }
}

/// An operator's interactive connection; there is at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    pub connection: Ulid,
    pub user: u32,
}

/// Everything that the rules need to know of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub overview: Overview,
    /// Where it stands, with what belongs to that; `overview.state` is its name.
    pub state: State,
    pub next_seq: u64,
    pub attached: Option<Attachment>,
    pub(crate) attaches: Attaches,
    pub control: Control,
    pub ledger: Ledger,
    pub subagents: Subagents,
    pub terminals: Terminals,
    /// Calls of the paused run that have not started.
    pending: Vec<ToolPending>,
    /// In the order of the log. Ids do not tell it: a clock may have jumped back between two daemons.
    runs: Vec<Run>,
    run_at: HashMap<RunId, usize>,
    client_ids: HashMap<String, RunId>,
    pub(crate) requests: Requests,
    open_tools: BTreeMap<CallId, OpenTool>,
    /// The newest record that settled a tool.
    tool_settled: Option<u64>,
    /// What the newest `state_changed` said; not the name of `state` only where a record is damaged.
    logged_state: StateName,
}

/// A tool that was started and not settled; its run is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenTool {
    pub run: RunId,
    pub started: Timestamp,
    seq: u64,
    /// None: the primary.
    pub caller: Option<Caller>,
    /// Those of one answer that ask for subagents are made side by side.
    dispatches: bool,
}

impl Session {
    /// A session of which only the first record has been read.
    pub fn new(meta: SessionMeta, seq: u64, time: Timestamp) -> Session {
        let mut overview = Overview::new(meta, time);
        overview.note_missing(0, seq);
        Session {
            overview,
            state: State::Idle,
            next_seq: seq.saturating_add(1),
            attached: None,
            attaches: Attaches::default(),
            control: Control::default(),
            ledger: Ledger::default(),
            subagents: Subagents::default(),
            terminals: Terminals::default(),
            pending: Vec::new(),
            runs: Vec::new(),
            run_at: HashMap::new(),
            client_ids: HashMap::new(),
            requests: Requests::default(),
            open_tools: BTreeMap::new(),
            tool_settled: None,
            logged_state: StateName::Idle,
        }
    }

    pub fn id(&self) -> SessionId {
        self.meta.session_id
    }

    pub fn is_temp(&self) -> bool {
        self.meta.scope == Scope::Temp
    }

    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(*self.run_at.get(&id)?)
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.runs.iter()
    }

    /// The run that a client id started.
    pub fn run_of_client_id(&self, client_id: &str) -> Option<&Run> {
        self.run(*self.client_ids.get(client_id)?)
    }

    /// The run that goes on, waits or is paused, if one does.
    pub fn current_run(&self) -> Option<&Run> {
        match &self.state {
            State::Running { run } | State::Queued { run, .. } => self.run(*run),
            State::Paused { .. } => self.paused_run(),
            State::Idle | State::Ended | State::Failed(_) => None,
        }
    }

    /// The checkpoint that the session is paused at.
    pub fn paused_at(&self) -> Option<&Checkpoint> {
        match &self.state {
            State::Paused { checkpoint } => self.control.checkpoint(*checkpoint),
            State::Idle | State::Running { .. } | State::Queued { .. } | State::Ended | State::Failed(_) => {
                None
            }
        }
    }

    /// The run that a checkpoint paused. One that proposed a compaction is over.
    fn paused_run(&self) -> Option<&Run> {
        self.run(self.paused_at()?.created.turn_id).filter(|run| !run.state.is_over())
    }

    /// Whether there is something to go on with at a checkpoint: its run, or a compaction to decide on.
    pub(crate) fn waits_at(&self, checkpoint: &Checkpoint) -> bool {
        let is_left =
            checkpoint.resumed_at.is_some() || checkpoint.rolled_back || checkpoint.superseded_by.is_some();
        let has_run = self.can_go_on(checkpoint.created.turn_id);
        !is_left && (has_run || self.control.proposed_at(checkpoint).is_some())
    }

    /// Whether a run is open and the newest. The state is of the newest run, so that one which damage put another behind
    /// cannot run again.
    pub(crate) fn can_go_on(&self, run: RunId) -> bool {
        self.last_run.is_some_and(|last| last.id == run)
            && self.run(run).is_some_and(|run| !run.state.is_over())
    }

    /// Whether there is nothing left to do for a run but to end it.
    pub fn is_answered(&self, run: RunId) -> bool {
        let answered = self.run(run).is_some_and(|run| run.answered);
        answered && self.pending.is_empty() && self.open_tools_of(run).next().is_none()
    }

    /// Calls that the model made while its session was paused; they start when it is resumed.
    pub fn pending_calls(&self) -> &[ToolPending] {
        &self.pending
    }

    /// Tools that were started and not settled, with the time they started at.
    pub fn open_tools(&self) -> impl Iterator<Item = (CallId, Timestamp)> + '_ {
        self.open_tools.iter().map(|(call, tool)| (*call, tool.started))
    }

    /// Whether the turn of a call that was started has come. Those of one answer are started together, for they are of one
    /// message, and made one after the other; while the session is paused, none is begun.
    pub fn has_its_turn(&self, call: CallId) -> bool {
        let Some(tool) = self.open_tools.get(&call) else { return true };
        let is_before = |other: &OpenTool| {
            let is_beside = other.dispatches && tool.dispatches;
            other.run == tool.run && other.caller == tool.caller && other.seq < tool.seq && !is_beside
        };
        let is_first = !self.open_tools.values().any(is_before);
        let is_held = self.paused_at().is_some_and(|at| self.tool_settled > Some(at.seq));
        is_first && !is_held
    }

    pub(crate) fn open_tools_of(&self, run: RunId) -> impl Iterator<Item = (CallId, &OpenTool)> + '_ {
        let of_run = self.open_tools.iter().filter(move |(_, tool)| tool.run == run);
        of_run.map(|(call, tool)| (*call, tool))
    }

    /// Whether this call is open, and no subagent's.
    pub(crate) fn is_primarys_open_call(&self, call: CallId) -> bool {
        self.open_tools.get(&call).is_some_and(|tool| tool.caller.is_none())
    }

    /// The state that someone who reads only the newest `state_changed` takes this session to be in.
    pub(crate) fn logged_state(&self) -> StateName {
        self.logged_state
    }

    /// Moves the state by one record. Replaying a log is this in a loop.
    pub fn apply(&mut self, record: &Record) {
        self.overview.note_missing(self.next_seq, record.seq);
        self.next_seq = self.next_seq.max(record.seq.saturating_add(1));
        self.overview.apply(record);
        self.control.apply(record);
        self.ledger.apply(record);
        if let Some(run) = record.body.run().and_then(|run| self.open_run(run)) {
            run.last_at = run.last_at.max(record.time);
        }
        self.subagents.apply(record);
        self.terminals.apply(record);
        match &record.body {
            Body::Session(body) => self.apply_session(body, record),
            Body::Run(body) => self.apply_run(body, record),
            Body::Message(body) => self.apply_message(body, record),
            Body::Tool(body) => self.apply_tool(body, record),
            // What making the conversation shorter cost is part of what the run cost.
            Body::Compaction(CompactionBody::Recorded(made)) => {
                if let (Some(run), Some(cost)) = (self.open_run(made.turn_id), &made.plugin_cost) {
                    run.usage = run.usage.plus(cost.usage());
                }
            }
            Body::Compaction(_)
            | Body::Checkpoint(_)
            | Body::Approval(_)
            | Body::Subagent(_)
            | Body::Terminal(_) => {}
        }
    }

    fn apply_session(&mut self, body: &SessionBody, record: &Record) {
        match body {
            SessionBody::StateChanged(change) => {
                self.logged_state = change.to;
                self.state = self.state_of_overview(change.limit);
            }
            SessionBody::Attached(attached) => {
                self.attached = Some(Attachment { connection: attached.connection, user: attached.user });
                self.attaches.add(record.time);
            }
            SessionBody::Detached(detached) => {
                self.attached = self.attached.filter(|now| now.connection != detached.connection);
            }
            SessionBody::Failed(_) => self.state = self.state_of_overview(None),
            SessionBody::Forked(_) => self.begin_as_fork(record),
            SessionBody::Requested(requested) => self.requests.add(requested),
            // The overview has these.
            SessionBody::Meta(_)
            | SessionBody::Renamed(_)
            | SessionBody::ModelSet(_)
            | SessionBody::CwdChanged(_)
            | SessionBody::Archived(_)
            | SessionBody::Imported(_)
            | SessionBody::ImportUndone(_)
            | SessionBody::Bound(_)
            | SessionBody::Unbound(_) => {}
        }
    }

    fn apply_run(&mut self, body: &RunBody, record: &Record) {
        match body {
            RunBody::Created(created) => self.begin_run_without_message(created, record),
            RunBody::Context(context) => {
                if let Some(run) = self.open_run(context.turn_id) {
                    run.start(record.time);
                }
            }
            RunBody::Finished(end) => {
                if let Some(run) = self.growing_run(end.turn_id) {
                    run.finish_reason = end.finish_reason;
                }
                self.end_run(end.turn_id, RunState::Done, record);
            }
            RunBody::Cancelled(end) => self.end_run(end.turn_id, RunState::Cancelled, record),
            RunBody::Failed(end) => {
                let failure =
                    Failure { code: end.code, reason: end.reason.clone(), message: end.message.clone() };
                self.end_run(end.turn_id, RunState::Failed(failure), record);
            }
            RunBody::QueuedDiscarded(_) | RunBody::Retrying(_) | RunBody::Noticed(_) => {}
        }
    }

    fn apply_message(&mut self, body: &MessageBody, record: &Record) {
        match body {
            MessageBody::User(user) => self.begin_run(user, record),
            // The steps of a subagent are its own; what it costs is part of what the run costs.
            MessageBody::AssistantStarted(started) if started.caller.is_some() => {}
            MessageBody::AssistantFinished(message) if message.caller.is_some() => {
                if let Some(run) = self.growing_run(message.turn_id) {
                    run.usage = run.usage.plus(message.usage.unwrap_or_default());
                }
            }
            MessageBody::AssistantStarted(started) => {
                if let Some(run) = self.growing_run(started.turn_id) {
                    run.steps = run.steps.saturating_add(1);
                    run.answered = false;
                }
            }
            MessageBody::AssistantFinished(message) => {
                if let Some(run) = self.growing_run(message.turn_id) {
                    run.usage = run.usage.plus(message.usage.unwrap_or_default());
                    run.answered = match message.finish_reason {
                        FinishReason::Stop | FinishReason::Length => true,
                        FinishReason::ToolCalls | FinishReason::Cancelled | FinishReason::Error => false,
                    };
                }
            }
            MessageBody::ReasoningFinished(_) | MessageBody::System(_) | MessageBody::Pinned(_) => {}
        }
    }

    fn apply_tool(&mut self, body: &ToolBody, record: &Record) {
        match body {
            ToolBody::Pending(tool) => {
                if self.open_run(tool.turn_id).is_some() {
                    self.pending.push(tool.clone());
                }
            }
            ToolBody::Started(tool) => {
                let (run, started) = (tool.turn_id, record.time);
                if let Some(open) = self.open_run(run) {
                    // A run that calls tools has begun, also where its `context` is damaged.
                    open.start(started);
                    open.answered &= tool.caller.is_some();
                    self.pending.retain(|pending| pending.call_id != tool.call_id);
                    let (seq, caller) = (record.seq, tool.caller.clone());
                    let dispatches = tool.name == DISPATCH;
                    self.open_tools.insert(tool.call_id, OpenTool { run, started, seq, caller, dispatches });
                }
            }
            ToolBody::Finished(tool) => {
                self.open_tools.remove(&tool.call_id);
                self.pending.retain(|pending| pending.call_id != tool.call_id);
                self.tool_settled = Some(record.seq);
            }
        }
    }

    /// What was copied from the source is history from here on.
    fn begin_as_fork(&mut self, record: &Record) {
        for run in self.runs.iter_mut().filter(|run| !run.state.is_over()) {
            run.state = RunState::Cancelled;
            run.end_seq = Some(record.seq);
            run.completed_at = Some(record.time);
        }
        self.open_tools.clear();
        self.pending.clear();
        self.client_ids.clear();
        self.requests.forget();
        self.attached = None;
        self.state = State::Idle;
        self.logged_state = StateName::Idle;
    }

    fn begin_run(&mut self, user: &User, record: &Record) {
        // A repeated line must not bring a run back that is over.
        if self.run_at.contains_key(&user.turn_id) {
            return;
        }
        if let Some(client_id) = &user.client_id {
            self.client_ids.insert(client_id.clone(), user.turn_id);
        }
        let created = RunCreated {
            turn_id: user.turn_id,
            kind: RunKind::Message,
            continues: None,
            strategy: None,
            wishes: RunWishes::default(),
        };
        self.push_run(&created, Some(user.message_id), record);
        self.attaches.message();
    }

    /// A run that no message begins, or whose message is damaged.
    fn begin_run_without_message(&mut self, created: &RunCreated, record: &Record) {
        match created.kind {
            // Its message has begun it. Where damage took that, there is nothing to work on.
            RunKind::Message => {
                let at = self.run_at.get(&created.turn_id).copied();
                let run = at.and_then(|at| self.runs.get_mut(at));
                if let Some(run) = run.filter(|run| run.state == RunState::Pending) {
                    run.wishes.clone_from(&created.wishes);
                }
            }
            RunKind::Compaction | RunKind::Continuation if self.run_at.contains_key(&created.turn_id) => {}
            RunKind::Compaction => self.push_run(created, None, record),
            RunKind::Continuation => {
                let message = created.continues.and_then(|run| self.run(run)).and_then(|run| run.message_id);
                self.push_run(created, message, record);
            }
        }
    }

    fn push_run(&mut self, created: &RunCreated, message_id: Option<MessageId>, record: &Record) {
        self.run_at.insert(created.turn_id, self.runs.len());
        self.runs.push(Run {
            id: created.turn_id,
            kind: created.kind,
            message_id,
            strategy: created.strategy,
            continues: created.continues,
            wishes: created.wishes.clone(),
            state: RunState::Pending,
            first_seq: record.seq,
            end_seq: None,
            created_at: record.time,
            started_at: None,
            completed_at: None,
            last_at: record.time,
            usage: Usage::default(),
            steps: 0,
            finish_reason: None,
            answered: false,
        });
    }

    fn open_run(&mut self, id: RunId) -> Option<&mut Run> {
        let run = self.runs.get_mut(*self.run_at.get(&id)?)?;
        (!run.state.is_over()).then_some(run)
    }

    /// A run that more may come of: an open one, or any of an imported session, whose source may go on with it.
    fn growing_run(&mut self, id: RunId) -> Option<&mut Run> {
        let is_imported = self.overview.meta.origin.is_some();
        let run = self.runs.get_mut(*self.run_at.get(&id)?)?;
        (is_imported || !run.state.is_over()).then_some(run)
    }

    /// The first end wins; in an imported session the last, which its source came to know later.
    fn end_run(&mut self, id: RunId, state: RunState, record: &Record) {
        self.open_tools.retain(|_, tool| tool.run != id);
        self.pending.retain(|tool| tool.turn_id != id);
        if let Some(run) = self.growing_run(id) {
            run.state = state;
            run.end_seq = Some(record.seq);
            run.completed_at = Some(record.time);
        }
    }

    /// The state that the overview has come to, with the run, the checkpoint or the failure that belongs to it.
    fn state_of_overview(&self, limit: Option<LimitHit>) -> State {
        let Overview { state, last_run, pause, failure, .. } = &self.overview;
        match (state, last_run, pause.checkpoint) {
            (StateName::Running, Some(run), _) => State::Running { run: run.id },
            (StateName::Queued, Some(run), _) => State::Queued { run: run.id, limit },
            (StateName::Paused, _, Some(checkpoint)) => State::Paused { checkpoint: checkpoint.id },
            (StateName::Failed, ..) => State::Failed(failure.clone().unwrap_or_else(Failure::unknown)),
            (StateName::Ended, ..) => State::Ended,
            (StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused, ..) => State::Idle,
        }
    }
}

/// A session is its overview, and what the rules need besides.
impl Deref for Session {
    type Target = Overview;

    fn deref(&self) -> &Overview {
        &self.overview
    }
}
