//! Tools: what a model may ask for. Those on files are in `fs`; the others here speak of the session itself.

pub mod checkpoint;
pub mod dispatch;
pub mod fs;
pub mod mcp;
pub mod output;
pub mod own;
pub mod shell;
pub mod terminal;
pub mod todo;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use ctx_session::issue::IssueAct;
use ctx_session::port::{OpenTerminal, TerminalStart};
use ctx_session::record::{Approvals, ToolSummary};
use ctx_session::subagent::PRIMARYS_ALONE;
use ctx_session::{Code, Limits, Name, SessionId, Timestamp, Ulid};
use ctx_terminal::Terminals;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::control::policy::{Effects, Policy};
use crate::mcp::McpServers;
use crate::model::ToolSpec;
use crate::model::calibrate::Calibration;
use crate::project::OWN;
use crate::redact::Redaction;
use crate::shells::AgentShells;
use crate::view::{View, ViewError};

/// What a call is told that needs an approval, where nobody is there to give it. Clients show it to their user.
pub const NOBODY_TO_ASK: &str = "needs an approval, and nobody is at a terminal to give it";

/// One tool.
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;
    fn name(&self) -> String {
        self.spec().name
    }
    /// Whether it is one of the session's owner.
    fn is_own(&self) -> bool {
        false
    }
    fn effects(&self) -> Effects;
    /// Whether a call may be made while others of the same answer are, unless they name the same `path`.
    fn runs_in_parallel(&self) -> bool {
        false
    }
    /// Checks the arguments and finds what the call is about, without doing it. May read the disk.
    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError>;
}

/// Where a tool works.
#[derive(Debug)]
pub struct Scope {
    pub session: SessionId,
    /// Whose reading of files counts: the session's id for its primary, an id of its own for a subagent.
    pub reader: Ulid,
    pub view: Arc<View>,
    /// As the agent sees it.
    pub cwd: PathBuf,
    pub limits: Arc<Limits>,
    pub services: Services,
    pub policy: Arc<Policy>,
    /// The answer to every approval of the run; None: the operator is asked.
    pub approvals: Option<Approvals>,
    pub redaction: Redaction,
    pub shell: shell::ShellOf,
    /// Cancelled when the run is stopped: work that cannot await looks at it.
    pub stop: CancellationToken,
}

/// What tools have that outlives a run: one of each for the daemon, asked for by session.
#[derive(Debug, Clone, Default)]
pub struct Services {
    pub seen: Arc<fs::Seen>,
    /// None: there are none, as in tests.
    pub shells: Option<Arc<AgentShells>>,
    /// None: there are none, as in tests.
    pub mcp: Option<Arc<McpServers>>,
    pub calibration: Arc<Calibration>,
    pub terminals: Option<Arc<Terminals>>,
    /// The time, for what is started.
    pub now: Option<fn() -> Timestamp>,
    /// Saves files around runs.
    pub files: crate::run_files::Files,
}

impl Services {
    fn freeze_terminals(&self, owner: u32, session: SessionId, is_frozen: bool) {
        if let Some(Err(error)) =
            self.terminals.as_ref().map(|terminals| terminals.freeze(owner, session, is_frozen))
        {
            tracing::warn!(%session, %error, "a terminal could not be frozen or thawed");
        }
    }

    /// Ends all processes of a session but its terminals, which the engine closes; each may end by itself within this time. What is needed again is there again.
    pub async fn end(&self, session: SessionId, patience: Duration) {
        let shells = async {
            if let Some(shells) = &self.shells {
                shells.end(session, patience).await;
            }
        };
        let servers = async {
            if let Some(servers) = &self.mcp {
                servers.end(session, patience).await;
            }
        };
        tokio::join!(shells, servers);
    }

    /// Stops all processes of a session where they are, and those that it would start. Blocks until they are.
    pub fn freeze(&self, owner: u32, session: SessionId) {
        self.freeze_terminals(owner, session, true);
        if let Some(shells) = &self.shells {
            shells.freeze(session);
        }
        if let Some(servers) = &self.mcp {
            servers.freeze(session);
        }
    }

