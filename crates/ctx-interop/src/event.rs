//! The neutral form: what was said and done in a session, whoever's session it was.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ctx_session::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The agents whose stores are read. Their names are also the names of the agents that imported sessions belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    Codex,
    Claude,
    Opencode,
    Goose,
    Gemini,
    Aider,
}

impl Agent {
    pub const ALL: [Agent; 6] =
        [Agent::Codex, Agent::Claude, Agent::Opencode, Agent::Goose, Agent::Gemini, Agent::Aider];

    pub fn name(self) -> &'static str {
        match self {
            Agent::Codex => "codex",
            Agent::Claude => "claude",
            Agent::Opencode => "opencode",
            Agent::Goose => "goose",
            Agent::Gemini => "gemini",
            Agent::Aider => "aider",
        }
    }

    pub fn of_name(name: &str) -> Option<Agent> {
        Agent::ALL.into_iter().find(|agent| agent.name() == name)
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A session of another agent, read as far as it can be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    /// The source's own id of the session.
    pub native_id: String,
    /// The version of the agent that wrote it last.
    pub version: Option<String>,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    pub title: Option<String>,
    /// The model used last.
    pub model: Option<String>,
    pub created: Option<Timestamp>,
    /// What the whole session cost in US dollars, where the source says so.
    pub cost: Option<f64>,
    pub link: Option<Link>,
    pub events: Vec<Event>,
    /// The keys of events that the user left to say something else in their place: they happened, and count no more.
    pub abandoned: HashSet<String>,
    /// Kinds of records that the reader does not know, and how often each occurred.
    pub unknown: BTreeMap<String, u64>,
    pub damage: Vec<Damage>,
    /// Records of the source that could be read.
    pub intact: u64,
    /// Records that wait for one before them, which is being written: they come with the next reading.
    pub waiting: usize,
}

/// The session that another one came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Link {
    ForkOf { native_id: String },
    SubagentOf { native_id: String, call: Option<String> },
}

impl Link {
    pub fn native_id(&self) -> &str {
        match self {
            Link::ForkOf { native_id } | Link::SubagentOf { native_id, .. } => native_id,
        }
    }
}

/// A part of a source that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub file: String,
    /// Counted from 1; 0 where the source has no lines.
    pub line: u64,
    pub why: String,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Identifies the event within its session, in every reading of the source.
    pub key: String,
    pub at: Option<Timestamp>,
    /// It happened in the session that this one was forked from.
    pub inherited: bool,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// What the user typed.
    User {
        text: String,
    },
    /// Text in the conversation that nobody typed: context, reminders, output of commands of the program itself.
    Injected {
        text: String,
    },
    Assistant {
        text: String,
        model: Option<String>,
        finish: Finish,
        tokens: Option<Tokens>,
    },
    /// A call of the model that said nothing; its tool calls are events of their own.
    Step {
        model: Option<String>,
        tokens: Tokens,
    },
    Reasoning {
        text: String,
    },
    ToolCall {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        id: String,
        verdict: Verdict,
        output: String,
        diff: Option<String>,
    },
    /// The history until here was replaced by this summary, as far as the model is concerned.
    Compaction {
        summary: String,
    },
    Interrupted,
    /// The model or its provider failed.
    Failed {
        message: String,
    },
}

/// How a text of the model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    ToolCalls,
    Length,
    /// The text is what there was when it was interrupted.
    Interrupted,
}

/// What a model call cost, as the source has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// With those that the provider had cached.
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    /// In billionths of a US dollar; 0 where the source does not say.
    pub cost_nano_usd: u64,
}

impl Tokens {
    pub(crate) fn costing(self, dollars: Option<f64>) -> Tokens {
        let nano = dollars.filter(|dollars| dollars.is_finite()).map_or(0.0, |dollars| dollars * 1e9);
        // A cast ends at the limits of the type.
        Tokens { cost_nano_usd: nano.round() as u64, ..self }
    }
}

/// How a tool call really ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failure,
    Interrupted,
}

impl Transcript {
    pub(crate) fn new(native_id: impl Into<String>) -> Transcript {
        Transcript { native_id: native_id.into(), ..Transcript::default() }
    }

    pub(crate) fn push(&mut self, key: impl Into<String>, at: Option<Timestamp>, what: What) {
        self.created = self.created.or(at);
        self.events.push(Event { key: key.into(), at, inherited: false, what });
    }

    pub(crate) fn note_unknown(&mut self, kind: impl Into<String>) {
        *self.unknown.entry(kind.into()).or_default() += 1;
    }

    pub(crate) fn note_damage(&mut self, file: &str, line: u64, why: impl Into<String>) {
        self.damage.push(Damage { file: file.to_owned(), line, why: why.into() });
    }

    /// Marks the interruption once, however many marks the source has of it.
    pub(crate) fn interrupt(&mut self, key: impl Into<String>, at: Option<Timestamp>) {
        if !matches!(self.events.last(), Some(Event { what: What::Interrupted, .. })) {
            self.push(key, at, What::Interrupted);
        }
    }

    /// Attributes tokens to the newest model call: to its text where it has one that no tokens are known of.
    pub(crate) fn spend(&mut self, key: impl Into<String>, at: Option<Timestamp>, spent: Tokens) {
        let model = self.model.clone();
        for event in self.events.iter_mut().rev() {
            match &mut event.what {
                What::Assistant { tokens: tokens @ None, .. } => {
                    *tokens = Some(spent);
                    return;
                }
                What::ToolCall { .. } | What::Reasoning { .. } => {}
                // What a tool gave is for the next call.
                _ => break,
            }
        }
        self.push(key, at, What::Step { model, tokens: spent });
    }

    /// Typed messages and finished texts of the model, in the session's own part of the history.
    pub fn messages(&self) -> usize {
        self.own().filter(|event| event.is_message()).count()
    }

    pub fn tool_calls(&self) -> usize {
        self.own().filter(|event| matches!(event.what, What::ToolCall { .. })).count()
    }

    fn own(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| !event.inherited)
    }

    /// When the last thing happened that the source gives a time of.
    pub fn last_at(&self) -> Option<Timestamp> {
        self.events.iter().filter_map(|event| event.at).max()
    }
}

impl Event {
    fn is_message(&self) -> bool {
        match &self.what {
            What::User { .. } => true,
            What::Assistant { finish, .. } => *finish != Finish::Interrupted,
            _ => false,
        }
    }
}
