//! Projects: the registry, and what their files say now.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{
    List, NewProject, Project, ProjectChange, ProjectError, ProjectState, ProjectTrust, Session,
};
use ctx_engine::{Caller, ProjectView};
use ctx_session::project::{DEFAULT_PROJECT, Problem, invalid};
use ctx_session::{Code, Name, Refusal};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Who, name};
use super::idempotency::Keyed;
use super::json::Json;

/// Projects on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Projects on a page: 100, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The projects that the caller may see, by id
#[utoipa::path(get, path = "/projects", tag = "projects", params(ListQuery),
    responses((status = 200, body = List<Project>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(query): Asked<ListQuery>,
) -> Answer<Json<List<Project>>> {
    let bad_cursor = |_| Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let cursor = query.cursor.as_deref().map(|cursor| Name::new(cursor).map_err(bad_cursor)).transpose()?;
    let mut found = api.engine.projects(caller).await?;
    found.retain(|project| cursor.as_ref().is_none_or(|cursor| project.slug > *cursor));
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    let next = more.then(|| found.last().map(|project| project.slug.to_string())).flatten();
    let mut items = Vec::with_capacity(found.len());
    for project in found {
        items.push(shape(&api, project).await);
    }
    Ok(Json(List { items, next }))
}

/// Register a directory as a project, or find the project of a client's directory
#[utoipa::path(post, path = "/projects", tag = "projects", request_body = NewProject,
    responses((status = 200, body = Project, description = "The project of `dir`"), (status = 201, body = Project)))]
pub(super) async fn add(
    State(api): State<Api>,
    Who(caller): Who,
    Keyed(key): Keyed,
    Given(new): Given<NewProject>,
) -> Answer<(StatusCode, Json<Project>)> {
    let directory = match (new.directory, new.dir, &new.id) {
        (Some(directory), None, _) => directory,
        (None, Some(dir), None) => return of_directory(&api, caller, dir).await,
        (None, Some(_), Some(_)) => {
            return Err(Refusal::invalid("id", "the project of a `dir` has its own name").into());
        }
        (Some(_), Some(_), _) | (None, None, _) => {
            return Err(Refusal::invalid("directory", "give a `directory` or a `dir`").into());
        }
    };
    let slug = new.id.as_deref().map(|id| name("id", id)).transpose()?;
    let new = ctx_engine::NewProject { directory, slug, key };
    let project = api.engine.add_project(caller, new).await?;
    api.catalog.sync_sockets().await;
    Ok((StatusCode::CREATED, Json(shape(&api, project).await)))
}

/// The project that a client's directory belongs to.
async fn of_directory(api: &Api, caller: Caller, dir: String) -> Answer<(StatusCode, Json<Project>)> {
    /// Until then the socket of a new project's agent may not be open yet.
    const NEW_MS: u64 = 5_000;
    let found = api.engine.project_of(caller, dir).await?;
    if api.engine.now().as_millis().saturating_sub(found.project.added_at.as_millis()) < NEW_MS {
        api.catalog.sync_sockets().await;
    }
    let project = Project { warnings: found.warnings, ..shape(api, found.project).await };
    Ok((StatusCode::OK, Json(project)))
}

/// Agree to what the project file grants
#[utoipa::path(post, path = "/projects/{project}/trust", tag = "projects", params(("project" = String, Path)),
    request_body = ProjectTrust, responses((status = 200, body = Project)))]
pub(super) async fn trust(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Given(trust): Given<ProjectTrust>,
) -> Answer<Json<Project>> {
    let project = api.engine.trust_project(caller, &slug(&project)?, trust.hash).await?;
    Ok(Json(shape(&api, project).await))
}

/// Read a project
#[utoipa::path(get, path = "/projects/{project}", tag = "projects", params(("project" = String, Path)),
    responses((status = 200, body = Project)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
) -> Answer<Json<Project>> {
    let project = api.engine.project(caller, &slug(&project)?).await?;
    Ok(Json(shape(&api, project).await))
}

/// Say where a project's directory is now
#[utoipa::path(put, path = "/projects/{project}", tag = "projects", params(("project" = String, Path)),
    request_body = ProjectChange, responses((status = 200, body = Project)))]
