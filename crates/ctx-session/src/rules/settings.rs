//! What may be set on a session: its title and its model.

use super::{answer, over};
use crate::code::Refusal;
use crate::command::{Answer, Decision};
use crate::limits::Limits;
use crate::record::{Body, ModelSet, SessionRenamed};
use crate::session::{Session, State};

/// Allowed in every state: a title is how people find old sessions.
pub(super) fn rename(title: &str, limits: &Limits) -> Result<Decision, Refusal> {
    let title = title.trim();
    if title.is_empty() {
        return Err(Refusal::invalid("title", "a title must not be empty"));
    }
    if title.len() > limits.title_bytes {
        return Err(Refusal::invalid("title", format!("a title has at most {} bytes", limits.title_bytes)));
    }
    if title.chars().any(char::is_control) {
        return Err(Refusal::invalid("title", "a title is one line without control characters"));
    }
    let renamed = Body::SessionRenamed(SessionRenamed { title: title.to_owned() });
    Ok(Decision { records: vec![renamed], effects: Vec::new(), answer: Answer::Done })
}

/// Sticky: holds from the next run on, until changed or cleared. The engine has checked that the model exists.
pub(super) fn set_model(session: &Session, model: Option<&str>) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {}
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    if session.model_override.as_deref() == model {
        return Ok(answer(Answer::Done));
    }
    let set = Body::ModelSet(ModelSet { model: model.map(str::to_owned) });
    Ok(Decision { records: vec![set], effects: Vec::new(), answer: Answer::Done })
}
