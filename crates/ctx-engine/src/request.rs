//! What doors hand to the engine and get from it: who asks, what an engine is made of, sessions and messages to be made.

use std::sync::Arc;

use ctx_journal::Journal;
use ctx_session::command::RunWishes;
use ctx_session::image::NewImage;
use ctx_session::object::Earlier;
use ctx_session::record::Scope;
use ctx_session::request::RequestKey;
use ctx_session::{Limits, MessageId, Name, Object, RunId, RunState};
use ctx_views::RootDir;

use crate::clock::Fresh;
use crate::port::{ProjectFiles, Worker};
use crate::spaces::SpaceFiles;

/// Who asks, as their door has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
}

/// What an engine is made of.
pub struct Parts {
    pub journal: Arc<dyn Journal>,
    /// For temp sessions.
    pub memory: Arc<dyn Journal>,
    /// Where session files are shown; None: nowhere.
    pub root: Option<RootDir>,
    pub worker: Arc<dyn Worker>,
    pub project_files: Arc<dyn ProjectFiles>,
    pub spaces: Arc<dyn SpaceFiles>,
    /// The directory of the project `default`.
    pub workspace: Option<String>,
    pub limits: Limits,
    pub fresh: Fresh,
    /// The daemon's own user and group.
    pub uid: u32,
    pub gid: u32,
    /// What the log calls this program.
    pub app: String,
}

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub object: Object,
    /// The project that the agent must be of; None: whichever it is of.
    pub project: Option<Name>,
    /// None: called by its id.
    pub name: Option<Name>,
    pub scope: Scope,
    pub space: Option<Name>,
    /// None: the agent's own.
    pub cwd: Option<String>,
    /// The host directory that the client is in.
    pub dir: Option<String>,
    /// What was said before its first message, for a model that is asked once.
    pub earlier: Vec<Earlier>,
    pub client: Option<String>,
    /// Kept with it, so that it is known again.
    pub key: Option<RequestKey>,
}

/// A message to be posted.
#[derive(Debug, Clone, Default)]
pub struct Post {
    pub text: String,
    /// As they came; see [`ctx_session::image::check`].
    pub images: Vec<NewImage>,
    pub client_id: Option<String>,
    pub model_override: Option<Option<String>>,
    pub cwd: Option<String>,
    /// What holds for its run alone. A run that has to wait for a slot begins without them.
    pub wishes: RunWishes,
    /// It is posted once, however often it is asked with this key.
    pub key: Option<RequestKey>,
}

/// What came of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    pub run: RunId,
    pub message: MessageId,
    pub state: RunState,
    /// The client id was used before; this is the run it started then.
    pub repeated: bool,
    /// Where the run begins in the log.
    pub first_seq: u64,
}
