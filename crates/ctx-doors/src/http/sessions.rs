//! Sessions and their queue.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{Damage, List, NewSession, Posted, Session, SessionChange};
use ctx_api::model;
use ctx_engine::{Caller, Details, ListWish, Summary};
use ctx_session::command::Change;
use ctx_session::{Code, Missing, Name, Object, Refusal, RunState, Scope, SessionId, StateName};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::IntoParams;

use super::error::Answer;
use super::extract::{Asked, At, Given, Who, issue_in, name, session_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::{Api, lifecycle, projects};

/// What sessions are made through here.
pub(super) const CLIENT: &str = "http";
/// Sessions on one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// `idle`, `running`, `queued`, `paused`, `ended` or `failed`.
    state: Option<String>,
    agent: Option<String>,
    /// The directory they work in, as the agent sees it.
    cwd: Option<String>,
    /// The host directory they began in, or one above it.
    dir: Option<String>,
    /// In the title, the name or the first message, or said in it.
    text: Option<String>,
    /// Also those that were put away.
    archived: bool,
    /// Sessions on a page: 50, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

fn state_named(word: &str) -> Answer<StateName> {
    let found = StateName::ALL.into_iter().find(|state| state.as_str() == word);
    Ok(found.ok_or_else(|| {
        Refusal::invalid("state", "a state must be idle, running, queued, paused, ended or failed")
    })?)
}

/// The sessions of a project that the caller may see, newest first
#[utoipa::path(get, path = "/projects/{project}/sessions", tag = "sessions",
    params(("project" = String, Path), ListQuery), responses((status = 200, body = List<Session>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Json<List<Item>>> {
    let state = query.state.as_deref().map(state_named).transpose()?;
    let bad_cursor = |_| Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let cursor = query.cursor.as_deref().map(|c| c.parse::<SessionId>().map_err(bad_cursor)).transpose()?;
    let slug = projects::slug(&project)?;
    let wish = ListWish {
        project: Some(slug.clone()),
        state,
        agent: query.agent,
        cwd: query.cwd,
        dir: query.dir,
        text: query.text.filter(|text| !text.trim().is_empty()),
        archived: query.archived,
        limit: query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
        after: cursor,
    };
    let page = api.engine.page(caller, wish).await?;
    if page.items.is_empty() {
        api.engine.has_sessions_of(caller, &slug)?;
    }
    let mut items = Vec::with_capacity(page.items.len());
    for (summary, details) in &page.items {
        items.push(listed(summary, details.as_deref())?);
    }
    let now: Vec<&mut Session> = items.iter_mut().filter_map(Item::now).collect();
    projects::mark_stale(&api, now).await;
    Ok(Json(List { items, next: page.next.map(|id| id.to_string()) }))
}

/// A session of a list.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Item {
    /// As it was shown since it last changed.
    Shown(Arc<RawValue>),
    Now(Box<Session>),
}

impl Item {
    fn now(&mut self) -> Option<&mut Session> {
        match self {
            Item::Now(session) => Some(session),
            Item::Shown(_) => None,
        }
    }
}

/// A session of a list. Its JSON is kept with its summary until it changes, so that a list that is asked for again is not written anew.
fn listed(summary: &Summary, details: Option<&Details>) -> Answer<Item> {
    let Some(details) = details else {
        let unread = shape(summary, &Details::unread(&summary.meta));
        return Ok(Item::Now(Box::new(Session { state: summary.state, ..unread })));
    };
    // The files of its project tell whether it is stale, and they may change at any time.
    let depends_on_files = summary.meta.dsl_snapshot.is_some();
    if depends_on_files || summary.details.as_deref() != Some(details) {
        return Ok(Item::Now(Box::new(shape(summary, details))));
    }
    if let Some(shown) = summary.shown.get() {
        return Ok(Item::Shown(shown.clone()));
    }
    let broken = |error: serde_json::Error| Refusal::new(Code::Eio, error.to_string());
    let shown = to_raw_value(&shape(summary, details)).map_err(broken)?;
    Ok(Item::Shown(summary.shown.get_or_init(|| shown.into()).clone()))
}

/// Make a session
#[utoipa::path(post, path = "/projects/{project}/sessions", tag = "sessions",
    params(("project" = String, Path)), request_body = NewSession,
    responses((status = 201, body = Session)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Keyed(key): Keyed,
    Given(new): Given<NewSession>,
) -> Answer<(StatusCode, Json<Session>)> {
    if let Some(made) = key.as_ref().map_or(Ok(None), |key| api.engine.made_by(caller, key))? {
        // A daemon that died after making it left the binding to whoever asks again.
        let issue = new.bound_issue.as_deref().map(|text| issue_in("bound_issue", text)).transpose()?;
        if let Some(issue) = issue {
            api.engine.bind(caller, made, issue).await?;
        }
        return Ok((StatusCode::CREATED, Json(shown(&api, caller, made).await?)));
    }
    if let Some(from) = &new.resume_from {
        let fork = lifecycle::fork(&api, caller, &project, from, &new, key).await?;
        return Ok((StatusCode::CREATED, Json(fork)));
    }
    let (project, primary) = projects::primary(&api, caller, &project).await?;
    let scope = match new.scope.as_deref() {
        None | Some("private") => Scope::Private,
        Some("shared") => Scope::Shared,
        Some("temp") => {
            let message = "a temp session ends with its connection; use the agent's socket";
            return Err(Refusal::invalid("scope", message).into());
        }
        Some(_) => return Err(Refusal::invalid("scope", "a scope must be private or shared").into()),
    };
    let own_name =
        |text: &str| Name::of_session(text).map_err(|rule| Refusal::invalid("name", rule.to_string()));
    let issue = new.bound_issue.as_deref().map(|text| issue_in("bound_issue", text)).transpose()?;
    let new = ctx_engine::NewSession {
        object: Object::Agent(name("agent", new.agent.as_deref().unwrap_or(&primary))?),
        project: Some(project),
        name: new.name.as_deref().map(own_name).transpose()?,
        scope,
        space: space(scope, new.space.as_deref())?,
        cwd: new.cwd,
        dir: new.dir,
        earlier: Vec::new(),
        client: Some(CLIENT.to_owned()),
        key,
    };
    let id = match issue {
        Some(issue) => api.engine.create_bound(caller, new, issue).await?,
        None => api.engine.create(caller, new).await?,
    };
    Ok((StatusCode::CREATED, Json(shown(&api, caller, id).await?)))
}

/// A shared session needs a space, another must not have one.
fn space(scope: Scope, space: Option<&str>) -> Result<Option<Name>, Refusal> {
    match (scope, space) {
        (Scope::Shared, Some(space)) => name("space", space).map(Some),
        (Scope::Shared, None) => Err(Refusal::invalid("space", "a shared session needs a space")),
        (Scope::Private | Scope::Temp, Some(_)) => {
            Err(Refusal::invalid("space", "only a shared session has a space"))
        }
        (Scope::Private | Scope::Temp, None) => Ok(None),
    }
}

pub(super) async fn shown(api: &Api, caller: Caller, id: SessionId) -> Answer<Session> {
    let (summary, details) = api.engine.show(caller, id).await?;
    let mut shown = shape(&summary, &details);
    projects::mark_stale(api, [&mut shown]).await;
    Ok(shown)
}

/// Read a session
#[utoipa::path(get, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Session)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<Json<Session>> {
    Ok(Json(shown(&api, caller, session_id(&id)?).await?))
}

/// Change a session's title or its sticky model, put it away or bring it back
#[utoipa::path(put, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    request_body = SessionChange, responses((status = 200, body = Session)))]
pub(super) async fn change(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(change): Given<SessionChange>,
) -> Answer<Json<Session>> {
    let id = session_id(&id)?;
    let SessionChange { title, model_override, archived } = change;
    let change = Change { title, model: model_override, archived, by: caller.uid };
    api.engine.change(caller, id, change).await?;
    Ok(Json(shown(&api, caller, id).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct EndQuery {
    /// Must be true to end: it cannot be undone.
    confirm: bool,
    /// Delete a session that has ended or failed, with all that was said in it.
    purge: bool,
}

/// End a session, or delete one that is over
#[utoipa::path(delete, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path), EndQuery),
    responses((status = 204)))]
pub(super) async fn end(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<EndQuery>,
) -> Answer<StatusCode> {
    let id = session_id(&id)?;
    api.engine.find(caller, id)?;
    if query.purge {
        api.engine.purge(caller, id).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    if !query.confirm {
        return Err(Refusal::invalid("confirm", "ending a session needs ?confirm=true").into());
    }
    api.engine.end(caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Start the queued run, if there is a slot
#[utoipa::path(post, path = "/sessions/{id}/resume", tag = "queue", params(("id" = String, Path)),
    responses((status = 202, body = Posted)))]
pub(super) async fn resume(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<(StatusCode, Json<Posted>)> {
    let done = api.engine.resume_queued(caller, session_id(&id)?).await?;
    Ok((StatusCode::ACCEPTED, Json(posted(&done))))
}

/// Discard the queued message; its run is cancelled
#[utoipa::path(delete, path = "/sessions/{id}/queued-message", tag = "queue", params(("id" = String, Path)),
    responses((status = 204)))]
pub(super) async fn discard(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<StatusCode> {
    api.engine.discard_queued(caller, session_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What came of a post, in the session's words: a run that is pending makes it queued.
pub(super) fn posted(posted: &ctx_engine::Posted) -> Posted {
    let state = match &posted.state {
        RunState::Pending => "queued",
        state => state.as_str(),
    };
    Posted { run_id: posted.run, message_id: posted.message, state: state.to_owned() }
}

fn damage(missing: Missing) -> Damage {
    Damage { lines: missing.records, since_seq: missing.since_seq }
}

/// A session as the API shows it.
pub(super) fn shape(summary: &Summary, details: &Details) -> Session {
    use ctx_session::State as S;
    let meta = &summary.meta;
    let (pending, current, limit) = match &details.state {
        S::Queued { run, limit } => (Some(*run), Some(*run), *limit),
        S::Running { run } => (None, Some(*run), None),
        S::Paused { .. } => (None, details.current_run, None),
        S::Idle | S::Ended | S::Failed(_) => (None, None, None),
    };
    let checkpoint = match &details.state {
        S::Paused { checkpoint } => Some(*checkpoint),
        S::Idle | S::Running { .. } | S::Queued { .. } | S::Ended | S::Failed(_) => None,
    };
    let failure = match &details.state {
        S::Failed(failure) => Some(failure.clone()),
        S::Idle | S::Running { .. } | S::Queued { .. } | S::Paused { .. } | S::Ended => None,
    };
    Session {
        id: summary.id(),
        name: meta.name.clone(),
        dir_name: summary.dir_name.clone(),
        dir: meta.dir.clone(),
        workspace: meta.workspace.clone(),
        scope: meta.scope,
        space: meta.space.clone(),
        owner: meta.owner,
        created_by: meta.owner,
        project: meta.project.clone(),
        agent: meta.agent.clone(),
        state: details.state.name(),
        damage: details.missing.map(damage),
        failure,
        failing: summary.failing.clone(),
        cwd: summary.cwd.clone(),
        title: details.title.clone(),
        model: model::in_api(&meta.model),
        model_override: details.model_override.as_deref().map(model::in_api),
        forked_from: meta.forked_from,
        archived: summary.archived,
        stale: false,
        dsl_hash: meta.dsl_hash.clone(),
        dsl_snapshot: meta.dsl_snapshot.clone(),
        pending_run: pending,
        current_run: current,
        checkpoint,
        bound_issue: details.bound_issue,
        pending_approvals: details.approvals,
        queued: pending.is_some(),
        reason: pending.map(|_| "concurrency_limit".to_owned()),
        limit,
        tokens_in: details.usage.input,
        tokens_out: details.usage.output,
        tokens_cached: details.usage.cached,
        cost_usd: details.usage.cost().dollars(),
        created_at: summary.created_at.as_millis(),
        updated_at: summary.updated_at.as_millis(),
        ended_at: details.ended_at.map(|time| time.as_millis()),
    }
}
