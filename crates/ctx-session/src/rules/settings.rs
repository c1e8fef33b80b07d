//! What may be set on a session: its title, its model, and whether it is put away. All that one command sets is decided
//! together: a part that is refused refuses the whole.

use super::{archive, over};
use crate::code::Refusal;
use crate::command::{Answer, Change, Decision};
use crate::limits::Limits;
use crate::record::{Body, ModelSet, SessionBody, SessionRenamed};
use crate::session::{Session, State};

pub(super) fn change(session: &Session, change: &Change, limits: &Limits) -> Result<Decision, Refusal> {
    let model = change.model.as_ref().map(|model| set_model(session, model.as_deref())).transpose()?;
    let title = change.title.as_deref().map(|title| rename(title, limits)).transpose()?;
    let archived =
        change.archived.map(|archived| archive::archive(session, archived, change.by)).transpose()?;
    let records = model.flatten().into_iter().chain(title).chain(archived.flatten()).collect();
    Ok(Decision { records, effects: Vec::new(), answer: Answer::Done })
}

/// Allowed in every state: a title is how people find old sessions.
fn rename(title: &str, limits: &Limits) -> Result<Body, Refusal> {
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
    Ok(Body::Session(SessionBody::Renamed(SessionRenamed { title: title.to_owned() })))
}

/// Sticky: holds from the next run on, until changed or cleared. None when it is set already.
fn set_model(session: &Session, model: Option<&str>) -> Result<Option<Body>, Refusal> {
    match &session.state {
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {}
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    let is_new = session.model_override.as_deref() != model;
    Ok(is_new.then(|| Body::Session(SessionBody::ModelSet(ModelSet { model: model.map(str::to_owned) }))))
}
