//! Tools: what a model may ask for. Here live the ones without effects on the world: they read inside the view, or
//! speak of the session itself.

pub mod checkpoint;
pub mod fs_list;
pub mod fs_read;
pub mod output;
pub mod todo;

use std::path::PathBuf;
use std::sync::Arc;

pub use ctx_session::issue::IssueAct;
use ctx_session::{Code, Limits};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::view::{Found, View, ViewError};

/// One tool.
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;
    fn effects(&self) -> Effects;
    /// Checks the arguments and finds what the call is about, without doing it. May read the disk.
    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError>;
}

/// Where a tool works.
#[derive(Debug)]
pub struct Scope {
    pub view: Arc<View>,
    /// As the agent sees it.
    pub cwd: PathBuf,
    pub limits: Arc<Limits>,
    /// Cancelled when the run is stopped: work that cannot await looks at it.
    pub stop: CancellationToken,
}

/// A call that is ready to be judged by the policy, and then to be made.
pub struct Plan {
    /// The ways to write what the call touches: policy patterns are held against each.
    pub subjects: Vec<String>,
    pub work: Work,
}

/// How a call is made.
pub enum Work {
    Do(BoxFuture<'static, Result<String, ToolError>>),
    /// Pauses the session.
    Checkpoint {
        reason: Option<String>,
    },
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
}

impl Tools {
    /// The tools that every agent has before there are cages.
    pub fn without_effects() -> Tools {
        Tools {
            tools: vec![
                Arc::new(fs_read::FsRead),
                Arc::new(fs_list::FsList),
                Arc::new(output::OutputRead),
                Arc::new(checkpoint::Checkpoint),
                Arc::new(todo::Todo),
                Arc::new(todo::Issue),
            ],
        }
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
fn path_subjects(found: &Found, scope: &Scope) -> Vec<String> {
    let mut subjects = vec![found.path.display().to_string()];
    if let Ok(below) = found.path.strip_prefix(&scope.cwd) {
        subjects.push(below.display().to_string());
    }
    subjects
}

/// Runs work that reads the disk off the async threads.
fn blocking(work: impl FnOnce() -> Result<String, ToolError> + Send + 'static) -> Work {
    Work::Do(Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(ToolError::new(Code::Eio, format!("the tool stopped working: {error}"))),
        }
    }))
}
