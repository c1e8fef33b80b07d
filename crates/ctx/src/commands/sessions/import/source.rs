//! Where other agents' sessions are, and which of them are wanted.

use std::io;
use std::path::{Path, PathBuf};

use ctx_interop::store::{self, Entry, Store};
use ctx_interop::{Agent, Transcript};
use ctx_session::{Code, Timestamp};

use super::newest;
use crate::failure::Failure;
use crate::words;

/// Which sessions are wanted.
pub struct Wish {
    pub since: Option<Timestamp>,
    pub dir: Option<PathBuf>,
}

impl Wish {
    pub fn wants(&self, found: &Transcript) -> bool {
        let in_time = self.since.is_none_or(|since| newest(found).is_some_and(|time| time >= since));
        let in_dir = |dir: &PathBuf| found.cwd.as_deref().is_some_and(|cwd| Path::new(cwd).starts_with(dir));
        in_time && self.dir.as_ref().is_none_or(in_dir)
    }
}

/// A path that does not depend on where the command was started.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(path.display(), error))
}

/// The directories to look into, for each agent.
pub fn places(agents: &[Agent], path: Option<&Path>) -> Result<Vec<(Agent, PathBuf)>, Failure> {
    if let Some(path) = path {
        let path = absolute(path)?;
        if !path.is_dir() {
            let message = format!("{} is no directory", path.display());
            return Err(Failure::new(Code::Einval, message)
                .hint("--path is a home directory, or the directory that an agent keeps its sessions in"));
        }
        return Ok(agents.iter().map(|agent| (*agent, path.clone())).collect());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Failure::new(Code::Einval, "HOME is not set; use --path"))?;
    let place = |agent: &Agent| {
        // Where the agent itself was told to keep them.
        let variable = match agent {
            Agent::Codex => Some("CODEX_HOME"),
            Agent::Claude => Some("CLAUDE_CONFIG_DIR"),
            Agent::Opencode | Agent::Goose => Some("XDG_DATA_HOME"),
            Agent::Gemini | Agent::Aider => None,
        };
        let set = variable.and_then(std::env::var_os).map(PathBuf::from).filter(|dir| dir.is_dir());
        (*agent, set.unwrap_or_else(|| home.clone()))
    };
    Ok(agents.iter().map(place).collect())
}

/// A store and its sessions.
pub struct Source {
    store: Store,
}

impl Source {
    pub fn list(agent: Agent, dir: &Path) -> Source {
        Source { store: store::list(agent, dir, words::now()) }
    }

    pub fn agent(&self) -> Agent {
        self.store.agent
    }

    pub fn root(&self) -> &Path {
        &self.store.root
    }

    pub fn entries(&self) -> &[Entry] {
        &self.store.entries
    }

    pub fn failures(&self) -> &[(PathBuf, String)] {
        &self.store.failures
    }

    pub fn bytes(&self) -> u64 {
        self.store.entries.iter().map(|entry| entry.size).sum()
    }

    pub fn read(&self, entry: &Entry) -> io::Result<Transcript> {
        self.store.read(entry)
    }
}
