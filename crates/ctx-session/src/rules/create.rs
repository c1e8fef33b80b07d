//! How a session begins.

use serde_json::Value;

use crate::command::{Answer, Decision};
use crate::ids::SessionId;
use crate::model_name::provider;
use crate::name::Name;
use crate::record::{Body, Scope, SessionBody, SessionMeta, Workspace};
use crate::request::RequestKey;

/// Everything a new session is made of. The engine has checked the project, the agent, the name and the cwd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    pub id: SessionId,
    /// None: the session is called by its id.
    pub name: Option<Name>,
    pub scope: Scope,
    pub space: Option<Name>,
    pub owner: u32,
    pub agent: Option<Name>,
    pub project: Name,
    pub cwd: String,
    pub dir: Option<String>,
    pub workspace: Option<Workspace>,
    pub model: String,
    /// What the project's file is at this moment, where one describes the agent.
    pub dsl: Option<Dsl>,
    pub client: Option<String>,
    pub origin: Option<Value>,
    pub requested: Option<RequestKey>,
    pub app: String,
}

/// A project's file, by hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dsl {
    /// Of the file itself.
    pub hash: String,
    /// Of the blob that holds the file and its prompts.
    pub snapshot: String,
}

/// The first command of every log. There is no limit on how many sessions exist: only running ones count.
pub fn create(create: Create) -> Decision {
    let (dsl_hash, dsl_snapshot) = create.dsl.map(|dsl| (dsl.hash, dsl.snapshot)).unzip();
    let meta = SessionMeta {
        session_id: create.id,
        name: create.name.unwrap_or_else(|| Name::from(create.id)),
        scope: create.scope,
        space: create.space,
        owner: create.owner,
        agent: create.agent,
        project: create.project,
        cwd: create.cwd,
        dir: create.dir,
        workspace: create.workspace,
        provider: provider(&create.model).map(str::to_owned),
        model: create.model,
        title: None,
        client: create.client,
        origin: create.origin,
        forked_from: None,
        dsl_hash,
        dsl_snapshot,
        requested: create.requested,
        app: create.app,
    };
    Decision {
        records: vec![Body::Session(SessionBody::Meta(Box::new(meta)))],
        effects: Vec::new(),
        answer: Answer::Done,
    }
}
