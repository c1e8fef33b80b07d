//! What the tree holds: models, agents and tools.

use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ctx_api::http::{List, Named, ToolNamed};
use ctx_api::model;
use ctx_session::{Code, Refusal};

use super::Api;
use super::error::Answer;
use super::extract::Who;

/// Where models and agents are looked up. May read files.
pub trait Catalog: Send + Sync + 'static {
    fn models(&self) -> std::io::Result<Vec<String>>;
    fn agents(&self) -> std::io::Result<Vec<String>>;
    /// The tools that agents have.
    fn tools(&self) -> Vec<ToolNamed>;
    /// The agent of a project that a session has when none is named; None: there is no such project.
    fn primary(&self, project: &str) -> Option<String>;
    /// The primary group of a user of this machine. May ask another program.
    fn group_of(&self, uid: u32) -> Option<u32>;
    /// Opens the sockets of agents that came and closes those of agents that went, now.
    fn settle(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

async fn listed(
    catalog: Arc<dyn Catalog>,
    look: impl FnOnce(&dyn Catalog) -> std::io::Result<Vec<String>> + Send + 'static,
) -> Answer<Json<List<Named>>> {
    let found = tokio::task::spawn_blocking(move || look(&*catalog)).await;
    let broken = |error: &dyn std::fmt::Display| Refusal::new(Code::Eio, format!("the tree: {error}"));
    let names = found.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?;
    Ok(Json(List { items: names.into_iter().map(|name| Named { name }).collect(), next: None }))
}

/// The models there are, as `provider:model`
#[utoipa::path(get, path = "/models", tag = "tree", responses((status = 200, body = List<Named>)))]
pub(super) async fn models(State(api): State<Api>, _: Who) -> Answer<Json<List<Named>>> {
    let Json(mut list) = listed(api.catalog, |catalog| catalog.models()).await?;
    list.items.iter_mut().for_each(|model| model.name = model::in_api(&model.name));
    Ok(Json(list))
}

/// The agents there are; those of someone else's project are not
#[utoipa::path(get, path = "/agents", tag = "tree", responses((status = 200, body = List<Named>)))]
pub(super) async fn agents(State(api): State<Api>, Who(caller): Who) -> Answer<Json<List<Named>>> {
    let Json(mut list) = listed(api.catalog, |catalog| catalog.agents()).await?;
    list.items.retain(|agent| api.engine.sees_agent(caller, &agent.name));
    Ok(Json(list))
}

/// The tools that agents have, with the schemas of their arguments
#[utoipa::path(get, path = "/tools", tag = "tree", responses((status = 200, body = List<ToolNamed>)))]
pub(super) async fn tools(State(api): State<Api>, _: Who) -> Json<List<ToolNamed>> {
    Json(List { items: api.catalog.tools(), next: None })
}
