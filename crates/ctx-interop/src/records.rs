//! From events to records: the one function that says what a session of another agent is in our log.
//!
//! Ids are made of the source's own ids and times, so that the same event has the same id in every reading and a log
//! that has a record already is not given it again ([`crate::event::Event::key`]).

use std::collections::{HashMap, HashSet};

use ctx_session::ids::{CallId, CompactionId, MessageId, RunId, SessionId, Ulid};
use ctx_session::record::{
    AssistantFinished, AssistantStarted, Body, CancelReason, Cancelled, Compaction, CompactionTrigger,
    Failed, FinishReason, ReasoningFinished, RunCreated, RunFinished, RunKind, RunWishes, Strategy,
    SystemNote, ToolFinished, ToolStarted, ToolStatus, Usage, User,
};
use ctx_session::rules::UNKNOWN_CALL;
use ctx_session::{Code, Timestamp};
use sha2::{Digest, Sha256};

use crate::event::{Agent, Event, Finish, Tokens, Transcript, Verdict, What};

/// Longest text of a message, and longest output or input of a tool: what is longer is cut, and says so.
const TEXT_BYTES_MAX: usize = 4 << 20;
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// A record with the time at which it happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Dated {
    pub time: Timestamp,
    pub body: Body,
}

/// The id of the session that a source's session becomes.
pub fn session_id(agent: Agent, found: &Transcript) -> SessionId {
    let time = found.created.unwrap_or_default();
    SessionId(ulid(time, &[agent.name(), &found.native_id, "session"]))
}

/// An id that depends on nothing but a time and some words.
fn ulid(time: Timestamp, words: &[&str]) -> Ulid {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word.as_bytes());
    }
    let hash = hash.finalize();
    let random = hash.iter().take(10).fold(0u128, |all, byte| (all << 8) | u128::from(*byte));
    Ulid((u128::from(time.as_millis()) << 80) | random)
}

/// What a session becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// Oldest first. The first record of the log is not among them.
    pub records: Vec<Dated>,
    /// The messages of them that count no more.
    pub superseded: Vec<Ulid>,
}

pub fn records(agent: Agent, found: &Transcript) -> Vec<Dated> {
    make(agent, found).records
}

pub fn make(agent: Agent, found: &Transcript) -> Made {
    let results: HashSet<&str> = found
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    let mut maker = Maker {
        agent: agent.name(),
        native_id: &found.native_id,
        results,
        created: found.created.unwrap_or_default(),
        last: found.created.unwrap_or_default(),
        now: found.created.unwrap_or_default(),
        used: HashMap::new(),
        made: Vec::new(),
        run: RunId(Ulid(0)),
        has_begun: false,
        began: Timestamp::default(),
        steps: 0,
        spent: Usage::default(),
        end: End::Done,
        calls: HashMap::new(),
        said: Vec::new(),
        superseded: Vec::new(),
        model: String::new(),
    };
    let mut users = found.events.iter().filter(|event| matches!(event.what, What::User { .. })).peekable();
    maker.run = maker.run_of(users.peek().copied());
    for event in &found.events {
        maker.now = event.at.unwrap_or(maker.now);
        let before = maker.said.len();
        maker.event(event);
        if !matches!(event.what, What::Injected { .. }) {
            maker.last = maker.now;
        }
        if found.abandoned.contains(&event.key) {
            maker.superseded.extend(maker.said.get(before..).unwrap_or_default());
        }
    }
    maker.end_run(false);
    Made { records: maker.made, superseded: maker.superseded }
}

struct Maker<'t> {
    agent: &'static str,
    native_id: &'t str,
    /// The calls that have a result anywhere.
    results: HashSet<&'t str>,
    created: Timestamp,
    /// When the last thing was done or said that the program did not add by itself: a run that ends ends then.
    last: Timestamp,
    now: Timestamp,
    /// How often a key was used: some sources use an id twice.
    used: HashMap<String, u32>,
    made: Vec<Dated>,
    run: RunId,
    has_begun: bool,
    began: Timestamp,
    steps: u32,
    spent: Usage,
    end: End,
    /// The newest call of each id, with its start, while it has no result.
    calls: HashMap<String, (CallId, Timestamp)>,
    /// Every message until now, for a compaction.
    said: Vec<Ulid>,
    superseded: Vec<Ulid>,
    model: String,
}

enum End {
    Done,
    Interrupted,
    Failed(String),
}

