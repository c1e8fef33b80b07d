//! The interface of models: request, events and errors.
//!
//! A model executes nothing. It is given a request and answers with a stream of events, pulled one at a time:
//! whoever stops pulling and drops the stream aborts the call.

pub mod debug;
pub mod registry;
pub mod script;

use std::time::Duration;

use ctx_session::Code;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::{Failure, FinishReason, Usage};
use serde::Serialize;
use serde_json::Value;

use crate::BoxFuture;
pub use registry::{ModelId, Models};

/// One model, whatever is behind it.
pub trait Model: Send + Sync {
    /// How many tokens one request and its answer may have; None: not known.
    fn window(&self) -> Option<u64>;

    /// Begins an answer. An error here means that nothing was said yet.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Box<dyn Answer>, ModelError>>;
}

/// An answer under way.
pub trait Answer: Send {
    /// The next event. `None` before [`Event::Finish`] is a stream that broke off.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Event>, ModelError>>;
}

/// All that a model is told for one call. Its JSON form is what `debug/script` dumps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    pub model: String,
    /// Counts from 1 and grows when the same call is made again after a rate limit.
    pub attempt: u32,
    pub prompt: String,
    pub messages: Vec<Turn>,
    pub tools: Vec<ToolSpec>,
}

/// What a model is told of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// A JSON schema of its input.
    pub schema: Value,
}

/// A message as a model sees it: who speaks and what, without our ids and times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    pub role: Role,
    pub content: Vec<Part>,
}

impl Turn {
    /// Its text parts, joined.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::ToolCall { .. } | Part::ToolResult { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Text(String),
    Reasoning(String),
    ToolCall(ToolCall),
    /// Adds to what the call has cost so far.
    Usage(Usage),
    Finish(Finish),
}

/// A tool that the model wants called.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The provider's own id, which may repeat.
    pub provider_call_id: Option<String>,
    pub name: String,
    pub input: Value,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    ToolCalls,
    Length,
}

impl Finish {
    pub fn reason(self) -> FinishReason {
        match self {
            Finish::Stop => FinishReason::Stop,
            Finish::ToolCalls => FinishReason::ToolCalls,
            Finish::Length => FinishReason::Length,
        }
    }
}

/// How a model call goes wrong. Each kind has a code of its own; none is ever a silent success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("{model} cannot be reached: {detail}; check that its provider is up, or choose another model")]
    Unreachable { model: String, detail: String },
    #[error("{model} is at its rate limit: {detail}; wait a little and send the message again")]
    RateLimit {
        model: String,
        detail: String,
        /// What the provider asks us to wait, when it says so.
        retry_after: Option<Duration>,
    },
    #[error("the conversation is too long for {model}: {detail}; start a new session or use a larger model")]
    Overflow { model: String, detail: String },
    #[error("the answer of {model} broke off: {detail}; send the message again")]
    BrokenStream { model: String, detail: String },
    #[error("{model} gave an empty answer; send the message again or choose another model")]
    Empty { model: String },
    #[error("{model} cannot work with this message: {detail}")]
    BadRequest { model: String, detail: String },
    #[error("{model} is not set up: {detail}")]
    BadSetup { model: String, detail: String },
}

impl ModelError {
    pub fn code(&self) -> Code {
        match self {
            ModelError::Unreachable { .. } => Code::Ehostdown,
            ModelError::RateLimit { .. } => Code::Eagain,
            ModelError::Overflow { .. } => Code::Eoverflow,
            ModelError::BrokenStream { .. } => Code::Epipe,
            ModelError::Empty { .. } => Code::Enodata,
            ModelError::BadRequest { .. } => Code::Einval,
            ModelError::BadSetup { .. } => Code::Ebadmsg,
        }
    }

    /// The stable word for it in a failed run.
    pub fn reason(&self) -> &'static str {
        match self {
            ModelError::Unreachable { .. } => "unreachable",
            ModelError::RateLimit { .. } => "rate_limit",
            ModelError::Overflow { .. } => "overflow",
            ModelError::BrokenStream { .. } => "broken_stream",
            ModelError::Empty { .. } => "empty",
            ModelError::BadRequest { .. } => "bad_request",
            ModelError::BadSetup { .. } => "bad_setup",
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure { code: error.code(), reason: error.reason().to_owned(), message: error.to_string() }
    }
}
