//! Restarting a session: it is ended, and one of the same name begins with the project file as it is now.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::Session;

use super::Api;
use super::error::Answer;
use super::extract::{At, Given, Nothing, Who, session_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::sessions::{CLIENT, shown};

/// End a session and begin a new one in its place, with the project file as it is now
#[utoipa::path(post, path = "/sessions/{id}/restart", tag = "sessions", params(("id" = String, Path)),
    responses((status = 201, body = Session)))]
pub(super) async fn restart(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Keyed(key): Keyed,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<(StatusCode, Json<Session>)> {
    let new = api.engine.restart(caller, session_id(&id)?, Some(CLIENT.to_owned()), key).await?;
    Ok((StatusCode::CREATED, Json(shown(&api, caller, new).await?)))
}
