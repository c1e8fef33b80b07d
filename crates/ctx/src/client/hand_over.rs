//! Hands the daemon what this shell knows of providers: the values of the variables that name them. They go over the daemon's
//! socket, which only this user's programs speak on as this user, and are written nowhere.

use std::collections::BTreeMap;

use ctx_agent::project::McpServer;
use ctx_api::http::{Handed, List, Named, Variables};
use ctx_session::{Code, Name};

use super::Api;
use crate::config::{self, Environment, FileArg};
use crate::failure::Failure;
use crate::root::Root;
use crate::{here, output};

/// Hands over what the MCP servers are given that the config file and this directory's project file name. A server without its
/// value says so when it is started.
fn hand_over_to_servers(root: &Root, configured: &BTreeMap<Name, McpServer>) -> Result<(), Failure> {
    let project = here::mcp_servers(&root.path);
    let servers = configured.values().chain(project.values());
    let variables: BTreeMap<String, String> = servers
        .flat_map(McpServer::variables)
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .filter(|(_, value)| !value.trim().is_empty())
        .collect();
    if variables.is_empty() { Ok(()) } else { tell_of_servers(root, variables) }
}

/// Hands these over; the daemon looks at the config file again.
pub fn tell_of_servers(root: &Root, variables: BTreeMap<String, String>) -> Result<(), Failure> {
    let answer: Result<List<Named>, Failure> =
        Api::new(root).put("/mcp-servers/variables", &Variables { variables });
    answer.map(|_| ())
}

/// Hands over what there is, and says which providers the daemon knows now.
pub fn hand_over(root: &Root) -> Result<Handed, Failure> {
    // A file that cannot be read is the daemon's to complain of.
    let loaded = config::load(&FileArg::of_environment(), &Environment::of_process());
    let config::Config { models: configured, mcp, .. } =
        loaded.map(|loaded| loaded.config).unwrap_or_default();
    hand_over_to_servers(root, &mcp)?;
    let value = |name: String| {
        let value = std::env::var(&name).ok().filter(|value| !value.trim().is_empty())?;
        Some((name, value))
    };
    let variables: BTreeMap<String, String> =
        config::provider_variables(&configured).into_iter().filter_map(value).collect();
    Api::new(root).put("/providers/variables", &Variables { variables })
}

/// Why no model is there for who names none.
pub fn no_main(handed: &Handed) -> Option<Failure> {
    let problem = handed.problem.as_ref()?;
    let failure = Failure::new(handed.code.unwrap_or(Code::Einval), output::plain(problem));
    Some(match handed.code {
        Some(Code::Ehostdown) => {
            failure.hint("check that the provider is up, or name another model with --model")
        }
        Some(_) | None => failure.hint("name one with `--model PROVIDER:MODEL`; `ctx model ls` lists models"),
    })
}
