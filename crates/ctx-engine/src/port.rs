//! The port behind which agents work: what the engine asks of them. What they ask back is [`ctx_session::port`].
//!
//! The engine knows no model, tool or cage. The binary puts an adapter here; tests put a few lines.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use ctx_journal::Owner;
use ctx_session::command::{Outcome, RunContext, RunWishes};
use ctx_session::object::Earlier;
use ctx_session::port::{Recorded, RunPort, TerminalStart};
use ctx_session::project::{Problem, ProjectRead, Strategy};
use ctx_session::record::{RunKind, SessionMeta, TerminalEnd, Workspace};
use ctx_session::{Code, Limits, Name, Object, Refusal, RunId, SessionId, TerminalId};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Whoever can do the work of a run.
pub trait Worker: Send + Sync + 'static {
    /// Finds out under what a run would work. Called before a message is accepted, so that a bad control
    /// file refuses it and nothing is written. May read files: it is never called on an async thread.
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal>;

    /// Does the work. Returns soon after `stop`; the engine gives up on it after the grace time.
    fn run(&self, job: Job, port: Arc<dyn RunPort>, stop: CancellationToken) -> BoxFuture<'static, Outcome>;

    /// How a terminal that the operator wants is to be started.
    fn terminal(&self, _: TerminalAsk) -> Result<TerminalStart, Refusal> {
        Err(Refusal::new(Code::Ehostdown, "this daemon has no terminals"))
    }

    /// Waits for the end of a terminal: why, its exit code, the lines of its transcript. One that is not there is lost.
    fn terminal_ended(
        &self,
        _owner: u32,
        _: TerminalId,
    ) -> BoxFuture<'static, (TerminalEnd, Option<i32>, u64)> {
        Box::pin(std::future::ready((TerminalEnd::HolderLost, None, 0)))
    }

    /// Ends the program of a terminal.
    fn close_terminal(&self, _owner: u32, _: TerminalId) -> BoxFuture<'static, Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Terminals of sessions, with their owners, whose end is not marked yet. Blocks.
    fn terminals_without_end(&self) -> Vec<(u32, SessionId, TerminalId)> {
        Vec::new()
    }

    /// The end of a terminal is in the log. Blocks.
    fn mark_terminal_ended(&self, _owner: u32, _: TerminalId) {}

    /// Removes what the terminals of a session have left. Blocks.
    fn forget_terminals(&self, _owner: u32, _: SessionId) {}

    /// Does something to all processes that a session's runs have started. Ready when it is done.
    fn processes(&self, _owner: u32, _session: SessionId, _act: ProcessAct) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A terminal that the operator opens in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorsTerminal {
    pub name: Option<String>,
    pub command: Vec<String>,
    pub cols: u16,
    pub rows: u16,
    /// In the cage of the session's agent; else as its owner.
    pub caged: bool,
}

/// The same with what the engine knows of the session.
pub struct TerminalAsk {
    pub session: SessionId,
    pub owner: u32,
    pub new: OperatorsTerminal,
    /// Under what a run would work; with a cage alone.
    pub prepared: Option<Prepared>,
    /// Where the session began on the machine.
    pub dir: Option<String>,
}

/// What is done to the processes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessAct {
    /// They stop where they are.
    Freeze,
    /// They go on.
    Thaw,
    /// They are asked to end, and then ended.
    End,
    /// The same, and the session will start no more.
    EndForGood,
}

/// For whom a run would work.
#[derive(Debug, Clone)]
pub struct Prepare {
    pub object: Object,
    pub owner: u32,
    pub model_override: Option<String>,
    /// As the client or the session has it; None: the agent's own.
    pub cwd: Option<String>,
    /// Texts that the session has in place of the agent's own prompts, by target.
    pub prompts: Vec<(String, String)>,
    /// The project's files as the session keeps them; None: the agent's control files describe it.
    pub snapshot: Option<Arc<[u8]>>,
    pub wishes: RunWishes,
    /// What the run worked under before it was paused; None: as the agent's files say now.
    pub recorded: Option<Recorded>,
    /// What was said before the session began.
    pub earlier: Vec<Earlier>,
    pub place: Place,
}

