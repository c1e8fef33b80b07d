//! The port behind which agents work: what the engine asks of them. What they ask back is [`ctx_session::port`].
//!
//! The engine knows no model, tool or cage. The binary puts an adapter here; tests put a few lines.

use std::any::Any;
use std::sync::Arc;

use ctx_journal::Owner;
use ctx_session::command::{Outcome, RunContext};
use ctx_session::port::{Recorded, RunPort};
use ctx_session::project::{Problem, ProjectRead, Strategy};
use ctx_session::record::RunKind;
use ctx_session::{Limits, Name, Refusal, RunId, SessionId};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Whoever can do the work of a run.
pub trait Worker: Send + Sync + 'static {
    /// Finds out under what a run would work. Called before a message is accepted, so that a bad control
    /// file refuses it and nothing is written. May read files: it is never called on an async thread.
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal>;

    /// Does the work. Returns soon after `stop`; the engine gives up on it after the grace time.
    fn run(&self, job: Job, port: Arc<dyn RunPort>, stop: CancellationToken) -> BoxFuture<'static, Outcome>;
}

/// For whom a run would work.
#[derive(Debug, Clone)]
pub struct Prepare {
    pub agent: Name,
    pub owner: u32,
    pub model_override: Option<String>,
    /// As the client or the session has it; None: the agent's own.
    pub cwd: Option<String>,
    /// Texts that the session has in place of the agent's own prompts, by target.
    pub prompts: Vec<(String, String)>,
    /// The project's files as the session keeps them; None: the agent's control files describe it.
    pub snapshot: Option<Arc<[u8]>>,
    /// What the run worked under before it was paused; None: as the agent's files say now.
    pub recorded: Option<Recorded>,
}

/// Where projects are read from the disk, and their agents shown. All of it blocks.
pub trait ProjectFiles: Send + Sync + 'static {
    /// The directory that someone wants to register, whole and without links, if they may.
    fn directory(&self, asked: &str, whose: Whose) -> Result<String, Refusal>;

    /// What a project's directory says of it now.
    fn look(&self, directory: &str, whose: Whose) -> Look;

    /// A project's files as a snapshot keeps them; None: it cannot be read.
    fn of_snapshot(&self, snapshot: Arc<[u8]>, read: &ProjectRead) -> Option<ProjectFile>;

    /// Whether there is an agent of this name that no project describes.
    fn is_described(&self, agent: &Name) -> bool;

    /// Why there is no such model; None: there is.
    fn lacks_model(&self, model: &str) -> Option<String>;

    /// The project that an agent is shown for, as the tree has it.
    fn shown_for(&self, agent: &Name) -> Option<Name>;

    /// These agents are there; those shown before that are not among them go.
    fn show(&self, agents: &[ShownAgent]);
}

/// Whose files are a project's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The daemon's own user, who may read what the daemon may.
    Daemon,
    /// Another user: only what is theirs is theirs to show.
    User(Owner),
}

/// What a look at a project's directory gave.
#[derive(Clone)]
pub struct Look {
    pub found: Result<Arc<ProjectFile>, Vec<Problem>>,
    /// What the file calls the project, even if it is wrong otherwise.
    pub slug: Option<Name>,
    /// Whether there is a project file at all.
    pub is_there: bool,
}

/// A project's files when they are right.
pub struct ProjectFile {
    pub slug: Name,
    /// Its primary.
    pub agent: Name,
    /// What its primary's model is called.
    pub model: String,
    /// Where the three are named; the messages are empty. Not known of what a snapshot says.
    pub slug_at: Problem,
    pub agent_at: Problem,
    pub model_at: Problem,
    /// The SHA-256 of the project file.
    pub hash: String,
    /// The file and its prompts in one, and the SHA-256 of that.
    pub snapshot: Arc<[u8]>,
    pub snapshot_hash: String,
    pub running_per_project: Option<u32>,
}

/// An agent of a project, as the tree is to show it.
#[derive(Clone)]
pub struct ShownAgent {
    pub project: Name,
    pub owner: Owner,
    /// `ready`, or what is wrong.
    pub status: String,
    /// None: whatever was shown for this project before stays.
    pub file: Option<Arc<ProjectFile>>,
}

/// No projects but `default`: for an engine without a disk.
pub struct NoProjects;

impl ProjectFiles for NoProjects {
    fn directory(&self, _: &str, _: Whose) -> Result<String, Refusal> {
        Err(Refusal::invalid("directory", "this daemon has no projects but `default`"))
    }

    fn look(&self, _: &str, _: Whose) -> Look {
        Look { found: Err(Vec::new()), slug: None, is_there: false }
    }

    fn of_snapshot(&self, _: Arc<[u8]>, _: &ProjectRead) -> Option<ProjectFile> {
        None
    }

    fn is_described(&self, _: &Name) -> bool {
        false
    }

    fn lacks_model(&self, _: &str) -> Option<String> {
        None
    }

    fn shown_for(&self, _: &Name) -> Option<Name> {
        None
    }

    fn show(&self, _: &[ShownAgent]) {}
}

/// Under what a run will work.
#[derive(Clone)]
pub struct Prepared {
    pub project: Name,
    pub context: RunContext,
    /// The texts of the prompts and instruction files that `context` names by hash; stored as blobs before the run
    /// begins.
    pub prompts: Vec<String>,
    /// Whether its agent names somebody who sums up for it.
    pub delegates: bool,
    /// Whatever the worker wants to see again in each [`ctx_session::port::Step`].
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// A run to do.
pub struct Job {
    pub session: SessionId,
    pub owner: u32,
    pub run: RunId,
    pub kind: RunKind,
    /// With a compaction alone; None: the agent's own.
    pub strategy: Option<Strategy>,
    pub limits: Arc<Limits>,
}