    /// Lets them go on.
    pub fn thaw(&self, owner: u32, session: SessionId) {
        self.freeze_terminals(owner, session, false);
        if let Some(shells) = &self.shells {
            shells.thaw(session);
        }
        if let Some(servers) = &self.mcp {
            servers.thaw(session);
        }
    }

    /// The session starts no more. Its MCP servers go with [`Services::end`].
    pub async fn forget_session(&self, session: SessionId) {
        if let Some(shells) = &self.shells {
            shells.forget_session(session).await;
        }
    }

    /// Ends everything of all sessions.
    pub async fn shut_down(&self) {
        if let Some(servers) = &self.mcp {
            servers.shut_down().await;
        }
        if let Some(shells) = &self.shells {
            shells.shut_down().await;
        }
    }
}

/// A call that is ready to be judged by the policy, and then to be made.
pub struct Plan {
    /// The ways to write what the call touches: policy patterns are held against each.
    pub subjects: Vec<String>,
    /// What the call would change in a file, as a unified diff: the operator is shown it.
    pub diff: Option<String>,
    /// The machine that the call is made on, where that is not this one.
    pub host: Option<PlanHost>,
    pub work: Work,
}

/// Another machine, and the policy that holds there instead of the agent's own.
pub struct PlanHost {
    pub name: Name,
    pub policy: Policy,
}

impl Plan {
    /// A call that changes no file.
    fn new(subjects: Vec<String>, work: Work) -> Plan {
        Plan { subjects, diff: None, host: None, work }
    }
}

/// What a call gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// What the model reads.
    pub text: String,
    /// What it changed in a file, as a unified diff.
    pub diff: Option<String>,
    pub summary: ToolSummary,
}

impl From<String> for Output {
    fn from(text: String) -> Output {
        Output { text, ..Output::default() }
    }
}

/// How a call is made.
pub enum Work {
    Do(BoxFuture<'static, Result<Output, ToolError>>),
    /// Pauses the session.
    Checkpoint {
        reason: Option<String>,
    },
    /// Gives a part of the work to a subagent.
    Dispatch(dispatch::Dispatched),
    /// Opens a terminal: recorded first, started then.
    Terminal(OpenTerminal, TerminalStart),
    /// Asks something of the bound issue.
    Issue(IssueAct),
    /// Reads back what an earlier call gave.
    Output(output::Window),
}

/// Why a tool call failed. It goes back to the model, so it says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ToolError {
    pub code: Code,
    pub message: String,
}

impl ToolError {
    pub fn new(code: Code, message: impl Into<String>) -> ToolError {
        ToolError { code, message: message.into() }
    }
}

impl From<ViewError> for ToolError {
    fn from(error: ViewError) -> ToolError {
        ToolError::new(error.code(), error.to_string())
    }
}

/// A tool of ours with what it says of itself, which is asked for many times at every step.
struct Ours {
    spec: ToolSpec,
    tool: Box<dyn Tool>,
}

impl Tool for Ours {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn name(&self) -> String {
        self.spec.name.clone()
    }

    fn effects(&self) -> Effects {
        self.tool.effects()
    }

    fn runs_in_parallel(&self) -> bool {
        self.tool.runs_in_parallel()
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        self.tool.plan(input, scope)
    }
}

static OURS: LazyLock<Vec<Arc<dyn Tool>>> = LazyLock::new(|| {
    let all: [Box<dyn Tool>; 17] = [
        Box::new(fs::FsRead),
        Box::new(fs::FsList),
        Box::new(fs::FsStat),
        Box::new(fs::FsSearch),
        Box::new(fs::FsWrite),
        Box::new(fs::FsEdit),
        Box::new(shell::ShellExec),
        Box::new(shell::ShellOutput),
        Box::new(shell::ShellInterrupt),
        Box::new(terminal::TerminalOpen),
        Box::new(terminal::TerminalWrite),
        Box::new(terminal::TerminalRead),
        Box::new(terminal::TerminalClose),
        Box::new(output::OutputRead),
        Box::new(checkpoint::Checkpoint),
        Box::new(todo::Todo),
        Box::new(todo::Issue),
    ];
    let ours = |tool: Box<dyn Tool>| -> Arc<dyn Tool> { Arc::new(Ours { spec: tool.spec(), tool }) };
    all.into_iter().map(ours).collect()
});

