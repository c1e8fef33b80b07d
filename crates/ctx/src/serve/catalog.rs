//! What the root's tree holds, for the API: agents, models, and which agent a project begins with.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use ctx_agent::Services;
use ctx_agent::tool::Tools;
use ctx_api::http::{Handed, ModelNamed, ProviderNamed, ToolNamed, Tried};
use ctx_doors::http::{Catalog, Told};
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::{Limits, Name, Refusal};
use tokio::sync::{mpsc, oneshot};

use super::doors::Errand;
use super::mcp::Servers;

pub(super) struct Tree {
    root: PathBuf,
    limits: Arc<Limits>,
    models: Arc<super::models::Root>,
    tools: ToolSources,
    to_agents: mpsc::Sender<Errand>,
}

/// Where tools come from besides ctx.
pub(super) struct ToolSources {
    pub services: Services,
    pub servers: Arc<Servers>,
}

impl Tree {
    pub fn new(
        root: &Path,
        limits: Limits,
        models: Arc<super::models::Root>,
        tools: ToolSources,
        to_agents: mpsc::Sender<Errand>,
    ) -> Tree {
        Tree { root: root.to_owned(), models, tools, limits: Arc::new(limits), to_agents }
    }

    fn project_of(&self, agent: &Name) -> Option<Name> {
        ctx_agent::describe::describe(&self.root, agent, &self.limits).ok().map(|found| found.project)
    }
}

impl Catalog for Tree {
    fn group_of(&self, uid: u32) -> Option<u32> {
        super::passwd::user(uid).map(|user| user.gid)
    }

    fn models(&self, uid: u32) -> io::Result<Vec<ModelNamed>> {
        self.models.list(uid)
    }

    fn providers(&self, uid: u32) -> Vec<ProviderNamed> {
        self.models.providers(uid)
    }

    fn take_variables(&self, uid: u32, variables: BTreeMap<String, String>) -> Told<'_, Handed> {
        self.tools.servers.look_again();
        Box::pin(self.models.take(uid, variables))
    }

    fn try_model(&self, uid: u32, model: String) -> Told<'_, Tried> {
        Box::pin(async move { self.models.try_out(uid, &model).await })
    }

    fn agents(&self) -> io::Result<Vec<String>> {
        Ok(ctx_agent::describe::agents(&self.root)?.iter().map(ToString::to_string).collect())
    }

    fn tools(&self, uid: u32) -> Vec<ToolNamed> {
        let own = Tools::all().specs().into_iter().map(|spec| ToolNamed {
            name: spec.name,
            description: spec.description,
            schema: spec.schema,
            server: None,
        });
        let of_servers = self.tools.services.mcp.iter().flat_map(|servers| servers.known(uid));
        let of_servers = of_servers.map(|(server, offered)| ToolNamed {
            name: format!("{server}.{}", offered.name),
            description: offered.description,
            schema: offered.schema,
            server: Some(server.to_string()),
        });
        own.chain(of_servers).collect()
    }

    fn take_server_variables(
        &self,
        uid: u32,
        variables: BTreeMap<String, String>,
    ) -> Result<Vec<String>, Refusal> {
        self.tools.servers.take(uid, variables)?;
        Ok(self.tools.servers.of(uid).keys().map(ToString::to_string).collect())
    }

    /// The project's only agent, or of several the one that ctx ships, or else the first.
    fn primary(&self, project: &str) -> Option<String> {
        let agents = ctx_agent::describe::agents(&self.root).ok()?;
        let of_project =
            |agent: &&Name| self.project_of(agent).is_some_and(|found| found.as_str() == project);
        let own: Vec<&Name> = agents.iter().filter(of_project).collect();
        let shipped = own.iter().find(|agent| agent.as_str() == crate::sessions::DEFAULT_AGENT);
        let found = shipped.or(own.first()).map(ToString::to_string);
        // The project is there also when its last agent is gone.
        found.or_else(|| (project == DEFAULT_PROJECT).then(|| crate::sessions::DEFAULT_AGENT.to_owned()))
    }

    fn is_open(&self, agent: &Name) -> bool {
        self.root.join(format!("agent/{agent}.sock")).exists()
    }

    fn sync_sockets(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let (done, looked) = oneshot::channel();
            // A daemon that stops opens no more sockets.
            if self.to_agents.send(done).await.is_ok() {
                let _ = looked.await;
            }
        })
    }
}
