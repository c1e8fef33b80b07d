//! Scripts for `debug/script`: read from JSON, and played from where a run stands.
//!
//! Pure: a script and a request give the acts of one model call. The position follows from the messages of the run,
//! so that a restart in the middle changes nothing.

use std::time::Duration;

use ctx_session::conversation::{Part, Role};
use ctx_session::model_name::in_api;
use ctx_session::record::Usage;
use serde_json::{Map, Value};

use super::{Event, Finish, ModelError, Request, ToolCall, Turn};

/// Text goes out in deltas of at most this many characters.
pub const DELTA_CHARS_MAX: usize = 16;

/// The steps that a model plays, in order, over the calls of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Text(String),
    Reasoning(String),
    Sleep(Duration),
    /// Ends a model call. A list gives several calls in one answer.
    Tools(Vec<ToolCall>),
    Error {
        kind: ErrorKind,
        /// How many attempts fail; all of them when it is not said.
        times: Option<u32>,
    },
    Usage(Usage),
    Dump(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Unreachable,
    RateLimit,
    Overflow,
    BrokenStream,
    Empty,
}

/// What a debug model does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    Emit(Event),
    Wait(Duration),
    Fail(ModelError),
}

/// Why a JSON text is not a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("a script is a list of steps: {{\"script\":[…]}}")]
    NotAList,
    #[error("step {number} of the script: {problem}")]
    BadStep { number: usize, problem: String },
}

impl Script {
    /// The script in a message, when the message is JSON of the form `{"script":[…]}`.
    pub fn in_message(text: &str) -> Option<Result<Script, ScriptError>> {
        // Most messages are no JSON; one look saves the parser the work.
        if !text.trim_start().starts_with('{') {
            return None;
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(mut object)) => object.remove("script").map(Script::from_steps),
            Ok(_) | Err(_) => None,
        }
    }

    /// A script file: the same object, or the list alone.
    pub fn from_file(value: Value) -> Result<Script, ScriptError> {
        match value {
            Value::Object(mut object) => Script::from_steps(object.remove("script").unwrap_or_default()),
            list => Script::from_steps(list),
        }
    }

    fn from_steps(value: Value) -> Result<Script, ScriptError> {
        let Value::Array(list) = value else { return Err(ScriptError::NotAList) };
        let read = |(at, value)| {
            Step::read(value).map_err(|problem| ScriptError::BadStep { number: at + 1, problem })
        };
        let steps = list.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Script { steps })
    }

    /// The acts of the model call that this request is.
    pub fn play(&self, request: &Request) -> Vec<Act> {
        let mut acts = Vec::new();
        for step in self.steps.get(self.position(&request.messages)..).unwrap_or_default() {
            match step {
                Step::Text(text) => acts.extend(say(text, Event::Text)),
                Step::Reasoning(text) => acts.extend(say(text, Event::Reasoning)),
                Step::Sleep(time) => acts.push(Act::Wait(*time)),
                Step::Usage(usage) => acts.push(Act::Emit(Event::Usage(*usage))),
                Step::Dump(false) => {}
                Step::Dump(true) => acts.extend(say(&dump(request), Event::Text)),
                Step::Error { kind, times } => {
                    if times.is_none_or(|times| request.attempt <= times) {
                        acts.push(Act::Fail(kind.of(&in_api(&request.model))));
                        return acts;
                    }
                }
                Step::Tools(calls) => {
                    acts.extend(calls.iter().map(|call| Act::Emit(Event::ToolCall(call.clone()))));
                    acts.push(Act::Emit(Event::Finish(Finish::ToolCalls)));
                    return acts;
                }
            }
        }
        acts.push(Act::Emit(Event::Finish(Finish::Stop)));
        acts
    }

    /// The step after the last tool call that the run has made; the end, when it has made more than there are.
    fn position(&self, messages: &[Turn]) -> usize {
        let begin = messages.iter().rposition(|turn| turn.role == Role::User).unwrap_or(0);
        let of_run = messages.iter().skip(begin).flat_map(|turn| &turn.content);
        let mut made = of_run.filter(|part| matches!(part, Part::ToolCall { .. })).count();
        for (at, step) in self.steps.iter().enumerate() {
            if made == 0 {
                return at;
            }
            if let Step::Tools(calls) = step {
                made = made.saturating_sub(calls.len());
            }
        }
        self.steps.len()
    }
}

