//! Pinned messages: what no compaction takes.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::Pin;
use ctx_session::Ulid;

use super::Api;
use super::error::{Answer, nothing_there};
use super::extract::{At, Given, Nothing, Who, session_id};
use super::json::Json;

fn message(text: &str) -> Answer<Ulid> {
    text.parse().map_err(|_| nothing_there("message"))
}

/// Pin a message: no compaction takes it
#[utoipa::path(put, path = "/sessions/{id}/messages/{mid}/pin", tag = "messages",
    params(("id" = String, Path), ("mid" = String, Path)), responses((status = 200, body = Pin)))]
pub(super) async fn pin(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, mid)): At<(String, String)>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<Json<Pin>> {
    let message_id = message(&mid)?;
    api.engine.pin(caller, session_id(&id)?, message_id, true).await?;
    Ok(Json(Pin { message_id, pinned: true }))
}

/// Take the pin of a message back
#[utoipa::path(delete, path = "/sessions/{id}/messages/{mid}/pin", tag = "messages",
    params(("id" = String, Path), ("mid" = String, Path)), responses((status = 204)))]
pub(super) async fn unpin(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, mid)): At<(String, String)>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<StatusCode> {
    api.engine.pin(caller, session_id(&id)?, message(&mid)?, false).await?;
    Ok(StatusCode::NO_CONTENT)
}
