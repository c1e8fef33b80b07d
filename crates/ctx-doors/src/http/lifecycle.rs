//! Forks. Archiving and purging are part of changing and ending a session, in `sessions`.

use ctx_api::http::{NewSession, ResumeFrom, Session};
use ctx_engine::{Caller, NewFork};
use ctx_session::{Name, Refusal, Scope};

use super::error::Answer;
use super::sessions::{name, shape, unread};
use super::{Api, projects};

/// Makes a fork. What is answered is what is known without reading its history, which may be long.
pub(super) async fn fork(
    api: &Api,
    caller: Caller,
    project: &str,
    from: &ResumeFrom,
    new: &NewSession,
    client: String,
) -> Answer<Session> {
    let place = from.place();
    let source = api.engine.find(caller, place.session)?;
    let meta = &source.meta;
    if meta.project.as_str() != project {
        let message = format!("session {} is of the project {}", place.session, meta.project);
        return Err(Refusal::invalid("resume_from", message).into());
    }
    if new.agent.as_deref().is_some_and(|agent| meta.agent.as_ref().map(Name::as_str) != Some(agent)) {
        return Err(Refusal::invalid("agent", "a fork keeps the agent of its source").into());
    }
    if new.cwd.is_some() {
        let message = "a fork works where its source did; name another place with the next message";
        return Err(Refusal::invalid("cwd", message).into());
    }
    if place.checkpoint.is_some() {
        let message = "this session has no such checkpoint; name a record with seq";
        return Err(Refusal::invalid("checkpoint", message).into());
    }
    let own_name =
        |text: &str| Name::of_session(text).map_err(|rule| Refusal::invalid("name", rule.to_string()));
    let wish = NewFork {
        name: new.name.as_deref().map(own_name).transpose()?,
        scope: new.scope.as_deref().map(scope).transpose()?,
        space: new.space.as_deref().map(|space| name("space", space)).transpose()?,
        at: place.seq,
        client: Some(client),
    };
    let id = api.engine.fork(caller, place.session, wish).await?;
    let summary = api.engine.find(caller, id)?;
    let mut shown = [shape(&summary, &unread(&summary))];
    projects::mark_stale(api, &mut shown).await?;
    let [shown] = shown;
    Ok(shown)
}

fn scope(word: &str) -> Result<Scope, Refusal> {
    match word {
        "private" => Ok(Scope::Private),
        "shared" => Ok(Scope::Shared),
        _ => Err(Refusal::invalid("scope", "a scope is private or shared")),
    }
}
