//! Sessions, their queue and their runs.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use ctx_api::http::{List, Posted, Run, Session, SessionChange};
use ctx_engine::Summary;
use ctx_session::{Code, Name, Refusal, RunId, RunState, SessionId, StateName};
use serde::Deserialize;

use super::error::body;
use super::{Api, ApiError, Peer};

type Answer<T> = Result<T, ApiError>;

/// Sessions on one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    state: Option<String>,
    agent: Option<String>,
    limit: Option<usize>,
    /// The `next` of the page before: the last id on it.
    cursor: Option<String>,
}

fn session_id(text: &str) -> Answer<SessionId> {
    // An id that is none names nothing.
    text.parse().map_err(|_| ApiError(Refusal::new(Code::Enoent, "there is no such session")))
}

fn run_id(text: &str) -> Answer<RunId> {
    text.parse().map_err(|_| ApiError(Refusal::new(Code::Enoent, "there is no such run")))
}

fn state_named(word: &str) -> Answer<StateName> {
    let found = StateName::ALL.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| {
        ApiError(Refusal::invalid("state", "a state is idle, running, queued, ended or failed"))
    })
}

pub(super) async fn list(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(project): Path<String>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<Json<List<Session>>> {
    let caller = peer.caller()?;
    let Query(query) = query.map_err(|error| ApiError(Refusal::invalid("query", error.body_text())))?;
    let state = query.state.as_deref().map(state_named).transpose()?;
    let cursor = query.cursor.as_deref().map(session_id).transpose()?;
    let project = Name::new(&project).map_err(|rule| Refusal::invalid("project", rule.to_string()))?;
    let mut found = api.engine.list(caller, |summary| {
        summary.meta.project == project
            && state.is_none_or(|state| summary.state == state)
            && query
                .agent
                .as_ref()
                .is_none_or(|agent| summary.meta.agent.as_ref().is_some_and(|found| found.as_str() == agent))
    });
    // By id, newest first: a page stays where it is while sessions come and change.
    found.sort_by_key(|summary| std::cmp::Reverse(summary.id()));
    found.retain(|summary| cursor.is_none_or(|cursor| summary.id() < cursor));
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    let next = more.then(|| found.last().map(|summary| summary.id().to_string())).flatten();
    let mut items = Vec::with_capacity(found.len());
    for summary in &found {
        match api.engine.look(caller, summary.id()).await {
            Ok(session) => items.push(shape(summary, &session)),
            // One session that cannot be read must not hide the others.
            Err(refusal) => {
                tracing::warn!(session = %summary.id(), %refusal, "listed by what is known without its log");
                items.push(Session { state: summary.state, ..shape(summary, &known(summary)) });
            }
        }
    }
    Ok(Json(List { items, next }))
}

pub(super) async fn read(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
) -> Answer<Json<Session>> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    let session = api.engine.look(caller, id).await?;
    Ok(Json(shape(&api.engine.find(caller, id)?, &session)))
}

pub(super) async fn change(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Answer<Json<Session>> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    let change: SessionChange = body(&bytes)?;
    if let Some(title) = &change.title {
        api.engine.rename(caller, id, title).await?;
    }
    if let Some(model) = change.model_override {
        api.engine.set_model(caller, id, model).await?;
    }
    let session = api.engine.look(caller, id).await?;
    Ok(Json(shape(&api.engine.find(caller, id)?, &session)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EndQuery {
    confirm: bool,
}

pub(super) async fn end(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
    query: Result<Query<EndQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<StatusCode> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    let Query(query) = query.map_err(|error| ApiError(Refusal::invalid("query", error.body_text())))?;
    api.engine.find(caller, id)?;
    if !query.confirm {
        return Err(Refusal::invalid("confirm", "ending a session needs ?confirm=true").into());
    }
    api.engine.end(caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn resume(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
) -> Answer<(StatusCode, Json<Posted>)> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    let posted = api.engine.resume_queued(caller, id).await?;
    let state = posted.state.as_str().to_owned();
    Ok((StatusCode::ACCEPTED, Json(Posted { run_id: posted.run, message_id: posted.message, state })))
}

pub(super) async fn discard(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    api.engine.discard_queued(caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn runs(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
) -> Answer<Json<List<Run>>> {
    let (caller, id) = (peer.caller()?, session_id(&id)?);
    let session = api.engine.look(caller, id).await?;
    let items = session.runs().map(|run| run_shape(id, run)).collect();
    Ok(Json(List { items, next: None }))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path((id, run)): Path<(String, String)>,
) -> Answer<Json<Run>> {
    let (caller, id, run) = (peer.caller()?, session_id(&id)?, run_id(&run)?);
    api.engine.cancel(caller, id, run).await?;
    let session = api.engine.look(caller, id).await?;
    let found = session.run(run).ok_or_else(|| Refusal::new(Code::Enoent, "there is no such run"))?;
    Ok(Json(run_shape(id, found)))
}

/// A session of which only the summary is known.
fn known(summary: &Summary) -> ctx_session::Session {
    let mut session = ctx_session::Session::new((*summary.meta).clone(), 0, summary.created_at);
    session.cwd.clone_from(&summary.cwd);
    session.updated_at = summary.updated_at;
    session
}

/// A session as the API shows it.
fn shape(summary: &Summary, session: &ctx_session::Session) -> Session {
    use ctx_session::State as S;
    let meta = &session.meta;
    let (pending, current, limit) = match &session.state {
        S::Queued { run, limit } => (Some(*run), Some(*run), *limit),
        S::Running { run } => (None, Some(*run), None),
        S::Idle | S::Ended | S::Failed(_) => (None, None, None),
    };
    let failure = match &session.state {
        S::Failed(failure) => Some(failure.clone()),
        S::Idle | S::Running { .. } | S::Queued { .. } | S::Ended => None,
    };
    Session {
        id: session.id(),
        name: meta.name.clone(),
        dir: summary.dir_name.clone(),
        scope: meta.scope,
        space: meta.space.clone(),
        owner: meta.owner,
        created_by: meta.owner,
        project: meta.project.clone(),
        agent: meta.agent.clone(),
        state: session.state.name(),
        failure,
        failing: summary.failing.clone(),
        cwd: session.cwd.clone(),
        title: session.title.clone(),
        model: meta.model.clone(),
        model_override: session.model_override.clone(),
        forked_from: meta.forked_from,
        pending_run: pending,
        current_run: current,
        queued: pending.is_some(),
        reason: pending.map(|_| "concurrency_limit".to_owned()),
        limit,
        created_at: session.created_at.as_millis(),
        updated_at: session.updated_at.as_millis(),
        ended_at: session.ended_at.map(|time| time.as_millis()),
    }
}

fn run_shape(session_id: SessionId, run: &ctx_session::session::Run) -> Run {
    let error = match &run.state {
        RunState::Failed(failure) => Some(failure.clone()),
        RunState::Pending | RunState::Running | RunState::Done | RunState::Cancelled => None,
    };
    let started = run.started_at.unwrap_or(run.created_at);
    Run {
        id: run.id,
        session_id,
        state: run.state.as_str().to_owned(),
        created_at: run.created_at.as_millis(),
        completed_at: run.completed_at.map(|time| time.as_millis()),
        duration_ms: run.completed_at.map(|time| time.millis_since(started)),
        tokens_in: run.usage.input,
        tokens_out: run.usage.output,
        error,
    }
}
