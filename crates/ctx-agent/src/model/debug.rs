//! The models `debug/echo` and `debug/script`: no network, no key, and every path of a run can be driven with them.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};

use ctx_session::Limits;
use ctx_session::conversation::Role;
use ctx_session::estimate::tokens;
use ctx_session::model_name::in_api;
use ctx_session::record::Usage;

use super::registry::{FindError, ModelId};
use super::script::{Act, Script};
pub use super::script::{DELTA_CHARS_MAX, pieces};
use super::{Answer, Event, Finish, Model, ModelError, Request};
use crate::BoxFuture;
use crate::control::{ControlDir, ControlError};

/// A debug model, as its control directory describes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Debug {
    /// Answers with its input.
    Echo,
    /// Plays the script in the message, else the one of its file, else echoes.
    Script { file: Option<Script> },
}

impl Debug {
    pub fn open(
        id: &ModelId,
        root: &Path,
        control: &ControlDir,
        limits: &Limits,
    ) -> Result<Debug, FindError> {
        let native = control.value("id", |text| Ok(text.to_owned()))?;
        match native.unwrap_or_else(|| id.to_string()).as_str() {
            "debug/echo" => Ok(Debug::Echo),
            "debug/script" => Ok(Debug::Script { file: script_file(root, control, limits)? }),
            other => Err(FindError::Control(ControlError::BadValue {
                file: format!("{}/id", control.label()),
                line: 1,
                column: 1,
                problem: format!("unknown model {other}; available: debug/echo, debug/script"),
            })),
        }
    }

    fn acts(&self, request: &Request) -> Result<Vec<Act>, ModelError> {
        let input = request.messages.iter().rfind(|turn| turn.role == Role::User);
        let text = input.map(super::Turn::text).unwrap_or_default();
        match self {
            Debug::Echo => Ok(echo(request, text)),
            Debug::Script { file } => match (Script::in_message(&text), file) {
                (Some(Ok(script)), _) => Ok(script.play(request)),
                (Some(Err(error)), _) => {
                    let detail = error.to_string();
                    Err(ModelError::BadRequest { model: in_api(&request.model), detail })
                }
                (None, Some(script)) => Ok(script.play(request)),
                (None, None) => Ok(echo(request, text)),
            },
        }
    }
}

/// The window of the debug models: small, so that compaction can be seen.
const WINDOW_TOKENS: u64 = 8_192;

impl Model for Debug {
    fn window(&self) -> Option<u64> {
        Some(WINDOW_TOKENS)
    }

    fn call(&self, request: Request) -> BoxFuture<'_, Result<Box<dyn Answer>, ModelError>> {
        Box::pin(async move {
            let acts = self.acts(&request)?;
            Ok(Box::new(Playing { acts: acts.into() }) as Box<dyn Answer>)
        })
    }
}

/// The acts of one call that are still to come.
struct Playing {
    acts: VecDeque<Act>,
}

impl Answer for Playing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Event>, ModelError>> {
        Box::pin(async move {
            loop {
                match self.acts.pop_front() {
                    None => return Ok(None),
                    Some(Act::Wait(time)) => tokio::time::sleep(time).await,
                    Some(Act::Fail(error)) => return Err(error),
                    Some(Act::Emit(event)) => return Ok(Some(event)),
                }
            }
        })
    }
}

fn echo(request: &Request, text: String) -> Vec<Act> {
    let heard = request.messages.iter().map(|turn| tokens(&turn.text())).sum::<u64>();
    let usage = Usage { input: tokens(&request.prompt) + heard, output: tokens(&text), ..Usage::default() };
    // In several deltas also when the text is short, so that streaming can be seen.
    let size = text.chars().count().div_ceil(2).clamp(1, DELTA_CHARS_MAX);
    let mut acts: Vec<Act> =
        pieces(&text, size).map(|piece| Act::Emit(Event::Text(piece.to_owned()))).collect();
    acts.push(Act::Emit(Event::Usage(usage)));
    acts.push(Act::Emit(Event::Finish(Finish::Stop)));
    acts
}

/// The script that `default` names: `script=PATH`, or the path alone, from the control directory when relative.
fn script_file(root: &Path, control: &ControlDir, limits: &Limits) -> Result<Option<Script>, FindError> {
    let named = control.value("default", |text| {
        let path = text.strip_prefix("script=").unwrap_or(text).trim();
        if path.is_empty() { Ok(None) } else { Ok(Some(root.join(control.label()).join(path))) }
    })?;
    let Some(path) = named.flatten() else { return Ok(None) };
    let bad = |(line, column): (usize, usize), problem: String| {
        let file = path.display().to_string();
        FindError::Control(ControlError::BadValue { file, line, column, problem })
    };
    let text = read_text(&path, limits.message_bytes).map_err(|problem| {
        FindError::Control(ControlError::BadValue {
            file: format!("{}/default", control.label()),
            line: 1,
            column: 1,
            problem: format!("cannot read the script {}: {problem}", path.display()),
        })
    })?;
    let value = serde_json::from_str(&text)
        .map_err(|error| bad((error.line(), error.column()), error.to_string()))?;
    Script::from_file(value).map(Some).map_err(|error| bad((1, 1), error.to_string()))
}

fn read_text(path: &PathBuf, bytes_max: usize) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(bytes_max as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() > bytes_max {
        return Err(format!("it has more than {bytes_max} bytes"));
    }
    Ok(text)
}
