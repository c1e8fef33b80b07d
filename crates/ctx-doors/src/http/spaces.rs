//! Spaces: where sessions are shared with the members of a group.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{List, NewSpace, Space};
use ctx_session::Name;

use super::Api;
use super::error::{Answer, nothing_there};
use super::extract::{At, Given, Who, name};

/// The spaces whose group the caller is in, by name
#[utoipa::path(get, path = "/spaces", tag = "spaces", responses((status = 200, body = List<Space>)))]
pub(super) async fn list(State(api): State<Api>, Who(caller): Who) -> Json<List<Space>> {
    let items = api.engine.spaces(caller).into_iter().map(shape).collect();
    Json(List { items, next: None })
}

/// Make a space; the group must be one that the caller is in, unless they are the daemon's owner
#[utoipa::path(post, path = "/spaces", tag = "spaces", request_body = NewSpace,
    responses((status = 201, body = Space)))]
pub(super) async fn add(
    State(api): State<Api>,
    Who(caller): Who,
    Given(new): Given<NewSpace>,
) -> Answer<(StatusCode, Json<Space>)> {
    let made = api.engine.add_space(caller, name("name", &new.name)?, new.group).await?;
    Ok((StatusCode::CREATED, Json(shape(made))))
}

/// Remove a space in which no session is
#[utoipa::path(delete, path = "/spaces/{space}", tag = "spaces", params(("space" = String, Path)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(api): State<Api>,
    Who(caller): Who,
    At(space): At<String>,
) -> Answer<StatusCode> {
    let space = Name::new(&space).map_err(|_| nothing_there("space"))?;
    api.engine.remove_space(caller, space).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shape(space: ctx_engine::Space) -> Space {
    let ctx_engine::Space { name, group, gid, created_by, created_at } = space;
    Space { name: name.to_string(), group, gid, created_by, created_at: created_at.as_millis() }
}
