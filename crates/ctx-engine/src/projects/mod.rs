//! Projects: their logs, which are the truth of what is registered, and where each project stands.
//!
//! This is what is known; what is asked and done with it is in `project_ops`.

pub(crate) mod log;
pub(crate) mod standing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ctx_session::project::Problem;
use ctx_session::record::Workspace;
use ctx_session::request::RequestKey;
use ctx_session::rules::Dsl;
use ctx_session::{IssueId, Name, Refusal, Session, SessionId, Timestamp};

pub use log::{LogChange, ProjectLog};

use crate::port::ProjectFiles;
use standing::Standing;

/// The last glance at a project.
#[derive(Debug)]
pub(crate) struct Glance {
    /// None: someone is at it now.
    pub ended_at: Option<Instant>,
    /// What was seen; while the first one is under way, what was known before.
    pub snapshot: Option<String>,
}

/// Every project there is.
pub(crate) struct Projects {
    pub files: Arc<dyn ProjectFiles>,
    /// The directory of the project `default`.
    pub workspace: Option<String>,
    /// Also of projects that were removed.
    pub logs: Mutex<BTreeMap<Name, Arc<ProjectLog>>>,
    pub standings: Mutex<BTreeMap<Name, Standing>>,
    /// Held while files are looked at; the table above is never locked meanwhile.
    pub looking: Mutex<()>,
    /// Held while the tree is changed, so that nobody takes a half of an agent's directory for a whole one.
    pub showing: Mutex<()>,
    /// Held while a directory becomes a project.
    pub placing: Mutex<()>,
    pub glances: Mutex<BTreeMap<Name, Glance>>,
}

/// A project to be registered.
#[derive(Debug, Clone)]
pub struct NewProject {
    pub directory: String,
    /// None: as its file says, or else as its directory is called.
    pub slug: Option<Name>,
    /// Kept with it, so that it is registered once.
    pub key: Option<RequestKey>,
}

/// A project as a door shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectView {
    pub slug: Name,
    pub owner: u32,
    pub directory: String,
    pub added_at: Timestamp,
    pub updated_at: Timestamp,
    /// Its primary; None when no file has said who that is.
    pub agent: Option<Name>,
    /// Its file as it is now; None when it is invalid, or is the project `default`, which has none.
    pub dsl: Option<Dsl>,
    /// None: it is ready.
    pub problems: Vec<Problem>,
    /// What its file grants, one line each, and whether that holds for its owner.
    pub grants: Vec<String>,
    pub trusted: bool,
}

/// The project of a client's directory.
#[derive(Debug, Clone, PartialEq)]
pub struct HereView {
    pub project: ProjectView,
    /// Where what holds is not what was asked.
    pub warnings: Vec<String>,
}

/// What a new session of a project's agent is made with.
pub(crate) enum Described {
    /// By the project's file, which the session keeps.
    File { dsl: Dsl, snapshot: Arc<[u8]>, directory: String, log: Arc<ProjectLog> },
    /// By another agent's control files, as they are at every run.
    Plain(Workspace),
}

impl Described {
    pub fn snapshot(&self) -> Option<Arc<[u8]>> {
        match self {
            Described::File { snapshot, .. } => Some(snapshot.clone()),
            Described::Plain(_) => None,
        }
    }

    /// The project's directory.
    pub fn directory(&self) -> &str {
        match self {
            Described::File { directory, .. } => directory,
            Described::Plain(workspace) => &workspace.directory,
        }
    }

    /// Stores the snapshot, so that the session's first record can name it. Blocking.
    pub fn store(self) -> Result<Option<Dsl>, Refusal> {
        match self {
            Described::File { dsl, snapshot, log, .. } => log.put_blob(&snapshot).map(|()| Some(dsl)),
            Described::Plain(_) => Ok(None),
        }
    }
}

impl Projects {
    pub fn new(files: Arc<dyn ProjectFiles>, workspace: Option<String>) -> Projects {
        Projects {
            files,
            workspace,
            logs: Mutex::default(),
            standings: Mutex::default(),
            looking: Mutex::default(),
            showing: Mutex::default(),
            placing: Mutex::default(),
            glances: Mutex::default(),
        }
    }
}

/// A session as far as its issue goes.
pub(crate) struct Bound {
    pub session: SessionId,
    pub owner: u32,
    pub project: Name,
    pub issue: Option<IssueId>,
}

impl Bound {
    pub fn of(session: &Session) -> Bound {
        Bound {
            session: session.id(),
            owner: session.meta.owner,
            project: session.meta.project.clone(),
            issue: session.bound_issue,
        }
    }
}
