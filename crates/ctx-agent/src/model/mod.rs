//! The interface of models: request, events and errors.
//!
//! A model executes nothing. It is given a request and answers with a stream of events, pulled one at a time:
//! whoever stops pulling and drops the stream aborts the call.

pub mod adopt;
pub mod calibrate;
pub mod debug;
pub mod provider;
pub mod registry;
pub mod script;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::Code;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::{Failure, FinishReason, Usage};
use serde::Serialize;
use serde_json::Value;

use crate::BoxFuture;
pub use adopt::Providers;
pub use registry::{ModelId, Models};

/// One model, whatever is behind it.
pub trait Model: Send + Sync {
    /// How many tokens one request and its answer may have; None: not known.
    fn window(&self) -> Option<u64>;

    /// Whether what a call costs is known.
    fn has_price(&self) -> bool {
        true
    }

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
    /// The images of the messages in base64, by their hash. One that is not here is told of in words.
    #[serde(skip)]
    pub images: Arc<HashMap<String, String>>,
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
            Part::ToolCall { .. } | Part::ToolResult { .. } | Part::Image(_) => None,
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
    /// What the model wrote, if that was no JSON.
    pub input: Value,
    /// What its provider wants to see again with the call: kept in the record, and sent to no other model.
    pub provider: Option<Value>,
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
    /// A provider that may be there again in a moment: the call is made again.
    #[error(
        "{model} cannot answer: {detail}; try again {}, check that its provider is up, or choose another model",
        when(*retry_after).unwrap_or("later".to_owned())
    )]
    Unavailable { model: String, reason: &'static str, detail: String, retry_after: Option<Duration> },
    #[error("{model} has no key: {detail}; set it, or run `ctx model add`")]
    NoKey { model: String, detail: String },
    #[error("{model} refused the key: {detail}; check the key with `ctx model test`")]
    KeyRejected { model: String, detail: String },
    #[error("there is no model {model}: {detail}; `ctx model ls` shows those there are")]
    NoSuchModel { model: String, detail: String },
    #[error(
        "{model} has no quota left: {detail}; pay or raise the limit at the provider, or choose another model"
    )]
    NoQuota { model: String, detail: String },
    #[error("{model} did not answer as its provider does: {detail}")]
    Protocol { model: String, detail: String },
    #[error("{model} refused to answer: {detail}; say it in other words, or choose another model")]
    Refused { model: String, detail: String },
    #[error("{model} sent nothing for {} s ({what}); try again, or raise limits.{what}", after.as_secs_f64())]
    Late { model: String, what: &'static str, after: Duration },
    #[error(
        "{model} is at its rate limit: {detail}; {}",
        when(*retry_after).map_or("wait a little and send the message again".to_owned(), |when| format!("send the message again {when}"))
    )]
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
            ModelError::Unreachable { .. } | ModelError::Unavailable { .. } => Code::Ehostdown,
            ModelError::NoKey { .. } | ModelError::KeyRejected { .. } => Code::Ekeyrejected,
            ModelError::NoSuchModel { .. } => Code::Enoent,
            ModelError::NoQuota { .. } => Code::Edquot,
            ModelError::Protocol { .. } => Code::Eproto,
            ModelError::Refused { .. } => Code::Eperm,
            ModelError::Late { .. } => Code::Etimedout,
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
            ModelError::Unavailable { reason, .. } => reason,
            ModelError::NoKey { .. } => "no_key",
            ModelError::KeyRejected { .. } => "key_rejected",
            ModelError::NoSuchModel { .. } => "no_such_model",
            ModelError::NoQuota { .. } => "no_quota",
            ModelError::Protocol { .. } => "not_protocol",
            ModelError::Refused { .. } => "refused",
            ModelError::Late { what: "model_first_byte_ms", .. } => "model_first_byte",
            ModelError::Late { .. } => "model_idle",
            ModelError::RateLimit { .. } => "rate_limit",
            ModelError::Overflow { .. } => "overflow",
            ModelError::BrokenStream { .. } => "broken_stream",
            ModelError::Empty { .. } => "empty",
            ModelError::BadRequest { .. } => "bad_request",
            ModelError::BadSetup { .. } => "bad_setup",
        }
    }

    /// The same, with other words of the provider's.
    #[must_use]
    pub fn map_detail(mut self, change: impl FnOnce(String) -> String) -> ModelError {
        match &mut self {
            ModelError::Unreachable { detail, .. }
            | ModelError::Unavailable { detail, .. }
            | ModelError::NoKey { detail, .. }
            | ModelError::KeyRejected { detail, .. }
            | ModelError::NoSuchModel { detail, .. }
            | ModelError::NoQuota { detail, .. }
            | ModelError::Protocol { detail, .. }
            | ModelError::Refused { detail, .. }
            | ModelError::RateLimit { detail, .. }
            | ModelError::Overflow { detail, .. }
            | ModelError::BrokenStream { detail, .. }
            | ModelError::BadRequest { detail, .. }
            | ModelError::BadSetup { detail, .. } => *detail = change(std::mem::take(detail)),
            ModelError::Empty { .. } | ModelError::Late { .. } => {}
        }
        self
    }
}

/// When a provider wants to be asked again, if it says so.
fn when(retry_after: Option<Duration>) -> Option<String> {
    let seconds = retry_after?.as_millis().div_ceil(1_000);
    Some(format!("in {seconds} s, as the provider asks"))
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure { code: error.code(), reason: error.reason().to_owned(), message: error.to_string() }
    }
}