pub(super) async fn change(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Given(change): Given<ProjectChange>,
) -> Answer<Json<Project>> {
    let slug = slug(&project)?;
    let project = match change.directory {
        Some(directory) => api.engine.move_project(caller, &slug, directory).await?,
        None => api.engine.project(caller, &slug).await?,
    };
    api.catalog.sync_sockets().await;
    Ok(Json(shape(&api, project).await))
}

/// Take a project out of the registry; its directory and its sessions stay
#[utoipa::path(delete, path = "/projects/{project}", tag = "projects", params(("project" = String, Path)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
) -> Answer<StatusCode> {
    api.engine.remove_project(caller, &slug(&project)?).await?;
    api.catalog.sync_sockets().await;
    Ok(StatusCode::NO_CONTENT)
}

/// A slug that is none names nothing.
pub(super) fn slug(text: &str) -> Answer<Name> {
    Name::new(text).map_err(|_| nothing_there("project"))
}

async fn shape(api: &Api, project: ProjectView) -> Project {
    let agent = match project.agent {
        Some(agent) => Some(agent),
        None if project.slug.as_str() == DEFAULT_PROJECT => shipped(api).await,
        None => None,
    };
    let state = if project.problems.is_empty() { ProjectState::Ready } else { ProjectState::Invalid };
    // What is ready can be talked to: its file may have been put right just now.
    if let (ProjectState::Ready, Some(agent)) = (state, &agent)
        && !api.catalog.is_open(agent)
    {
        api.catalog.sync_sockets().await;
    }
    let (dsl_hash, dsl_snapshot) = project.dsl.map(|dsl| (dsl.hash, dsl.snapshot)).unzip();
    Project {
        id: project.slug,
        directory: project.directory,
        owner: project.owner,
        state,
        errors: project.problems.into_iter().map(error).collect(),
        agent,
        dsl_hash,
        dsl_snapshot,
        grants: project.grants,
        trusted: project.trusted,
        warnings: Vec::new(),
        added_at: project.added_at.as_millis(),
        updated_at: project.updated_at.as_millis(),
    }
}

fn error(problem: Problem) -> ProjectError {
    let Problem { file, line, column, message } = problem;
    ProjectError { code: Code::Ebadmsg.to_string(), file, line, column, message }
}

/// The primary of the project `default`.
async fn shipped(api: &Api) -> Option<Name> {
    of_catalog(api, DEFAULT_PROJECT).await.and_then(|agent| Name::new(&agent).ok())
}

async fn of_catalog(api: &Api, project: &str) -> Option<String> {
    let (catalog, project) = (api.catalog.clone(), project.to_owned());
    tokio::task::spawn_blocking(move || catalog.primary(&project)).await.ok().flatten()
}

/// The project of this name and the agent that a session of it has when none is named; an invalid one refuses.
pub(super) async fn primary(api: &Api, caller: Caller, project: &str) -> Answer<(Name, String)> {
    let slug = slug(project)?;
    if slug.as_str() != DEFAULT_PROJECT
        && let Ok(found) = api.engine.project(caller, &slug).await
    {
        return match found.agent {
            Some(agent) if found.problems.is_empty() => Ok((slug, agent.to_string())),
            Some(_) | None => Err(invalid(slug.as_str(), &found.problems).into()),
        };
    }
    let agent = of_catalog(api, project).await.filter(|agent| api.engine.sees_agent(caller, agent));
    Ok((slug, agent.ok_or_else(|| nothing_there("project"))?))
}

/// Says of sessions that keep a project's file whether it has changed since.
pub(super) async fn mark_stale(api: &Api, sessions: impl IntoIterator<Item = &mut Session>) {
    let mut now: BTreeMap<Name, Option<String>> = BTreeMap::new();
    for session in sessions.into_iter().filter(|session| session.dsl_snapshot.is_some()) {
        if !now.contains_key(&session.project) {
            let current = api.engine.current_snapshot(&session.project).await;
            now.insert(session.project.clone(), current);
        }
        session.stale = now.get(&session.project).is_some_and(|now| session.dsl_snapshot != *now);
    }
}