/// Which directory of the machine an agent works in, where no project file says it.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The session's own.
    pub workspace: Option<Workspace>,
    /// What a new session gets when the agent has no workspace of its own.
    pub offered: Option<Workspace>,
    /// The host directory that a new session begins in.
    pub dir: Option<String>,
}

impl Place {
    /// Of a session that is there.
    pub fn of(meta: &SessionMeta) -> Place {
        Place { workspace: meta.workspace.clone(), ..Place::default() }
    }
}

/// Where projects are read from the disk, and their agents shown. All of it blocks.
pub trait ProjectFiles: Send + Sync + 'static {
    /// The directory that someone wants to register, whole and without links, if they may.
    fn directory(&self, asked: &str, whose: Whose) -> Result<String, Refusal>;

    /// What a client's directory is to us: whose project it is in, if any.
    fn here(&self, asked: &str, _: Whose) -> Result<Here, Refusal> {
        Err(Refusal::invalid("dir", format!("this daemon cannot look at {asked}")))
    }

    /// The agent of projects without a file.
    fn plain(&self) -> Result<Arc<Plain>, Vec<Problem>> {
        Err(Vec::new())
    }

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
    /// Whether the directory is there and has no project file.
    pub lacks_file: bool,
}

/// A client's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// Whole and without links.
    pub dir: String,
    pub project: Result<ProjectDir, Never>,
}

/// The directory of the project that a directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectDir {
    pub directory: String,
    pub by: By,
}

impl ProjectDir {
    /// Whether a directory is in the workspace of `default`, and in no project of its own there.
    pub fn is_of_default(&self, dir: &str, workspace: Option<&str>) -> bool {
        let Some(workspace) = workspace else { return false };
        let is_in = Path::new(dir).starts_with(workspace);
        match self.by {
            By::File => false,
            By::Git => {
                let is_below = Path::new(&self.directory).starts_with(workspace);
                is_in && (!is_below || self.directory == workspace)
            }
            By::Itself => is_in,
        }
    }
}

/// What makes a directory a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// It has a project file.
    File,
    /// It is the root of a git work tree.
    Git,
    /// Nothing around it does.
    Itself,
}

/// Why a directory is never a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Never {
    /// `/`.
    Top,
    Home,
    /// The daemon's own root, or something in it.
    CtxRoot,
}

/// How the agent of a project without a file is described.
pub struct Plain {
    /// The agent whose control files say it.
    pub described_by: Name,
    /// What the tree shows of it; only whoever made it can read that.
    pub shown: Arc<[u8]>,
    pub hash: String,
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
    /// What of it holds only after the operator agreed to it, one line each.
    pub grants: Vec<String>,
    /// There is no file, and this describes the agent.
    pub plain: Option<Arc<Plain>>,
}

impl ProjectFile {
    /// What stands for the file of a project that has none.
    pub fn without_file(slug: &Name, plain: Arc<Plain>) -> ProjectFile {
        let nowhere = Problem { file: String::new(), line: 0, column: 0, message: String::new() };
        ProjectFile {
            slug: slug.clone(),
            agent: slug.clone(),
            model: String::new(),
            slug_at: nowhere.clone(),
            agent_at: nowhere.clone(),
            model_at: nowhere,
            hash: plain.hash.clone(),
            snapshot: plain.shown.clone(),
            snapshot_hash: plain.hash.clone(),
            running_per_project: None,
            grants: Vec::new(),
            plain: Some(plain),
        }
    }
}

/// An agent of a project, as the tree is to show it.
#[derive(Clone)]
pub struct ShownAgent {
    pub project: Name,
    pub owner: Owner,
    pub directory: String,
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
        Look { found: Err(Vec::new()), slug: None, is_there: false, lacks_file: false }
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
    /// What the agent has as its workspace.
    pub workspace: Option<Workspace>,
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
