//! The arguments of the tools. Their descriptions are what a model reads, and teach it the tools.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use ctx_host::{CreateRequest, DestinationArgs, ExecRequest, Output, OutputRequest, ShellError};
use ctx_text::budget::{Budget, Grep, Keep, KeepMode};
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

/// How to reach the shell.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransportArg {
    /// A shell on this machine.
    #[default]
    Local,
    /// A shell on another machine: `host`.
    Ssh,
    /// A shell in a running container: `container`.
    Docker,
}

/// What becomes of ignored files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IgnoredArg {
    #[default]
    Exclude,
    Include,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateArgs {
    /// Where the shell runs. Default: local.
    pub transport: Option<TransportArg>,
    /// With ssh: a host name, or an alias of the ssh config.
    pub host: Option<String>,
    /// With ssh: who to log in as. Default: as the ssh config says.
    pub user: Option<String>,
    /// With ssh: default as the ssh config says.
    pub port: Option<u16>,
    /// With ssh: a private key in the operator's directory for keys. Default: the agent and the ssh config.
    pub key_path: Option<String>,
    /// With ssh: the user's password.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "ctx_api::http::secret")]
    pub password: Option<String>,
    /// With ssh: SHA256 fingerprint of the host's key; needed where the key is not known yet.
    pub fingerprint: Option<String>,
    /// With docker: the name or id of a running container.
    pub container: Option<String>,
    /// The directory to start in; `~` is the home directory. Default: the server's own directory; elsewhere, where a
    /// login starts.
    pub cwd: Option<String>,
    /// Environment variables to set besides the inherited ones.
    pub env: Option<BTreeMap<String, String>>,
    /// A directory whose files session_checkpoint saves and session_restore brings back. Must lie inside the directories
    /// that the operator allows (default: the server's own), and is never / or a home directory.
    pub workspace: Option<String>,
    /// Whether files that .gitignore names are saved too. Default: exclude.
    pub ignored: Option<IgnoredArg>,
    /// If given, only these programs may run (by name, e.g. ["git", "ls"]); at least one.
    #[schemars(length(min = 1))]
    pub allow: Option<Vec<String>>,
    /// Programs that must not run (by name, e.g. ["rm"]). A guard against accidents.
    pub deny: Option<Vec<String>>,
    /// What to show of each command's output unless session_exec says otherwise: an object like `budget` there.
    #[schemars(schema_with = "any_object")]
    pub output_budget: Option<BudgetArgs>,
    /// Seconds a command may take unless session_exec says otherwise. Default: 120; at most 21600.
    #[schemars(range(max = 21_600))]
    pub timeout_secs: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecArgs {
    /// The id that session_create returned.
    pub session_id: String,
    /// Shell code to run, one line or many. State carries over to the next command: cd, variables,
    /// functions. For a server or anything that does not end: `cmd >log 2>&1 &`.
    pub command: String,
    /// What to show of the output. The rest is not lost: read it with session_output.
    pub budget: Option<BudgetArgs>,
    /// Seconds before the command is stopped (exit code 124); the shell lives on. Fractions are allowed. Default:
    /// the shell's own, which is 120 unless session_create said otherwise; at most 21600.
    #[schemars(range(max = 21_600))]
    pub timeout_secs: Option<f64>,
    /// Text for the command's stdin. Without it there is no input: a program that asks for some sees its end.
    pub stdin: Option<String>,
    /// true: stderr goes into stdout, in the order of arrival.
    pub merge: Option<bool>,
}

/// A bound on what is shown of a command's output.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetArgs {
    /// Which lines to keep: e.g. {"mode":"tail","n":200} for the end of a build.
    pub keep: Option<KeepArgs>,
    /// Keep only lines that match: e.g. {"pattern":"error|warning","context":2}.
    pub grep: Option<GrepArgs>,
    /// At most this many characters per stream. Default: 30000 for the whole result.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_chars: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepArgs {
    /// Which end of the output: tail for the last lines, head for the first, head_tail for both.
    pub mode: KeepModeArg,
    /// Lines to keep; with head_tail, at each end.
    pub n: u64,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepModeArg {
    Tail,
    Head,
    HeadTail,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepArgs {
    /// A regular expression (Rust syntax: no look-around, no backreferences), at most 4096 bytes. Of a line that is
    /// longer than 64 KiB or than max_chars, a piece around the match is shown and marked.
    pub pattern: String,
    /// Lines of context around each match. Default: 0; at most 1000.
    #[schemars(range(max = 1_000))]
    pub context: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArgs {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionArgs {
    /// The id that session_create returned.
    pub session_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointArgs {
    /// The id that session_create returned.
    pub session_id: String,
    /// What you will know it by, at most 200 characters.
    pub label: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreArgs {
    /// The id that session_create returned.
    pub session_id: String,
    /// Which checkpoint, as session_checkpoint or session_checkpoints named it. Default: the newest one.
    pub checkpoint_id: Option<String>,
    /// true: only say what would change.
    pub dry_run: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamArg {
    #[default]
    Stdout,
    Stderr,
    /// What background jobs printed before this command, where late_output was cut.
    LateOutput,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputArgs {
    /// The id that session_create returned.
    pub session_id: String,
    /// The number of the command: `call` in the result of session_exec, or in session_list of one that still runs.
    pub call: u64,
    /// Which stream. Default: stdout. late_output is what background jobs printed before the command, where the result
    /// cut it off.
    pub stream: Option<StreamArg>,
    /// The byte to start at: 0, or `next_offset` of the page before. Instead of it: `line` or `tail`.
    pub offset: Option<u64>,
    /// The line to start at, counted from 1.
    pub line: Option<NonZeroU64>,
    /// Only the last so many lines.
    pub tail: Option<u64>,
    /// Bytes of a page. Default: 28672; at most 65536.
    #[schemars(range(min = 1, max = 65_536))]
    pub limit: Option<NonZeroU64>,
    /// Show only lines that match this regular expression (Rust syntax, at most 4096 bytes), each with its line number.
    /// Of a line that is longer than 64 KiB or than a page, a piece around the match, marked with its offset.
    pub grep: Option<String>,
    /// Lines around each match, with `-` behind their numbers. Default: 0; at most 1000.
    #[schemars(range(max = 1_000))]
    pub context: Option<u64>,
}

/// Bytes of a page at most: in JSON a byte may take six, an answer has the text twice, and it is at most a mebibyte.
pub(super) const PAGE_BYTES_MAX: u64 = 65_536;

/// The schema of an object that is described elsewhere: what `tools/list` says costs every conversation.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object"})
}

/// Seconds as people write them; what is no time at all becomes one that is refused.
fn seconds(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(if secs > 0.0 { Duration::MAX } else { Duration::ZERO })
}

impl From<BudgetArgs> for Budget {
    fn from(args: BudgetArgs) -> Budget {
        Budget {
            keep: args.keep.map(|keep| Keep {
                mode: match keep.mode {
                    KeepModeArg::Tail => KeepMode::Tail,
                    KeepModeArg::Head => KeepMode::Head,
                    KeepModeArg::HeadTail => KeepMode::HeadTail,
                },
                n: keep.n,
            }),
            grep: args
                .grep
                .map(|grep| Grep { pattern: grep.pattern, context: grep.context.unwrap_or_default() }),
            max_chars: args.max_chars,
        }
    }
}

impl TryFrom<CreateArgs> for CreateRequest {
    type Error = ShellError;

    fn try_from(args: CreateArgs) -> Result<CreateRequest, ShellError> {
        let transport = match args.transport.unwrap_or_default() {
            TransportArg::Local => "local",
            TransportArg::Ssh => "ssh",
            TransportArg::Docker => "docker",
        };
        let to = DestinationArgs {
            transport: Some(transport.to_owned()),
            host: args.host,
            user: args.user,
            port: args.port,
            key_path: args.key_path,
            password: args.password,
            fingerprint: args.fingerprint,
            container: args.container,
        };
        Ok(CreateRequest {
            to: to.try_into()?,
            cwd: args.cwd,
            env: args.env.unwrap_or_default().into_iter().collect(),
            allow: args.allow,
            deny: args.deny.unwrap_or_default(),
            output_budget: args.output_budget.map(Budget::from),
            timeout: args.timeout_secs.map(seconds),
            workspace: args.workspace,
            with_ignored: args.ignored.unwrap_or_default() == IgnoredArg::Include,
        })
    }
}

impl ExecArgs {
    /// The shell's id and what to run in it.
    pub fn split(self) -> (String, ExecRequest) {
        let request = ExecRequest {
            command: self.command,
            budget: self.budget.map(Budget::from),
            timeout: self.timeout_secs.map(seconds),
            stdin: self.stdin.map(String::into_bytes),
            merge: self.merge.unwrap_or(false),
        };
        (self.session_id, request)
    }
}

impl OutputArgs {
    /// The shell's id and what to read.
    pub fn split(self) -> (String, OutputRequest) {
        let stream = match self.stream.unwrap_or_default() {
            StreamArg::Stdout => Output::Stdout,
            StreamArg::Stderr => Output::Stderr,
            StreamArg::LateOutput => Output::Late,
        };
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let request = OutputRequest {
            call: self.call,
            stream,
            offset: self.offset.unwrap_or_default(),
            limit: self.limit.map(|limit| count(limit.get())),
            grep: self.grep,
            context: count(self.context.unwrap_or_default()),
            line: self.line.map(NonZeroU64::get),
            tail: self.tail,
        };
        (self.session_id, request)
    }
}