/// The tools of an agent.
pub struct Tools {
    tools: Vec<Arc<dyn Tool>>,
    /// Those that are kept from a subagent.
    withheld: &'static [&'static str],
    /// MCP servers that are not there, and why.
    absent: Vec<(Name, String)>,
}

impl Tools {
    /// The tools that an agent can have.
    pub fn all() -> Tools {
        Tools { tools: OURS.clone(), withheld: &[], absent: Vec::new() }
    }

    /// And this one, if there is one.
    pub fn and(mut self, tool: Option<impl Tool + 'static>) -> Tools {
        self.tools.extend(tool.map(|tool| -> Arc<dyn Tool> { Arc::new(tool) }));
        self
    }

    /// Those of them that a subagent can have; terminals only where its part of the project file says so.
    pub fn for_subagent(mut self, has_terminal: bool) -> Tools {
        self.withheld = &PRIMARYS_ALONE;
        let is_its =
            |name: &str| !PRIMARYS_ALONE.contains(&name) && (has_terminal || !name.starts_with("terminal."));
        self.tools.retain(|tool| is_its(tool.name().as_str()));
        self
    }

    /// Those of them that are named, alone or as all of a server (`server.*`); None: all.
    pub fn only(mut self, names: Option<&[String]>) -> Tools {
        let is_named = |tool: &str, name: &String| match name.strip_suffix(".*") {
            Some(server) => tool.split_once('.').is_some_and(|(of, _)| of == server),
            None => tool == name,
        };
        // What stands for a server's tools is named with any of them.
        let is_of =
            |server: &Name, name: &String| name.split_once('.').is_some_and(|(of, _)| of == server.as_str());
        let Tools { tools, absent, .. } = &mut self;
        absent.retain(|(server, _)| names.is_none_or(|names| names.iter().any(|name| is_of(server, name))));
        tools.retain(|tool| {
            let (tool, is_own) = (tool.name(), tool.is_own());
            let starts = |(server, _): &(Name, String)| tool == format!("{server}.start");
            names.is_none_or(|names| {
                names.iter().any(|name| is_named(&tool, name) || (is_own && name == OWN))
                    || absent.iter().any(starts)
            })
        });
        self
    }

    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec()).collect()
    }

    pub fn get(&self, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        let server = name.split_once('.').map(|(server, _)| server);
        let absent = self.absent.iter().find(|(absent, _)| server == Some(absent.as_str()));
        match self.tools.iter().find(|tool| tool.name() == name) {
            Some(tool) => Ok(Arc::clone(tool)),
            None if let Some((server, why)) = absent => {
                let message =
                    format!("the MCP server {server} did not start: {why}; {server}.start tries once more");
                Err(ToolError::new(Code::Ehostdown, message))
            }
            None if self.withheld.contains(&name) => {
                let message = format!(
                    "{name} is for the primary alone, and you are its subagent; say in your last message what you want done"
                );
                Err(ToolError::new(Code::Eacces, message))
            }
            None => {
                let known: Vec<String> = self.tools.iter().map(|tool| tool.name()).collect();
                let shown = crate::control::short(name);
                let message = format!("unknown tool `{shown}`; the tools are {}", known.join(", "));
                Err(ToolError::new(Code::Enoent, message))
            }
        }
    }
}

/// Reads the arguments of a call; what does not fit is told to the model.
fn arguments<T: DeserializeOwned>(spec: &ToolSpec, input: Value) -> Result<T, ToolError> {
    serde_json::from_value(input).map_err(|error| {
        let message = format!("bad arguments for {}: {error}; its schema is {}", spec.name, spec.schema);
        ToolError::new(Code::Einval, message)
    })
}

/// How a policy may write a path: in full, and from the working directory when it is below it.
fn path_subjects(path: &Path, scope: &Scope) -> Vec<String> {
    let mut subjects = vec![path.display().to_string()];
    if let Ok(below) = path.strip_prefix(&scope.cwd) {
        subjects.push(below.display().to_string());
    }
    subjects
}

/// Runs work that reads the disk off the async threads.
fn blocking(work: impl FnOnce() -> Result<Output, ToolError> + Send + 'static) -> Work {
    Work::Do(Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(ToolError::new(Code::Eio, format!("the tool stopped working: {error}"))),
        }
    }))
}

/// A length as records have it.
fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
