//! What the tree holds: models, agents and tools.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use ctx_api::http::{Handed, List, ModelNamed, Named, ProviderNamed, ToolNamed, Tried};
use ctx_api::model;
use ctx_session::{Code, Name, Refusal};

use super::Api;
use super::error::Answer;
use super::extract::Who;
use super::json::Json;

/// What a method of the catalog returns that takes its time.
pub type Told<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// Where models and agents are looked up. May read files.
pub trait Catalog: Send + Sync + 'static {
    /// The models that a user may use; names as in the tree.
    fn models(&self, uid: u32) -> std::io::Result<Vec<ModelNamed>>;
    /// The providers that a user may ask.
    fn providers(&self, uid: u32) -> Vec<ProviderNamed>;
    /// Keeps variables of providers for a user, in memory alone.
    fn take_variables(&self, uid: u32, variables: BTreeMap<String, String>) -> Told<'_, Handed>;
    /// Asks a model for a short answer.
    fn try_model(&self, uid: u32, model: String) -> Told<'_, Tried>;
    fn agents(&self) -> std::io::Result<Vec<String>>;
    /// The tools that agents have, with those of a user's MCP servers that are there now.
    fn tools(&self, uid: u32) -> Vec<ToolNamed>;
    /// Keeps variables for a user's MCP servers, in memory alone; the servers that the user has besides those of projects. May
    /// read files.
    fn take_server_variables(
        &self,
        uid: u32,
        variables: BTreeMap<String, String>,
    ) -> Result<Vec<String>, Refusal>;
    /// The agent of a project that a session has when none is named; None: there is no such project.
    fn primary(&self, project: &str) -> Option<String>;
    /// The primary group of a user of this machine. May ask another program.
    fn group_of(&self, uid: u32) -> Option<u32>;
    /// Whether an agent's socket is there.
    fn is_open(&self, agent: &Name) -> bool;
    /// Opens the sockets of agents that came and closes those of agents that went, now.
    fn sync_sockets(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

async fn listed<T: Send + 'static>(
    catalog: Arc<dyn Catalog>,
    look: impl FnOnce(&dyn Catalog) -> std::io::Result<Vec<T>> + Send + 'static,
) -> Answer<Vec<T>> {
    let found = tokio::task::spawn_blocking(move || look(&*catalog)).await;
    let broken = |error: &dyn std::fmt::Display| Refusal::new(Code::Eio, format!("the tree: {error}"));
    Ok(found.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?)
}

/// The models there are, as `provider:model`
#[utoipa::path(get, path = "/models", tag = "tree", responses((status = 200, body = List<ModelNamed>)))]
pub(super) async fn models(State(api): State<Api>, Who(caller): Who) -> Answer<Json<List<ModelNamed>>> {
    let mut items = listed(api.catalog.clone(), move |catalog| catalog.models(caller.uid)).await?;
    items.iter_mut().for_each(|model| model.name = model::in_api(&model.name));
    Ok(Json(List { items, next: None }))
}

/// The agents there are; those of someone else's project are not
#[utoipa::path(get, path = "/agents", tag = "tree", responses((status = 200, body = List<Named>)))]
pub(super) async fn agents(State(api): State<Api>, Who(caller): Who) -> Answer<Json<List<Named>>> {
    let names = listed(api.catalog.clone(), |catalog| catalog.agents()).await?;
    let seen = names.into_iter().filter(|name| api.engine.sees_agent(caller, name));
    Ok(Json(List { items: seen.map(|name| Named { name }).collect(), next: None }))
}

/// The tools that agents have, with the schemas of their arguments, and those of the caller's MCP servers that are there now
#[utoipa::path(get, path = "/tools", tag = "tree", responses((status = 200, body = List<ToolNamed>)))]
pub(super) async fn tools(State(api): State<Api>, Who(caller): Who) -> Json<List<ToolNamed>> {
    Json(List { items: api.catalog.tools(caller.uid), next: None })
}
