//! What a project's log says, one line each. The journal owns the envelope; the records of issues and todos
//! are defined in `issue`.

use serde::{Deserialize, Serialize};

use super::issue::{IssueChanged, IssueClaimed, IssueCreated, TodoAdded, TodoChanged};
use crate::ids::IssueId;
use crate::name::Name;
use crate::record::{EventName, record_table};
use crate::request::Requested;
use crate::time::Timestamp;

/// A record with its place in the project's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRecord {
    pub seq: u64,
    pub time: Timestamp,
    pub body: ProjectBody,
}

record_table! {
    /// What a record of a project's log says.
    ProjectBody derives (PartialEq, Eq)

    /// The project in the registry.
    Registry(RegistryBody) {
        Added(ProjectAdded) = "project_added" 1 Nothing [ProjectAdded];
        Moved(ProjectMoved) = "project_moved" 1 Nothing [ProjectMoved];
        Removed(ProjectRemoved) = "project_removed" 1 Nothing [ProjectRemoved];
        Read(ProjectRead) = "project_read" 1 Nothing [];
        Trusted(ProjectTrusted) = "project_trusted" 1 Nothing [ProjectTrusted];
        Requested(Requested) = "requested" 1 Nothing [];
    }

    /// Its issues and their todos.
    Issue(IssueBody) {
        Created(IssueCreated) = "issue_created" 1 Nothing [IssueCreated];
        Changed(IssueChanged) = "issue_changed" 1 Nothing [IssueChanged];
        Claimed(IssueClaimed) = "issue_claimed" 1 Nothing [];
        TodoAdded(TodoAdded) = "todo_added" 1 Nothing [TodoAdded];
        TodoChanged(TodoChanged) = "todo_changed" 1 Nothing [TodoChanged];
    }
}

/// The first record of every project's log, and the first after it was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectAdded {
    pub project: Name,
    /// An absolute path.
    pub directory: String,
    /// Whose it is: who else may see it is the daemon's owner alone.
    pub owner: u32,
    pub by: u32,
    /// Someone worked in the directory and it had no project file: it is a project all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

/// It is in another directory now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectMoved {
    pub directory: String,
    pub by: u32,
}

/// Taken out of the registry. Its directory is left alone, and its log stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRemoved {
    pub by: u32,
}

/// Its files were found right and were not as they last were. What they said is a blob of this log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRead {
    pub dsl_hash: String,
    pub dsl_snapshot: String,
}

/// The operator agreed to what this project file grants: see [`super::Project::trusts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectTrusted {
    /// The SHA-256 of the project file.
    pub dsl_hash: String,
    pub by: u32,
}

impl ProjectBody {
    /// The name under which the audit log and the WebSocket show this record.
    pub fn event(&self) -> Option<EventName> {
        self.kind_events().first().copied()
    }

    /// The issue that a record is about. A `requested` names the issue only through what it did.
    pub fn issue(&self) -> Option<IssueId> {
        match self {
            ProjectBody::Issue(body) => Some(match body {
                IssueBody::Created(created) => created.issue_id,
                IssueBody::Changed(changed) => changed.issue_id,
                IssueBody::Claimed(claimed) => claimed.issue_id,
                IssueBody::TodoAdded(added) => added.issue_id,
                IssueBody::TodoChanged(changed) => changed.issue_id,
            }),
            ProjectBody::Registry(_) => None,
        }
    }
}
