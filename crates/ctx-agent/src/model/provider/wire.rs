//! What the wire formats have in common: the options of a request, and the pieces that an answer is read into. Pure.

use serde_json::Value;

use super::sse::Message;
use crate::model::Finish;

/// What a request says besides the conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The provider's name for the model.
    pub id: String,
    /// How hard it is to think: `low`, `medium`, `high`. None: as the provider likes.
    pub reasoning: Option<String>,
    /// Whether it is known to think.
    pub reasons: bool,
    /// Whether it is told how many tokens to think with; later models are told how hard.
    pub thinks_by_budget: bool,
    /// Whether it can be shown images; what is not known of a model is tried.
    pub sees: bool,
    /// The most tokens of an answer that the operator wants.
    pub max_output: Option<u64>,
    /// The most tokens of an answer that the model can give.
    pub output: Option<u64>,
}

/// Tokens as a provider counts them; what came from its cache, or went into it, is part of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    pub cache_written: u64,
}

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    Reasoning(String),
    Call {
        id: Option<String>,
        name: String,
        input: Value,
        /// What the provider wants to see again with the call.
        kept: Vec<Value>,
    },
    Usage(Counted),
    Finish(Finish),
}

/// What one event of the stream came to.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub pieces: Vec<Piece>,
    pub is_over: bool,
}

/// Why an answer cannot be read on.
#[derive(Debug, Clone, PartialEq)]
pub enum Trouble {
    /// The provider's own error object.
    Said(Value),
    NotProtocol(String),
    /// The model does not want to, in its own words.
    Refused(String),
}

impl Trouble {
    pub fn refused(words: &str) -> Trouble {
        Trouble::Refused(words.to_owned())
    }
}

/// Reads the events of one answer.
pub trait Reader: Send {
    fn read(&mut self, message: &Message) -> Result<Heard, Trouble>;

    /// The stream is at its end. An answer that is not over by then broke off.
    fn end(&mut self) -> Result<Heard, Trouble>;

    /// What an answer that breaks off has cost so far, if its provider has said so.
    fn counted(&self) -> Option<Counted>;
}

/// The data of an event.
pub fn json(data: &str) -> Result<Value, Trouble> {
    serde_json::from_str(data)
        .map_err(|error| Trouble::NotProtocol(format!("an event of its stream is not JSON: {error}")))
}

/// A text that is there and not empty.
pub fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}
