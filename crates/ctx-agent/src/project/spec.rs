//! What a project file says, once it is found right. Stored in a session's snapshot, so fields may be added here but
//! not taken away.

use std::collections::BTreeMap;

use ctx_cage::{Mount, Net};
use ctx_host::SshRequest;
use ctx_session::Name;
use ctx_session::project::Compaction;
use ctx_session::record::Redact;
use serde::{Deserialize, Serialize};

/// In the `tools` of an agent: all of the session owner's own.
pub const OWN: &str = "own";

/// The tools that an agent can be given; those of MCP servers (`server.tool`) come besides.
pub const TOOLS: &[&str] = &[
    "fs.read",
    "fs.list",
    "fs.stat",
    "fs.write",
    "fs.edit",
    "fs.search",
    "output.read",
    "shell.exec",
    "shell.output",
    "shell.interrupt",
    "terminal.open",
    "terminal.write",
    "terminal.read",
    "terminal.close",
    "agent.dispatch",
    "checkpoint",
    "todo",
    "issue",
];

/// A project file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectSpec {
    pub project: Name,
    pub primary: Primary,
    #[serde(default)]
    pub subagents: BTreeMap<Name, Subagent>,
    /// Lines of a policy, each checked.
    #[serde(default)]
    pub policy: Vec<String>,
    #[serde(default)]
    pub mcp: BTreeMap<Name, McpServer>,
    /// Machines that `shell.exec` may be asked to run a command on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<Name, Host>,
    #[serde(default)]
    pub limits: ProjectLimits,
    #[serde(default, skip_serializing_if = "Cage::is_empty")]
    pub cage: Cage,
}

/// The agent that a session of the project talks to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Primary {
    pub name: Name,
    /// `provider:model`, `provider/model` or an alias.
    pub model: String,
    /// The path of a file, as written.
    #[serde(default)]
    pub prompt: Option<String>,
    /// None: all that there are.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    #[serde(default)]
    pub compaction: Compaction,
    /// None: the daemon's limit.
    #[serde(default)]
    pub max_steps: Option<u32>,
    /// None: on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redact: Option<Redact>,
}

/// An agent that a run starts for a part of its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subagent {
    pub plays: Plays,
    /// It works in a terminal of its own.
    #[serde(default)]
    pub terminal: bool,
    #[serde(default)]
    pub cage: Cage,
}

/// Who plays a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plays {
    Model {
        model: String,
        #[serde(default)]
        prompt: Option<String>,
    },
    /// A program that speaks ACP.
    Acp { command: Vec<String> },
}

/// What is asked of a cage. What is not named is as it is elsewhere: in the project's cage, in the config file, by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cage {
    #[serde(default)]
    pub net: Option<Net>,
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    #[serde(default)]
    pub walltime_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// The size of `/tmp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmp_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Directories inside that come first in `PATH`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether `.git` can be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
}

impl Cage {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Cage::default()
    }
}

/// What may be done with a project's `.git`, whose hooks and settings run outside of the cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Git {
    Ro,
    Rw,
}

/// An MCP server, whose tools an agent is given as `<server>.<tool>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    /// The program and its arguments; empty: the server is at `url`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What the program finds in its environment besides what every cage has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Given>,
    /// What is sent with every request to `url`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Given>,
    #[serde(default, skip_serializing_if = "Cage::is_empty")]
    pub cage: Cage,
}

/// A value as the file has it, or the variable of the owner's shell that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Given {
    Text(String),
    FromEnv {
        from_env: String,
        /// What stands before the value, such as `Bearer `.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
    },
}

impl McpServer {
    /// The variables of the owner's shell that it needs.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.env.values().chain(self.headers.values()).filter_map(|given| match given {
            Given::Text(_) => None,
            Given::FromEnv { from_env, .. } => Some(from_env.as_str()),
        })
    }
}

/// A machine, and which commands may run there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `[user@]host[:port]`, or an alias of the owner's ssh config.
    pub ssh: String,
    /// Lines of a policy, each checked. What no line matches is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<String>,
}

impl Host {
    /// What ssh is asked for.
    pub fn request(&self) -> SshRequest {
        let (user, place) = match self.ssh.rsplit_once('@') {
            Some((user, place)) => (Some(user.to_owned()), place),
            None => (None, self.ssh.as_str()),
        };
        // An address of several colons has no port.
        let port = place.split_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = port.map_or((place, None), |(host, port)| (host, Some(port)));
        SshRequest { host: host.to_owned(), user, port, ..SshRequest::default() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectLimits {
    /// Sessions of the project that may run at once; None: the daemon's limit.
    #[serde(default)]
    pub running_per_project: Option<u32>,
}

impl ProjectSpec {
    /// The prompt files it names, with whose each is.
    pub fn prompts(&self) -> Vec<(String, &str)> {
        let own = self.primary.prompt.as_deref().map(|path| ("primary".to_owned(), path));
        let of_subagents = self.subagents.iter().filter_map(|(name, subagent)| match &subagent.plays {
            Plays::Model { prompt, .. } => prompt.as_deref().map(|path| (name.to_string(), path)),
            Plays::Acp { .. } => None,
        });
        own.into_iter().chain(of_subagents).collect()
    }
}
