//! `shell.exec`, `shell.output`, `shell.interrupt`: a shell of the session's own, in its cage.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctx_host::{ExecRequest, ExecResult, Output as Stream, OutputRequest};
use ctx_session::record::ToolSummary;
use ctx_session::{Code, Name, Refusal};
use ctx_text::budget::Budget;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Output, Plan, PlanHost, Scope, Tool, ToolError, Work, arguments, blocking};
use crate::control::policy::{Effects, Policy, Rule, Verdict};
use crate::model::ToolSpec;
use crate::project::Host;
use crate::shells::{AgentShells, ShellKey, ShellWant};

/// The shell that a tool works in.
#[derive(Debug, Clone)]
pub struct ShellOf {
    pub key: ShellKey,
    /// In what it runs, or why it does not.
    pub want: Result<ShellWant, Refusal>,
    /// The machines that a command may be run on instead.
    pub hosts: BTreeMap<Name, Host>,
    /// The session's owner and their home: whose ssh goes there.
    pub owner: u32,
    pub home: Option<PathBuf>,
}

impl ShellOf {
    /// The machine that a call names.
    fn host(&self, named: Option<&str>) -> Result<Option<(&Name, &Host)>, ToolError> {
        let Some(named) = named else { return Ok(None) };
        let found = self.hosts.iter().find(|(name, _)| name.as_str() == named);
        found.map(Some).ok_or_else(|| {
            let known: Vec<&str> = self.hosts.keys().map(Name::as_str).collect();
            let known =
                if known.is_empty() { String::new() } else { format!(" (it lists {})", known.join(", ")) };
            let message = format!(
                "the project file lists no host `{named}`{known}; leave `host` out to run the command here"
            );
            ToolError::new(Code::Enoent, message)
        })
    }

    /// A shell there. ssh runs as the session's owner, outside of any cage: it needs the owner's keys.
    fn want_on(&self, name: &Name, host: &Host) -> ShellWant {
        let host = Some((name.clone(), host.request()));
        ShellWant { cage: None, uid: self.owner, cwd: PathBuf::from("/"), home: self.home.clone(), host }
    }
}

/// What holds for commands on another machine: what the agent's policy denies is denied there too, then come the rules of the
/// host, and what no rule matches is asked. What the agent may do in its cage says nothing about another machine.
fn policy_on(own: &Policy, host: &Host) -> Result<Policy, ToolError> {
    let denied = own.rules.iter().filter(|rule| rule.verdict == Verdict::Deny).cloned();
    // Each line was found right when the file was read.
    let rules: Result<Vec<Rule>, String> = host.policy.iter().map(|line| line.parse()).collect();
    let rules = rules.map_err(|problem| ToolError::new(Code::Einval, problem))?;
    Ok(Policy { rules: denied.chain(rules).collect() })
}

pub const SHELL_EXEC: &str = "shell.exec";

#[derive(Debug)]
pub struct ShellExec;

#[derive(Debug)]
pub struct ShellOutput;

