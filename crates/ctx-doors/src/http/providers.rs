//! Providers of models: which there are, the variables that a client hands over, and whether a model answers. The variables of
//! MCP servers too.

use axum::Extension;
use axum::extract::State;
use ctx_api::http::{Handed, List, Named, ProviderNamed, Tried, TryModel, Variables};
use ctx_session::{Code, Refusal};

use super::Api;
use super::error::Answer;
use super::extract::{Given, Who};
use super::gate::Peer;
use super::json::Json;

/// The providers that the caller may ask, without their keys
#[utoipa::path(get, path = "/providers", tag = "tree", responses((status = 200, body = List<ProviderNamed>)))]
pub(super) async fn list(State(api): State<Api>, Who(caller): Who) -> Json<List<ProviderNamed>> {
    Json(List { items: api.catalog.providers(caller.uid), next: None })
}

/// Hand over environment variables of providers, such as `OPENAI_API_KEY`. On the Unix socket only; kept in memory, for the caller alone
#[utoipa::path(put, path = "/providers/variables", tag = "tree", request_body = Variables,
    responses((status = 200, body = Handed)))]
pub(super) async fn take(
    State(api): State<Api>,
    Who(caller): Who,
    peer: Option<Extension<Peer>>,
    Given(given): Given<Variables>,
) -> Answer<Json<Handed>> {
    if peer.is_none() {
        let message =
            "keys are taken on the daemon's own socket only; use `ctx` on its machine, or a config file";
        return Err(Refusal::new(Code::Eacces, message).into());
    }
    Ok(Json(api.catalog.take_variables(caller.uid, given.variables).await?))
}

/// Hand over environment variables that MCP servers are given. On the Unix socket only; kept in memory, for the caller alone. The
/// answer has the servers of the caller's config file, which is read again
#[utoipa::path(put, path = "/mcp-servers/variables", tag = "tree", request_body = Variables,
    responses((status = 200, body = List<Named>)))]
pub(super) async fn take_for_servers(
    State(api): State<Api>,
    Who(caller): Who,
    peer: Option<Extension<Peer>>,
    Given(given): Given<Variables>,
) -> Answer<Json<List<Named>>> {
    if peer.is_none() {
        let message = "variables are taken on the daemon's own socket only; use `ctx` on its machine";
        return Err(Refusal::new(Code::Eacces, message).into());
    }
    let catalog = api.catalog.clone();
    let take = move || catalog.take_server_variables(caller.uid, given.variables);
    let broken = |error: tokio::task::JoinError| Refusal::new(Code::Eio, error.to_string());
    let names = tokio::task::spawn_blocking(take).await.map_err(broken)??;
    Ok(Json(List { items: names.into_iter().map(|name| Named { name }).collect(), next: None }))
}

/// Ask a model for a short answer
#[utoipa::path(post, path = "/models/test", tag = "tree", request_body = TryModel, responses((status = 200, body = Tried)))]
pub(super) async fn try_out(
    State(api): State<Api>,
    Who(caller): Who,
    Given(asked): Given<TryModel>,
) -> Answer<Json<Tried>> {
    Ok(Json(api.catalog.try_model(caller.uid, asked.model).await?))
}
