//! What a project file says, once it is found right. Stored in a session's snapshot, so fields may be added here but
//! not taken away.

use std::collections::BTreeMap;

use ctx_session::Name;
use ctx_session::project::Compaction;
use serde::{Deserialize, Serialize};

/// The tools that an agent can be given; those of MCP servers (`server.tool`) come besides.
pub const TOOLS: &[&str] = &[
    "fs.read",
    "fs.list",
    "fs.write",
    "fs.edit",
    "fs.search",
    "shell.exec",
    "terminal.open",
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
    #[serde(default)]
    pub limits: ProjectLimits,
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

/// In what a subagent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cage {
    #[serde(default)]
    pub net: Net,
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    #[serde(default)]
    pub walltime_ms: Option<u64>,
}

/// What network a cage has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    #[default]
    None,
    Host,
}

/// A source of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    pub command: Vec<String>,
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
