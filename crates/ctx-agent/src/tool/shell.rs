//! `shell.exec`, `shell.output`, `shell.interrupt`: a shell of the session's own, in its cage.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ctx_host::shell::text::budget::Budget;
use ctx_host::shell::{ExecRequest, ExecResult, Output as Stream, OutputRequest};
use ctx_session::record::ToolSummary;
use ctx_session::{Code, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Output, Plan, Scope, Tool, ToolError, Work, arguments, blocking};
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::shells::{AgentShells, ShellKey, ShellWant};

/// The shell that a tool works in.
#[derive(Debug, Clone)]
pub struct ShellOf {
    pub key: ShellKey,
    /// In what it runs, or why it does not.
    pub want: Result<ShellWant, Refusal>,
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
struct NoInput {}

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
        if let Some(host) = &input.host {
            let message =
                format!("the project file lists no host `{host}`; leave `host` out to run the command here");
            return Err(ToolError::new(Code::Enoent, message));
        }
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
        Ok(Plan::new(
            subjects,
            Work::Do(Box::pin(async move {
                let want = scope.shell.want.as_ref().map_err(Clone::clone)?;
                let result = shells(&scope)?.exec(scope.shell.key, want, request).await?;
                Ok(shown(&result))
            })),
        ))
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
                    "grep": {"type": "string", "description": "only lines that match this regular expression"}
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
        let scope = Arc::clone(scope);
        let work = blocking(move || {
            let page = shells(&scope)?.output(scope.shell.key, &request)?;
            let mut text = page.text;
            if let Some(next) = page.next_offset {
                let _ = write!(text, "\n[{} bytes in all; read on with offset {next}]", page.total_bytes);
            }
            Ok(text.into())
        });
        Ok(Plan::new(vec![input.call.to_string()], work))
    }
}

impl Tool for ShellInterrupt {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "shell.interrupt".to_owned(),
            description:
                "Stops the command that runs in your shell. The shell and its background jobs live on."
                    .to_owned(),
            schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let NoInput {} = arguments(&self.spec(), input)?;
        let scope = Arc::clone(scope);
        let work = async move {
            let interrupted = shells(&scope)?.interrupt(scope.shell.key)?;
            let said = match interrupted.call {
                Some(call) => format!("call {call} was interrupted"),
                None => "no command was running".to_owned(),
            };
            Ok(said.into())
        };
        Ok(Plan::new(Vec::new(), Work::Do(Box::pin(work))))
    }
}

fn shells(scope: &Scope) -> Result<&AgentShells, ToolError> {
    let shells = scope.services.shells.as_deref();
    shells.ok_or_else(|| ToolError::new(Code::Ehostdown, "this daemon has no shells for agents"))
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> ToolError {
        ToolError::new(refusal.code, refusal.message)
    }
}

/// A result as the model reads it: what was printed, and one line on how it ended.
fn shown(result: &ExecResult) -> Output {
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