impl Step {
    fn read(value: Value) -> Result<Step, String> {
        let Value::Object(mut step) = value else {
            return Err("expected an object such as {\"text\":\"hello\"}".to_owned());
        };
        let times = match step.remove("times") {
            Some(times) => Some(number(&times, "times")?),
            None => None,
        };
        let mut fields = step.into_iter();
        let (Some((key, value)), None) = (fields.next(), fields.next()) else {
            return Err(
                "expected one of text, reasoning, sleep_ms, tool, tools, error, usage, dump".to_owned()
            );
        };
        if times.is_some() && key != "error" {
            return Err("`times` goes with `error` alone".to_owned());
        }
        match (key.as_str(), value) {
            ("text", Value::String(text)) => Ok(Step::Text(text)),
            ("reasoning", Value::String(text)) => Ok(Step::Reasoning(text)),
            ("text" | "reasoning", _) => Err(format!("`{key}` must be a string")),
            ("sleep_ms", value) => Ok(Step::Sleep(Duration::from_millis(number(&value, "sleep_ms")?))),
            ("tool" | "tools", Value::Array(list)) if !list.is_empty() => {
                list.into_iter().map(tool_call).collect::<Result<_, _>>().map(Step::Tools)
            }
            ("tools", _) => Err("`tools` must be a list of calls".to_owned()),
            ("tool", value) => tool_call(value).map(|call| Step::Tools(vec![call])),
            ("error", value) => {
                let times = times.map(|times| u32::try_from(times).unwrap_or(u32::MAX));
                Ok(Step::Error { kind: ErrorKind::read(&value)?, times })
            }
            ("usage", Value::Object(usage)) => read_usage(&usage).map(Step::Usage),
            ("usage", _) => Err("`usage` must be an object: {\"input\":1,\"output\":2}".to_owned()),
            ("dump", Value::Bool(dump)) => Ok(Step::Dump(dump)),
            ("dump", _) => Err("`dump` must be true or false".to_owned()),
            (other, _) => Err(format!(
                "unknown step `{}`; the steps are text, reasoning, sleep_ms, tool, tools, error, usage, dump",
                crate::control::short(other)
            )),
        }
    }
}

impl ErrorKind {
    fn read(value: &Value) -> Result<ErrorKind, String> {
        match value.as_str() {
            Some("unreachable") => Ok(ErrorKind::Unreachable),
            Some("rate_limit") => Ok(ErrorKind::RateLimit),
            Some("overflow") => Ok(ErrorKind::Overflow),
            Some("broken_stream") => Ok(ErrorKind::BrokenStream),
            Some("empty") => Ok(ErrorKind::Empty),
            Some(_) | None => {
                Err("`error` must be unreachable, rate_limit, overflow, broken_stream or empty".to_owned())
            }
        }
    }

    fn of(self, model: &str) -> ModelError {
        let (model, detail) = (model.to_owned(), "its script says so".to_owned());
        match self {
            ErrorKind::Unreachable => ModelError::Unreachable { model, detail },
            ErrorKind::RateLimit => ModelError::RateLimit { model, detail, retry_after: None },
            ErrorKind::Overflow => ModelError::Overflow { model, detail },
            ErrorKind::BrokenStream => ModelError::BrokenStream { model, detail },
            ErrorKind::Empty => ModelError::Empty { model },
        }
    }
}

/// Cuts a text into pieces of at most `chars` characters, never inside one.
pub fn pieces(text: &str, chars: usize) -> impl Iterator<Item = &str> {
    let chars = chars.max(1);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let cut = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at_checked(cut)?;
        rest = after;
        Some(piece)
    })
}

fn tool_call(value: Value) -> Result<ToolCall, String> {
    const FORM: &str = "`tool` must be an object: {\"name\":\"fs.read\",\"input\":{…}}";
    let Value::Object(mut tool) = value else { return Err(FORM.to_owned()) };
    let Some(Value::String(name)) = tool.remove("name") else { return Err(FORM.to_owned()) };
    let input = tool.remove("input").unwrap_or_else(|| Value::Object(Map::new()));
    let provider_call_id = match tool.remove("id") {
        None => None,
        Some(Value::String(id)) => Some(id),
        Some(_) => return Err("the `id` of a tool call must be a string".to_owned()),
    };
    match tool.keys().next() {
        None => Ok(ToolCall { provider_call_id, name, input, provider: None }),
        Some(other) => Err(format!("unknown key `{}` in `tool`", crate::control::short(other))),
    }
}

fn read_usage(fields: &Map<String, Value>) -> Result<Usage, String> {
    let mut usage = Usage::default();
    for (key, value) in fields {
        match key.as_str() {
            "input" => usage.input = number(value, "input")?,
            "output" => usage.output = number(value, "output")?,
            _ => return Err("`usage` holds `input` and `output`".to_owned()),
        }
    }
    Ok(usage)
}

fn number(value: &Value, key: &str) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("`{key}` must be a whole number from 0 on"))
}

fn say<'a>(text: &'a str, event: fn(String) -> Event) -> impl Iterator<Item = Act> + use<'a> {
    pieces(text, DELTA_CHARS_MAX).map(move |piece| Act::Emit(event(piece.to_owned())))
}

/// The request as JSON text. Requests hold nothing that cannot be written as JSON.
fn dump(request: &Request) -> String {
    serde_json::to_string(request).unwrap_or_default()
}
