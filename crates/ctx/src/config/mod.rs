//! The configuration: defaults, then one file, then the environment, parsed once into a plain struct.
//!
//! Every value has its origin. An unknown key is an error that names the most similar known one. The process environment
//! is passed in as an [`Environment`].

mod file;
mod keys;
mod load;
mod mcp;
mod providers;
mod template;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ctx_agent::project::McpServer;
use ctx_session::{Limits, Name};
use serde::{Deserialize, Serialize};

pub use load::{Setting, load, mcp_of, places};
pub use providers::{Provider, variables as provider_variables};
pub use template::template;

/// Everything that can be configured. Sections and keys are those of `config.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Whether a client starts a daemon when it needs one.
    pub autostart: bool,
    pub cage: CageConfig,
    pub import: ImportConfig,
    pub limits: Limits,
    pub log: Log,
    /// `[mcp.<server>]`
    pub mcp: BTreeMap<Name, McpServer>,
    /// `[models.<provider>]`
    pub models: BTreeMap<String, Provider>,
    pub serve: Serve,
    pub shells: Shells,
    pub snapshots: SnapshotsConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            autostart: true,
            cage: CageConfig::default(),
            import: ImportConfig::default(),
            limits: Limits::default(),
            log: Log::default(),
            mcp: BTreeMap::new(),
            models: BTreeMap::new(),
            serve: Serve::default(),
            shells: Shells::default(),
            snapshots: SnapshotsConfig::default(),
        }
    }
}

/// `[cage]`: whether agents' commands run in cages, and what those have besides the system and the user's toolchains.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CageConfig {
    pub mode: CageMode,
    /// Mounts as `--mount` takes them, with spaces between them.
    pub mounts: String,
    /// Directories before all others in `PATH`, with colons between them.
    pub path: String,
    /// Names of variables that are passed on, with spaces between them.
    pub env: String,
    pub net: ctx_cage::Net,
}

/// Whether there are cages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CageMode {
    #[default]
    On,
    /// Commands run with all the rights of the session's owner.
    Off,
}

/// `[import]`: sessions of other agents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportConfig {
    /// The agents whose sessions the daemon keeps up with, with spaces between them.
    pub follow: String,
}

/// `[log]`: what the daemon says of its work, on stderr.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub format: LogFormat,
    pub level: String,
}

impl Default for Log {
    fn default() -> Log {
        Log { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// `[serve]`: the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// The directory of the project `default`; without it, where the daemon was started.
    pub workspace: Option<PathBuf>,
    /// Where the HTTP API listens.
    pub listen: Option<String>,
}

/// `[shells]`: what `ctx mcp` gives to agents. A path that is empty is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shells {
    /// Maximum number of open shells of one server.
    pub max: NonZeroU32,
    /// A shell that had no command for so long is closed.
    pub idle_secs: NonZeroU32,
    /// Which programs may run.
    pub policy_file: Option<PathBuf>,
    /// What runs as a shell; bash, else sh, where none is named.
    pub program: Option<PathBuf>,
    /// Where workspaces may lie, with colons between the directories; without any, the server's own.
    pub workspace_roots: String,
    /// The same on other machines and in containers; without any, the home directory there.
    pub remote_workspace_roots: String,
    /// Where keys for other machines lie; `.ssh` in the home directory where none is named.
    pub key_dir: Option<PathBuf>,
    /// The containers that may be used; all, where there is no list.
    pub containers: Option<Vec<String>>,
    pub container_engine: Option<PathBuf>,
    pub ssh: Ssh,
}

/// `[shells.ssh]`: shells on other machines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// The hosts that may be gone to; all, where there is no list.
    pub hosts: Option<Vec<String>>,
    pub users: Option<Vec<String>>,
    pub first_use: FirstUse,
    pub config: Option<PathBuf>,
}

/// What to do with a host whose key is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstUse {
    #[default]
    Refuse,
    Accept,
}

impl Default for Shells {
    fn default() -> Shells {
        const MAX: NonZeroU32 = NonZeroU32::new(64).unwrap();
        const IDLE_SECS: NonZeroU32 = NonZeroU32::new(30 * 60).unwrap();
        Shells {
            max: MAX,
            idle_secs: IDLE_SECS,
            policy_file: None,
            program: None,
            workspace_roots: String::new(),
            remote_workspace_roots: String::new(),
            key_dir: None,
            containers: None,
            container_engine: None,
            ssh: Ssh::default(),
        }
    }
}

/// `[snapshots]`: saved states of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotsConfig {
    /// Mebibytes that all snapshots may take.
    pub budget_mib: NonZeroU32,
}

impl Default for SnapshotsConfig {
    fn default() -> SnapshotsConfig {
        const BUDGET_MIB: NonZeroU32 = NonZeroU32::new(10 << 10).unwrap();
        SnapshotsConfig { budget_mib: BUDGET_MIB }
    }
}

/// `--config`, for the commands that take it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FileArg {
    /// The config file [default: $XDG_CONFIG_HOME/ctx/config.toml, else /etc/ctx/config.toml]
    #[arg(long = "config", value_name = "FILE", env = "CTX_CONFIG", hide_env_values = true, global = true)]
    pub file: Option<PathBuf>,
}

impl FileArg {
    /// What `CTX_CONFIG` says, for commands without the option.
    pub fn of_environment() -> FileArg {
        FileArg { file: std::env::var_os("CTX_CONFIG").filter(|path| !path.is_empty()).map(Into::into) }
    }
}

/// The environment variables that matter here: those that begin with `CTX_`, and two that lead to the file.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    config_home: Option<PathBuf>,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Environment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        let variables = std::env::vars_os().filter_map(text).filter(|(name, _)| name.starts_with("CTX_"));
        let config_home = crate::root::xdg("XDG_CONFIG_HOME", ".config").ok();
        Environment { variables: variables.collect(), config_home }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable { name: String },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Variable { name } => write!(f, "${name}"),
        }
    }
}
