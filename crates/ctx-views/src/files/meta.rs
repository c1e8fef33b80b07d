//! `meta.json`: what a session is, apart from what was said in it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ctx_session::record::{Failure, ForkedFrom};
use ctx_session::{IssueId, Missing, Name, Scope, Session, SessionId, State, StateName};

use super::META;
use crate::dir::RootDir;

/// The contents of `meta.json`, in the order of its keys. What does not apply is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    pub id: SessionId,
    pub name: Name,
    pub title: Option<String>,
    pub scope: Scope,
    pub space: Option<Name>,
    pub owner: u32,
    pub agent: Option<Name>,
    pub project: Name,
    /// The host directory that it began in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The model the next run will use.
    #[serde(with = "ctx_session::model_name")]
    pub model: String,
    pub client: Option<String>,
    pub origin: Option<Value>,
    pub forked_from: Option<ForkedFrom>,
    /// The issue that the session works on.
    pub bound_issue: Option<IssueId>,
    /// One of the state machine's words; the file `state` has fewer.
    pub state: StateName,
    pub failure: Option<Failure>,
    /// Put away: not listed unless asked for.
    #[serde(default)]
    pub archived: bool,
    /// How many messages do not count any more. None where that is not known; never less than `messages.jsonl` shows.
    #[serde(default)]
    pub superseded: Option<u64>,
    /// How many messages are pinned; likewise.
    #[serde(default)]
    pub pinned: Option<u64>,
    /// What its log has lost, where it is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Missing>,
}

impl Meta {
    /// What the file in a session's directory says; nothing if it is not there or cannot be read.
    pub fn read(root: &RootDir, dir: &Path) -> Option<Meta> {
        let bytes = root.dir(dir).ok()?.contents(META).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    pub fn of(session: &Session) -> Meta {
        let meta = &session.meta;
        Meta {
            id: meta.session_id,
            name: meta.name.clone(),
            title: session.title.clone(),
            scope: meta.scope,
            space: meta.space.clone(),
            owner: meta.owner,
            agent: meta.agent.clone(),
            project: meta.project.clone(),
            dir: meta.dir.clone(),
            model: session.model_override.clone().unwrap_or_else(|| meta.model.clone()),
            client: meta.client.clone(),
            origin: meta.origin.clone(),
            forked_from: meta.forked_from,
            bound_issue: session.bound_issue,
            state: session.state.name(),
            failure: match &session.state {
                State::Failed(failure) => Some(failure.clone()),
                State::Idle
                | State::Running { .. }
                | State::Queued { .. }
                | State::Paused { .. }
                | State::Ended => None,
            },
            archived: session.archived,
            superseded: Some(session.ledger.superseded() as u64),
            pinned: Some(session.ledger.pinned().count() as u64),
            damage: session.missing,
        }
    }

    /// The file: one key a line, for people.
    pub(crate) fn to_file(&self) -> String {
        // This type has no map with keys that are not strings: serialising it cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
