//! Forks. Archiving and purging are part of changing and ending a session, in `sessions`.

use ctx_api::http::{NewSession, ResumeFrom, Session};
use ctx_engine::{Caller, Details, NewFork};
use ctx_session::record::SessionBody;
use ctx_session::request::RequestKey;
use ctx_session::{Body, CheckpointId, Name, Record, Refusal, Scope, SessionId, StateName};

use super::error::Answer;
use super::extract::name;
use super::sessions::{CLIENT, shape, shown};
use super::{Api, projects};

/// More records than the command that pauses a session has.
const PAUSE_RECORDS: u64 = 1_000;

/// Makes a fork. Its history, which may be long, is not read for the answer where its source is known.
pub(super) async fn fork(
    api: &Api,
    caller: Caller,
    project: &str,
    from: &ResumeFrom,
    new: &NewSession,
    key: Option<RequestKey>,
) -> Answer<Session> {
    let place = from.place();
    let source = api.engine.find(caller, place.session)?;
    let meta = &source.meta;
    if meta.project.as_str() != project {
        let message = format!("session {} belongs to project {}", place.session, meta.project);
        return Err(Refusal::invalid("resume_from", message).into());
    }
    if new.agent.as_deref().is_some_and(|agent| meta.agent.as_ref().map(Name::as_str) != Some(agent)) {
        return Err(Refusal::invalid("agent", "a fork keeps the agent of its source").into());
    }
    if new.cwd.is_some() || new.dir.is_some() {
        let message = "a fork keeps its source's directory; set another one with the next message";
        return Err(Refusal::invalid("cwd", message).into());
    }
    if new.bound_issue.is_some() {
        let message = "a fork starts without an issue; bind one with PUT /sessions/:id/bind";
        return Err(Refusal::invalid("bound_issue", message).into());
    }
    let at = match (&place.checkpoint, place.seq) {
        (None, seq) => seq,
        (Some(checkpoint), None) => Some(pause(api, caller, place.session, checkpoint).await?),
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("resume_from", "name a checkpoint or a seq, not both").into());
        }
    };
    let own_name =
        |text: &str| Name::of_session(text).map_err(|rule| Refusal::invalid("name", rule.to_string()));
    let wish = NewFork {
        name: new.name.as_deref().map(own_name).transpose()?,
        scope: new.scope.as_deref().map(scope).transpose()?,
        space: new.space.as_deref().map(|space| name("space", space)).transpose()?,
        at,
        client: Some(CLIENT.to_owned()),
        key,
    };
    let id = api.engine.fork(caller, place.session, wish).await?;
    made(api, caller, place.session, id).await
}

/// A fork that was just made. Of a whole copy the source says what is in it, where that is known.
async fn made(api: &Api, caller: Caller, source: SessionId, id: SessionId) -> Answer<Session> {
    let summary = api.engine.find(caller, id)?;
    let copied = summary.meta.forked_from.map(|from| from.seq.saturating_add(1));
    // From the index or the registry: the source is not loaded for this where it is at rest.
    let known = api.engine.show(caller, source).await.ok().filter(|(source, _)| source.next_seq == copied);
    let Some((_, known)) = known else { return shown(api, caller, id).await };
    let details = Details {
        title: known.title.clone(),
        model_override: known.model_override.clone(),
        ..Details::unread(&summary.meta)
    };
    let mut shown = [shape(&summary, &details)];
    projects::mark_stale(api, &mut shown).await;
    let [shown] = shown;
    Ok(shown)
}

/// The record with which the session was paused at a checkpoint: the last of its command.
async fn pause(api: &Api, caller: Caller, id: SessionId, checkpoint: &str) -> Answer<u64> {
    let unknown = || Refusal::invalid("checkpoint", "this session has no such checkpoint");
    let wanted: CheckpointId = checkpoint.parse().map_err(|_| unknown())?;
    let session = api.engine.look(caller, id).await?;
    let from = session.control.checkpoint(wanted).ok_or_else(unknown)?.seq;
    let paused = |record: Record| match &record.body {
        Body::Session(SessionBody::StateChanged(change)) if change.to == StateName::Paused => {
            Some(record.seq)
        }
        _ => None,
    };
    // A few records at most stand between the two.
    let records = api.engine.records(caller, id, from, Some(from.saturating_add(PAUSE_RECORDS))).await?;
    Ok(records.into_iter().find_map(paused).ok_or_else(unknown)?)
}

fn scope(word: &str) -> Result<Scope, Refusal> {
    match word {
        "private" => Ok(Scope::Private),
        "shared" => Ok(Scope::Shared),
        _ => Err(Refusal::invalid("scope", "a scope must be private or shared")),
    }
}
