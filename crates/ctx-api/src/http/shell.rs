//! The JSON of `/shells`: live command interpreters, the same ones that `/mcp` gives to MCP hosts.

use std::collections::BTreeMap;

use ctx_session::Ulid;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A live shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shell {
    /// The ULID of its log: what the routes take.
    #[schema(value_type = String)]
    pub id: Ulid,
    /// What `/mcp` calls it: `1_local`.
    pub session_id: String,
    /// The user it runs as.
    pub owner: u32,
    pub transport: String,
    pub cwd: String,
    pub idle_secs: u64,
    pub commands: u64,
    pub created_at: u64,
}

/// Reads a secret: an error about it does not repeat it.
pub fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Option::deserialize(from)? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(serde::de::Error::custom("it must be a string")),
    }
}

/// `POST /shells`. What is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewShell {
    /// `local`, `ssh` or `docker`. Default: `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// With `ssh`: a host name, or an alias of the ssh config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// With `ssh`: who to log in as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// With `ssh`: a private key in the operator's directory for keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_path: Option<String>,
    /// With `ssh`: the user's password.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "secret")]
    pub password: Option<String>,
    /// With `ssh`: SHA256 fingerprint of the host's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// With `docker`: the name or id of a running container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The directory to start in. Default: the operator's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables to set besides the inherited ones.
    #[schema(value_type = std::collections::HashMap<String, String>)]
    pub env: BTreeMap<String, String>,
    /// Programs that may run. Default: any that the operator's policy allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Programs that may not run.
    pub deny: Vec<String>,
    /// What to show of each command's output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_budget: Option<OutputBudget>,
    /// Seconds that a command may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
}

/// `POST /shells/:sid/exec`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellCommand {
    /// Shell code, one line or many. State carries over to the next command.
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<OutputBudget>,
    /// Seconds before the command is stopped (exit code 124); the shell lives on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// The command's stdin. Without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Both streams into stdout, in the order of arrival.
    #[serde(default)]
    pub merge: bool,
}

/// A bound on what is shown of a command's output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputBudget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<KeepLines>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grep: Option<GrepLines>,
    /// Characters per stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u64>,
}

/// Which lines to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepLines {
    pub mode: KeepLinesMode,
    pub n: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepLinesMode {
    Tail,
    Head,
    HeadTail,
}

/// Keep only lines that match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepLines {
    pub pattern: String,
    #[serde(default)]
    pub context: u64,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShellResult {
    /// Its number in the shell.
    pub call: u64,
    /// The command, redacted.
    pub command: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub duration_ms: u64,
    pub cwd: String,
    pub truncated: bool,
    pub timed_out: bool,
    pub shell_restarted: bool,
    pub late_output: String,
    /// What became of the streams, where something was cut or a budget asked for.
    #[schema(value_type = Option<Object>)]
    pub budget: Option<Value>,
    pub hint: Option<String>,
}
