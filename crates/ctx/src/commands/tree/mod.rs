//! Commands on the objects of the tree: finding them, reading and changing their control files.

pub mod agent;
pub mod cat;
pub mod set;
pub mod tool;
pub mod validate_name;
pub mod which;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ctx_agent::describe::agents;
use ctx_agent::model::Models;
use ctx_agent::object::Thing;
use ctx_agent::tool::Tools;
use ctx_session::subagent::DISPATCH;
use ctx_session::{Code, Limits, Name, Refusal};

use crate::failure::Failure;
use crate::root::Root;
use crate::sessions;

/// An object that was found: an executable of the path.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// What it is in this root; None: a user's own tool, or a program elsewhere.
    thing: Option<Thing>,
}

impl Found {
    /// Where its control files are. Links are followed first.
    fn control_dir(&self, root: &Root) -> PathBuf {
        match &self.thing {
            Some(thing) => root.path.join(thing.control_dir()),
            None => {
                let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(".d");
                path.with_file_name(name)
            }
        }
    }
}

/// The directories that objects are looked for in: those of `CTX_PATH`, or the user's own and then the tree's.
fn path_of(root: &Root) -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("CTX_PATH").filter(|path| !path.is_empty()) {
        return std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    }
    let home = root.path.join(format!("home/{}", sessions::own_uid()));
    let own = ["tool", "model"].map(|dir| home.join(dir));
    own.into_iter().chain(["tool", "agent", "model"].map(|dir| root.path.join(dir))).collect()
}

/// The first object of this name in the path; None: there is none.
fn find(root: &Root, name: &str) -> Result<Option<Found>, Failure> {
    for part in name.splitn(2, '/') {
        Name::new(part)
            .map_err(|rule| Failure::new(Code::Einval, format!("`{name}` names no object: {rule}")))?;
    }
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let found = path_of(root).into_iter().map(|dir| dir.join(name)).find(is_executable);
    Ok(found.map(|path| {
        let own_root = root.path.canonicalize().unwrap_or_else(|_| root.path.clone());
        let thing = Thing::at(&path).ok().filter(|(at, _)| *at == own_root).map(|(_, thing)| thing);
        Found { path, thing }
    }))
}

/// The same where there has to be one.
fn must_find(root: &Root, name: &str) -> Result<Found, Failure> {
    find(root, name)?.ok_or_else(|| no_object(root, name))
}

fn no_object(root: &Root, name: &str) -> Failure {
    if name == DISPATCH {
        let message =
            format!("the tool `{name}` is made of a project's subagents, so it is no object of the tree");
        return Failure::new(Code::Enoent, message).hint("an agent calls it; `ctx send` talks with one");
    }
    Failure::new(Code::Enoent, format!("there is no object `{name}`")).did_you_mean(name, known(root)).hint("`ctx agent ls`, `ctx model ls` and `ctx tool ls` show what there is; CTX_PATH says where they are looked for")
}

/// The names of the agents, models and tools of the root. What cannot be read is left out.
pub fn known(root: &Root) -> impl Iterator<Item = String> {
    let agents = agents(&root.path).unwrap_or_default();
    let models = Models::new(&root.path, Limits::default().into()).list().unwrap_or_default();
    let tools = Tools::all().specs().into_iter().map(|tool| tool.name);
    let named = agents.into_iter().map(|agent| agent.to_string());
    named.chain(models.into_iter().map(|model| model.to_string())).chain(tools)
}

/// An agent that has to be there.
fn must_be_agent(root: &Root, name: &Name) -> Result<(), Failure> {
    let agents = agents(&root.path).map_err(|error| Failure::io(root.path.display(), error))?;
    if agents.contains(name) {
        return Ok(());
    }
    Err(Failure::new(Code::Enoent, format!("no agent `{name}`"))
        .did_you_mean(name.as_str(), agents.iter().map(Name::as_str))
        .hint("`ctx agent ls` lists the agents"))
}

/// A refusal of the tree's own files.
fn refused(refusal: Refusal) -> Failure {
    Failure::from(refusal)
}

fn agent_name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(|rule| Failure::new(Code::Einval, format!("`{text}`: {rule}")))
}
