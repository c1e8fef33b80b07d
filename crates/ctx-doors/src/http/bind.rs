//! The issue that a session works on. A pointer of the session's: binding changes neither its state nor a todo.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{Bind, Session};

use super::error::Answer;
use super::extract::{At, Given, Nothing, Who, issue_in, session_id};
use super::json::Json;
use super::{Api, sessions};

/// Bind an issue to a session; one that another session works on is refused
#[utoipa::path(put, path = "/sessions/{id}/bind", tag = "issues", params(("id" = String, Path)),
    request_body = Bind, responses((status = 200, body = Session)))]
pub(super) async fn bind(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(wish): Given<Bind>,
) -> Answer<Json<Session>> {
    let id = session_id(&id)?;
    api.engine.bind(caller, id, issue_in("issue_id", &wish.issue_id)?).await?;
    Ok(Json(sessions::shown(&api, caller, id).await?))
}

/// Unbind the issue of a session; its todos stay
#[utoipa::path(delete, path = "/sessions/{id}/bind", tag = "issues", params(("id" = String, Path)),
    responses((status = 204)))]
pub(super) async fn unbind(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<StatusCode> {
    api.engine.unbind(caller, session_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