impl<'t> Maker<'t> {
    fn id(&mut self, kind: &str, key: &str) -> Ulid {
        let count = self.used.entry(format!("{kind}/{key}")).or_default();
        *count += 1;
        let nth = count.to_string();
        // Sources repeat a count of tokens later: it is the same, whichever of them can be read.
        let time = if kind == "step" { self.created } else { self.now };
        ulid(time, &[self.agent, self.native_id, kind, key, &nth])
    }

    fn run_of(&mut self, user: Option<&Event>) -> RunId {
        let key = user.map(|event| event.key.clone()).unwrap_or_default();
        self.now = user.and_then(|event| event.at).unwrap_or(self.now);
        RunId(self.id("run", &key))
    }

    fn push(&mut self, body: impl Into<Body>) {
        self.made.push(Dated { time: self.now, body: body.into() });
    }

    fn event(&mut self, event: &'t Event) {
        let key = event.key.as_str();
        match &event.what {
            What::User { text } => self.user(event, text),
            What::Injected { text } => {
                let (message_id, turn_id) = (self.message(key), self.run);
                let text = cut(text, TEXT_BYTES_MAX);
                self.push(SystemNote { turn_id, message_id, text, injected: true });
            }
            What::Reasoning { text } => {
                let (message_id, turn_id) = (MessageId(self.id("reasoning", key)), self.run);
                let text = cut(text, TEXT_BYTES_MAX);
                self.push(ReasoningFinished { turn_id, message_id, text, caller: None });
            }
            What::Assistant { text, model, finish, tokens } => {
                let finish = match finish {
                    Finish::Stop => FinishReason::Stop,
                    Finish::ToolCalls => FinishReason::ToolCalls,
                    Finish::Length => FinishReason::Length,
                    Finish::Interrupted => FinishReason::Cancelled,
                };
                let message_id = self.message(key);
                self.step(message_id, cut(text, TEXT_BYTES_MAX), model.as_deref(), finish, *tokens);
                self.end = if finish == FinishReason::Cancelled { End::Interrupted } else { End::Done };
            }
            What::Step { model, tokens } => {
                let message_id = MessageId(self.id("step", key));
                self.step(
                    message_id,
                    String::new(),
                    model.as_deref(),
                    FinishReason::ToolCalls,
                    Some(*tokens),
                );
            }
            What::ToolCall { id, name, input } => {
                self.start_call(key, id, name, cut_input(input));
                self.end = End::Done;
            }
            What::ToolResult { id, verdict, output, diff } => {
                // Damage may have taken the call.
                if !self.calls.contains_key(id.as_str()) {
                    self.start_call(key, id, UNKNOWN_CALL, serde_json::Value::Null);
                }
                let status = match verdict {
                    Verdict::Success => ToolStatus::Ok,
                    Verdict::Failure => ToolStatus::Error,
                    Verdict::Interrupted => ToolStatus::Interrupted,
                };
                if let Some((call, started)) = self.calls.remove(id.as_str()) {
                    self.finish_call(
                        call,
                        started,
                        status,
                        cut(output, OUTPUT_BYTES_MAX),
                        diff.as_deref().map(|diff| cut(diff, OUTPUT_BYTES_MAX)),
                    );
                }
            }
            What::Compaction { summary } => self.compact(key, summary),
            What::Interrupted => self.end = End::Interrupted,
            What::Failed { message } => self.end = End::Failed(message.clone()),
        }
    }

    fn user(&mut self, event: &Event, text: &str) {
        if self.has_begun {
            self.end_run(true);
            self.run = self.run_of(Some(event));
        }
        self.has_begun = true;
        self.began = self.now;
        let message_id = self.message(&event.key);
        let turn_id = self.run;
        let (client_id, images) = (None, Vec::new());
        self.push(User { turn_id, message_id, client_id, text: cut(text, TEXT_BYTES_MAX), images });
        self.push(RunCreated {
            turn_id,
            kind: RunKind::Message,
            continues: None,
            strategy: None,
            wishes: RunWishes::default(),
        });
    }

    fn message(&mut self, key: &str) -> MessageId {
        let id = self.id("message", key);
        self.said.push(id);
        MessageId(id)
    }

