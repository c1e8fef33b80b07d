//! Tools: what a model may ask for. Those on files are in `fs`; the others here speak of the session itself.

pub mod checkpoint;
pub mod dispatch;
pub mod fs;
pub mod output;
pub mod shell;
pub mod todo;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use ctx_session::issue::IssueAct;
use ctx_session::record::{Approvals, ToolSummary};
use ctx_session::subagent::PRIMARYS_ALONE;
use ctx_session::{Code, Limits, SessionId, Ulid};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::control::policy::{Effects, Policy};
use crate::model::ToolSpec;
use crate::redact::Redaction;
use crate::shells::AgentShells;
use crate::view::{View, ViewError};

/// What a call is told that needs an approval, where nobody is there to give it. Clients show it to their user.
pub const NOBODY_TO_ASK: &str = "needs an approval, and nobody is at a terminal to give it";

/// One tool.
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;
    fn effects(&self) -> Effects;
    /// Whether a call may be made while others of the same answer are, unless they name the same `path`.
    fn stands_beside_others(&self) -> bool {
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
    /// Saves files around runs.
    pub files: crate::run_files::Files,
}

/// A call that is ready to be judged by the policy, and then to be made.
pub struct Plan {
    /// The ways to write what the call touches: policy patterns are held against each.
    pub subjects: Vec<String>,
    /// What the call would change in a file, as a unified diff: the operator is shown it.
    pub diff: Option<String>,
    pub work: Work,
}

impl Plan {
    /// A call that changes no file.
    fn new(subjects: Vec<String>, work: Work) -> Plan {
        Plan { subjects, diff: None, work }
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

/// The tools of an agent.
pub struct Tools {
    tools: Vec<Arc<dyn Tool>>,
    /// Those that are kept from a subagent.
    withheld: &'static [&'static str],
}

impl Tools {
    /// The tools that an agent can have.
    pub fn all() -> Tools {
        Tools {
            tools: vec![
                Arc::new(fs::FsRead),
                Arc::new(fs::FsList),
                Arc::new(fs::FsStat),
                Arc::new(fs::FsSearch),
                Arc::new(fs::FsWrite),
                Arc::new(fs::FsEdit),
                Arc::new(shell::ShellExec),
                Arc::new(shell::ShellOutput),
                Arc::new(shell::ShellInterrupt),
                Arc::new(output::OutputRead),
                Arc::new(checkpoint::Checkpoint),
                Arc::new(todo::Todo),
                Arc::new(todo::Issue),
            ],
            withheld: &[],
        }
    }

    /// And this one, if there is one.
    pub fn and(mut self, tool: Option<impl Tool + 'static>) -> Tools {
        self.tools.extend(tool.map(|tool| -> Arc<dyn Tool> { Arc::new(tool) }));
        self
    }

    /// Those of them that a subagent can have.
    pub fn for_subagent(mut self) -> Tools {
        self.withheld = &PRIMARYS_ALONE;
        self.tools.retain(|tool| !PRIMARYS_ALONE.contains(&tool.spec().name.as_str()));
        self
    }

    /// Those of them that are named; None: all.
    pub fn only(mut self, names: Option<&[String]>) -> Tools {
        self.tools.retain(|tool| names.is_none_or(|names| names.contains(&tool.spec().name)));
        self
    }

    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec()).collect()
    }

    pub fn get(&self, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        match self.tools.iter().find(|tool| tool.spec().name == name) {
            Some(tool) => Ok(Arc::clone(tool)),
            None if self.withheld.contains(&name) => {
                let message = format!(
                    "{name} is for the primary alone, and you are its subagent; say in your last message what you want done"
                );
                Err(ToolError::new(Code::Eacces, message))
            }
            None => {
                let known: Vec<String> = self.specs().into_iter().map(|spec| spec.name).collect();
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