#[derive(Debug)]
pub struct ShellInterrupt;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecInput {
    command: String,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    timeout_secs: Option<f64>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    budget: Option<Budget>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputInput {
    call: u64,
    #[serde(default)]
    stream: Option<StreamWord>,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    grep: Option<String>,
    #[serde(default)]
    host: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StreamWord {
    Stdout,
    Stderr,
    LateOutput,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterruptInput {
    #[serde(default)]
    host: Option<String>,
}

impl Tool for ShellExec {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: SHELL_EXEC.to_owned(),
            description:
                "Runs a command in your shell, which keeps its state between calls. Only /work, /tmp and \
                          /home/agent can be written; there is no network unless the operator allows it."
                    .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout_secs": {"type": "number", "exclusiveMinimum": 0, "description": "default 120"},
                    "stdin": {"type": "string", "description": "what the command reads; nothing by default"},
                    "budget": {
                        "type": "object",
                        "description": "what to show: {keep: {mode: tail|head|head_tail, n}, grep: {pattern, context}, max_chars}"
                    },
                    "host": {"type": "string", "description": "a host that the project file lists; none: here"}
                },
                "required": ["command"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: ExecInput = arguments(&self.spec(), input)?;
        let on = scope.shell.host(input.host.as_deref())?;
        let host = on
            .map(|(name, host)| {
                Ok::<_, ToolError>(PlanHost { name: name.clone(), policy: policy_on(&scope.policy, host)? })
            })
            .transpose()?;
        let want = match on {
            Some((name, host)) => Ok(scope.shell.want_on(name, host)),
            None => scope.shell.want.clone(),
        };
        let timeout = input.timeout_secs.map(Duration::try_from_secs_f64).transpose();
        let timeout =
            timeout.map_err(|_| ToolError::new(Code::Einval, "timeout_secs must be a number above 0"))?;
        let subjects = vec![input.command.clone()];
        let request = ExecRequest {
            command: input.command,
            budget: input.budget,
            timeout,
            stdin: input.stdin.map(String::into_bytes),
            merge: false,
        };
        let scope = Arc::clone(scope);
        let work = Work::Do(Box::pin(async move {
            let result = shells(&scope)?.exec(scope.shell.key, &want?, request).await?;
            Ok(shown(&result))
        }));
        Ok(Plan { host, ..Plan::new(subjects, work) })
    }
}

impl Tool for ShellOutput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "shell.output".to_owned(),
            description:
                "Reads the whole output of an earlier command of your shell, page by page or by pattern."
                    .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "call": {"type": "integer", "minimum": 1, "description": "the number that shell.exec gave"},
                    "stream": {"enum": ["stdout", "stderr", "late_output"], "description": "default stdout"},
                    "offset": {"type": "integer", "minimum": 0, "description": "in bytes"},
                    "limit": {"type": "integer", "minimum": 1, "description": "in bytes"},
                    "grep": {"type": "string", "description": "only lines that match this regular expression"},
                    "host": {"type": "string", "description": "where the command ran; none: here"}
                },
                "required": ["call"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: OutputInput = arguments(&self.spec(), input)?;
        let request = OutputRequest {
            call: input.call,
            stream: match input.stream.unwrap_or(StreamWord::Stdout) {
                StreamWord::Stdout => Stream::Stdout,
                StreamWord::Stderr => Stream::Stderr,
                StreamWord::LateOutput => Stream::Late,
            },
            offset: input.offset,
            limit: input.limit,
            grep: input.grep,
            context: 0,
            line: None,
            tail: None,
        };
        let (scope, call) = (Arc::clone(scope), input.call);
        let work = blocking(move || {
            let host = scope.shell.host(input.host.as_deref())?.map(|(name, _)| name);
            let page = shells(&scope)?.output(scope.shell.key, host, &request)?;
            let mut text = page.hint.map_or(page.text, |hint| format!("[{hint}]"));
            if let Some(next) = page.next_offset {
                let _ = write!(text, "\n[{} bytes in all; read on with offset {next}]", page.total_bytes);
            }
            Ok(text.into())
        });
        Ok(Plan::new(vec![call.to_string()], work))
    }
}

impl Tool for ShellInterrupt {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "shell.interrupt".to_owned(),
            description:
                "Stops the command that runs in your shell. The shell and its background jobs live on."
                    .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {"host": {"type": "string", "description": "where the command runs; none: here"}},
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let InterruptInput { host } = arguments(&self.spec(), input)?;
        let scope = Arc::clone(scope);
        let work = async move {
            let host = scope.shell.host(host.as_deref())?.map(|(name, _)| name);
            let interrupted = shells(&scope)?.interrupt(scope.shell.key, host)?;
            let said = match interrupted.call {
                Some(call) => format!("call {call} was interrupted"),
                None => "no command was running".to_owned(),
            };
            Ok(said.into())
        };
        Ok(Plan::new(Vec::new(), Work::Do(Box::pin(work))))
    }
}

pub(super) fn shells(scope: &Scope) -> Result<&AgentShells, ToolError> {
    let shells = scope.services.shells.as_deref();
    shells.ok_or_else(|| ToolError::new(Code::Ehostdown, "this daemon has no shells for agents"))
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> ToolError {
        ToolError::new(refusal.code, refusal.message)
    }
}

/// A result as the model reads it: what was printed, and one line on how it ended.
pub(super) fn shown(result: &ExecResult) -> Output {
    let mut text = String::new();
    let mut part = |head: &str, body: &str| {
        if !body.is_empty() {
            let _ = write!(text, "{head}{body}");
            if !body.ends_with('\n') {
                text.push('\n');
            }
        }
    };
    part("[printed by background jobs since the last call]\n", &result.late_output);
    part("", &result.stdout);
    part("[stderr]\n", &result.stderr);
    let _ = write!(
        text,
        "[exit code {}; {:.1} s; cwd {}; call {}",
        result.exit_code,
        Duration::from_millis(result.duration_ms).as_secs_f64(),
        result.cwd,
        result.call
    );
    for (is_so, words) in [
        (result.timed_out, "; timed_out"),
        (result.shell_restarted, "; shell_restarted"),
        (result.truncated, "; truncated"),
    ] {
        text.push_str(if is_so { words } else { "" });
    }
    text.push(']');
    if let Some(hint) = &result.hint {
        let hint = hint.replace("session_output", "shell.output");
        let _ = write!(text, "\n[hint: {hint}]");
    }
    let summary = ToolSummary {
        exit_code: Some(result.exit_code),
        bytes: Some(result.bytes),
        ..ToolSummary::default()
    };
    Output { text, diff: None, summary }
}