    fn step(
        &mut self,
        message_id: MessageId,
        text: String,
        model: Option<&str>,
        finish_reason: FinishReason,
        tokens: Option<Tokens>,
    ) {
        let turn_id = self.run;
        if let Some(model) = model {
            self.model = model.to_owned();
        }
        self.steps = self.steps.saturating_add(1);
        let usage = tokens.map(|Tokens { input, output, cached, cost_nano_usd }| Usage {
            input,
            output,
            cached,
            cost_nano_usd,
        });
        self.spent = self.spent.plus(usage.unwrap_or_default());
        let (model, step) = (self.model.clone(), self.steps);
        self.push(AssistantStarted { turn_id, message_id, model, step, caller: None });
        self.push(AssistantFinished { turn_id, message_id, text, finish_reason, usage, caller: None });
    }

    fn start_call(&mut self, key: &str, id: &str, name: &str, input: serde_json::Value) {
        let call_id = CallId(self.id("call", key));
        self.said.push(call_id.0);
        self.calls.insert(id.to_owned(), (call_id, self.now));
        let provider_call_id = Some(id.to_owned());
        self.push(ToolStarted {
            turn_id: self.run,
            call_id,
            provider_call_id,
            name: name.to_owned(),
            input,
            provider: None,
            caller: None,
        });
    }

    fn finish_call(
        &mut self,
        call_id: CallId,
        started: Timestamp,
        status: ToolStatus,
        output: String,
        diff: Option<String>,
    ) {
        let duration_ms = self.now.millis_since(started);
        let turn_id = self.run;
        self.push(ToolFinished {
            turn_id,
            call_id,
            status,
            duration_ms,
            output,
            truncated: false,
            blob: None,
            summary: None,
            diff,
            diff_blob: None,
            caller: None,
        });
    }

    /// The conversation until here counts no more for the model; the summary stands for it.
    fn compact(&mut self, key: &str, summary: &str) {
        let compaction_id = CompactionId(self.id("compaction", key));
        let superseded = std::mem::take(&mut self.said);
        let summary_message_id = (!summary.is_empty()).then(|| self.message(key));
        self.push(Box::new(Compaction {
            compaction_id,
            turn_id: self.run,
            agent_path: self.agent.to_owned(),
            trigger: CompactionTrigger::ThresholdCrossed,
            strategy: Strategy::Summarize,
            proposed: false,
            window: None,
            used: None,
            threshold_estimate: 0.0,
            after_estimate: 0.0,
            window_upper: 0.0,
            window_lower: 0.0,
            superseded_message_ids: superseded,
            elided_call_ids: Vec::new(),
            summary_message_id,
            summary: summary_message_id.map(|_| summary.to_owned()),
            plugins_fired: Vec::new(),
            plugin_cost: None,
            fallback_occurred: false,
            fallback_reason: None,
            checkpoint_id: None,
        }));
    }

    /// Ends the run, when the last of it happened. Where another follows, a call without a result will never have one.
    fn end_run(&mut self, another_follows: bool) {
        let now = std::mem::replace(&mut self.now, self.last);
        self.push_end(another_follows);
        self.now = now;
    }

    fn push_end(&mut self, another_follows: bool) {
        if another_follows {
            let mut open: Vec<_> = std::mem::take(&mut self.calls)
                .into_iter()
                .filter(|(id, _)| !self.results.contains(id.as_str()))
                .collect();
            open.sort_by_key(|(_, (call, _))| *call);
            for (_, (call, started)) in open {
                self.finish_call(call, started, ToolStatus::Interrupted, String::new(), None);
            }
        }
        let turn_id = self.run;
        let duration_ms = self.now.millis_since(self.began);
        let usage = std::mem::take(&mut self.spent);
        if !std::mem::replace(&mut self.has_begun, false) {
            return;
        }
        match std::mem::replace(&mut self.end, End::Done) {
            End::Done => self.push(RunFinished { turn_id, duration_ms, usage, finish_reason: None }),
            End::Interrupted => {
                self.push(Cancelled { turn_id, reason: CancelReason::Operator, by: None, duration_ms });
            }
            End::Failed(message) => {
                let reason = "provider_error".to_owned();
                self.push(Failed { turn_id, code: Code::Eio, reason, message, duration_ms });
            }
        }
        self.steps = 0;
    }
}

/// A text that a record can hold.
fn cut(text: &str, bytes_max: usize) -> String {
    match text.get(..text.floor_char_boundary(bytes_max)) {
        Some(start) if start.len() < text.len() => {
            format!("{start}\n[{} bytes; the rest was left out by the import]", text.len())
        }
        _ => text.to_owned(),
    }
}

/// The input of a call, each text in it cut.
fn cut_input(input: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match input {
        Value::String(text) => Value::String(cut(text, TEXT_BYTES_MAX)),
        Value::Array(items) => items.iter().map(cut_input).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), cut_input(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
    }
}
