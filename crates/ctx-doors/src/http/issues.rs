//! Issues of a project, and their todos.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{Criterion, CriterionGiven, Issue, IssueChange, List, NewIssue, Todo, TodoChange};
use ctx_engine::{IssueView, IssueWish};
use ctx_session::issue::IssueStatus;
use ctx_session::project::{Change, Criterion as Kept, Todo as KeptTodo};
use ctx_session::{Name, Refusal};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Given, Who, issue_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::projects::slug;

/// Issues on one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct IssuesQuery {
    /// `open`, `in_progress`, `resolved` or `closed`.
    status: Option<String>,
    /// Issues on a page: 50, at most 1000; fewer when they are long.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

fn status_named(word: &str) -> Result<IssueStatus, Refusal> {
    let found = IssueStatus::ALL.into_iter().find(|status| status.as_str() == word);
    found.ok_or_else(|| Refusal::invalid("status", "a status must be open, in_progress, resolved or closed"))
}

/// The issues of a project that the caller may see, by number
#[utoipa::path(get, path = "/projects/{project}/issues", tag = "issues",
    params(("project" = String, Path), IssuesQuery), responses((status = 200, body = List<Issue>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Asked(query): Asked<IssuesQuery>,
) -> Answer<Json<List<Issue>>> {
    let bad_cursor = |_| Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let wish = IssueWish {
        status: query.status.as_deref().map(status_named).transpose()?,
        after: query.cursor.map(|cursor| cursor.parse().map_err(bad_cursor)).transpose()?,
        limit: query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
    };
    let (found, more) = api.engine.issues(caller, &slug(&project)?, wish).await?;
    let next = found.last().filter(|_| more).map(|last| last.issue.number.to_string());
    Ok(Json(List { items: found.into_iter().map(shape).collect(), next }))
}

/// Make an issue
#[utoipa::path(post, path = "/projects/{project}/issues", tag = "issues", params(("project" = String, Path)),
    request_body = NewIssue, responses((status = 201, body = Issue)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    At(project): At<String>,
    Keyed(key): Keyed,
    Given(new): Given<NewIssue>,
) -> Answer<(StatusCode, Json<Issue>)> {
    let project: Name = slug(&project)?;
    let NewIssue { title, body, criteria } = new;
    let new = ctx_engine::NewIssue { title, body, criteria: kept(criteria), key };
    let made = api.engine.create_issue(caller, &project, new).await?;
    Ok((StatusCode::CREATED, Json(shape(made))))
}

/// Read an issue
#[utoipa::path(get, path = "/issues/{iid}", tag = "issues", params(("iid" = String, Path)),
    responses((status = 200, body = Issue)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At(iid): At<String>,
) -> Answer<Json<Issue>> {
    Ok(Json(shape(api.engine.issue(caller, issue_id(&iid)?).await?)))
}

/// Change an issue's title, body, status or criteria
#[utoipa::path(patch, path = "/issues/{iid}", tag = "issues", params(("iid" = String, Path)),
    request_body = IssueChange, responses((status = 200, body = Issue)))]
pub(super) async fn change(
    State(api): State<Api>,
    Who(caller): Who,
    At(iid): At<String>,
    Given(wish): Given<IssueChange>,
) -> Answer<Json<Issue>> {
    let IssueChange { title, body, status, criteria } = wish;
    let change = Change { title, body, status, criteria: criteria.map(kept) };
    Ok(Json(shape(api.engine.change_issue(caller, issue_id(&iid)?, change).await?)))
}

/// The todos of an issue, in their order
#[utoipa::path(get, path = "/issues/{iid}/todos", tag = "issues", params(("iid" = String, Path)),
    responses((status = 200, body = List<Todo>)))]
pub(super) async fn todos(
    State(api): State<Api>,
    Who(caller): Who,
    At(iid): At<String>,
) -> Answer<Json<List<Todo>>> {
    Ok(Json(todos_of(&api.engine.issue(caller, issue_id(&iid)?).await?)))
}

/// Add a todo, or do what the `todo` tool can; answers with all todos of the issue
#[utoipa::path(post, path = "/issues/{iid}/todos", tag = "issues", params(("iid" = String, Path)),
    request_body = TodoChange,
    responses((status = 200, body = List<Todo>), (status = 201, body = List<Todo>, description = "one was added")))]
pub(super) async fn change_todos(
    State(api): State<Api>,
    Who(caller): Who,
    At(iid): At<String>,
    Keyed(key): Keyed,
    Given(change): Given<TodoChange>,
) -> Answer<(StatusCode, Json<List<Todo>>)> {
    let id = issue_id(&iid)?;
    let (status, changed) = match change {
        TodoChange::Add(new) => (StatusCode::CREATED, api.engine.add_todo(caller, id, new.text, key).await?),
        TodoChange::Operation(op) => (StatusCode::OK, api.engine.change_todo(caller, id, op.0, key).await?),
    };
    Ok((status, Json(todos_of(&changed))))
}

fn kept(criteria: Vec<CriterionGiven>) -> Vec<Kept> {
    let whole = criteria.into_iter().map(Criterion::from);
    whole.map(|Criterion { text, done }| Kept { text, done }).collect()
}

fn todos_of(view: &IssueView) -> List<Todo> {
    List { items: view.issue.todos.iter().map(todo).collect(), next: None }
}

fn todo(kept: &KeptTodo) -> Todo {
    Todo {
        id: kept.id,
        text: kept.text.clone(),
        status: kept.status,
        note: kept.note.clone(),
        created_at: kept.created_at.as_millis(),
        updated_at: kept.updated_at.as_millis(),
    }
}

fn shape(view: IssueView) -> Issue {
    let IssueView { project, issue, worker } = view;
    Issue {
        id: issue.id,
        number: issue.number,
        project,
        title: issue.title,
        body: issue.body,
        status: issue.status,
        criteria: issue.criteria.into_iter().map(|Kept { text, done }| Criterion { text, done }).collect(),
        todos: issue.todos.iter().map(todo).collect(),
        owner: issue.owner,
        session_id: worker,
        created_at: issue.created_at.as_millis(),
        updated_at: issue.updated_at.as_millis(),
    }
}
