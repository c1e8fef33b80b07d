//! What a project's log says, one line each. The journal owns the envelope; the records of issues and todos
//! are defined in `issue`.

use serde::{Deserialize, Serialize};

use super::issue::{IssueChanged, IssueClaimed, IssueCreated, TodoAdded, TodoChanged};
use crate::ids::IssueId;
use crate::name::Name;
use crate::request::Requested;
use crate::time::Timestamp;

/// A record with its place in the project's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRecord {
    pub seq: u64,
    pub time: Timestamp,
    pub body: ProjectBody,
}

/// What a record says. Adding one means deciding it in every `match` over bodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ProjectBody {
    ProjectAdded(ProjectAdded),
    ProjectMoved(ProjectMoved),
    ProjectRemoved(ProjectRemoved),
    ProjectRead(ProjectRead),
    IssueCreated(IssueCreated),
    IssueChanged(IssueChanged),
    IssueClaimed(IssueClaimed),
    TodoAdded(TodoAdded),
    TodoChanged(TodoChanged),
    Requested(Requested),
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

/// What a line of a project's log turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    Known(ProjectBody),
    /// A type of a later version: kept in the log, passed over here.
    Unknown,
    /// A type of ours whose fields do not fit: passed over with a warning.
    Malformed(String),
}

impl ProjectBody {
    /// The issue that a record is about.
    pub fn issue(&self) -> Option<IssueId> {
        match self {
            ProjectBody::IssueCreated(created) => Some(created.issue_id),
            ProjectBody::IssueChanged(changed) => Some(changed.issue_id),
            ProjectBody::IssueClaimed(claimed) => Some(claimed.issue_id),
            ProjectBody::TodoAdded(added) => Some(added.issue_id),
            ProjectBody::TodoChanged(changed) => Some(changed.issue_id),
            // That a request was carried out is told by what it did.
            ProjectBody::Requested(_)
            | ProjectBody::ProjectAdded(_)
            | ProjectBody::ProjectMoved(_)
            | ProjectBody::ProjectRemoved(_)
            | ProjectBody::ProjectRead(_) => None,
        }
    }

    /// The body as the journal wants it: a JSON object that begins with its `type`.
    pub fn to_json(&self) -> String {
        // Serialising these types cannot fail: no map has keys that are not strings.
        serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"unwritable"}"#.to_owned())
    }

    /// Every type of record; [`ProjectBody::decode`] knows the same.
    pub const KINDS: &'static [&'static str] = &[
        "project_added",
        "project_moved",
        "project_removed",
        "project_read",
        "issue_created",
        "issue_changed",
        "issue_claimed",
        "todo_added",
        "todo_changed",
        "requested",
    ];

    /// Reads the body out of a whole line of the log, envelope and all.
    pub fn decode(kind: &str, line: &str) -> Decoded {
        fn read<'a, T: Deserialize<'a>>(line: &'a str, wrap: impl FnOnce(T) -> ProjectBody) -> Decoded {
            match serde_json::from_str(line) {
                Ok(fields) => Decoded::Known(wrap(fields)),
                Err(error) => Decoded::Malformed(error.to_string()),
            }
        }
        match kind {
            "project_added" => read(line, ProjectBody::ProjectAdded),
            "project_moved" => read(line, ProjectBody::ProjectMoved),
            "project_removed" => read(line, ProjectBody::ProjectRemoved),
            "project_read" => read(line, ProjectBody::ProjectRead),
            "issue_created" => read(line, ProjectBody::IssueCreated),
            "issue_changed" => read(line, ProjectBody::IssueChanged),
            "issue_claimed" => read(line, ProjectBody::IssueClaimed),
            "todo_added" => read(line, ProjectBody::TodoAdded),
            "todo_changed" => read(line, ProjectBody::TodoChanged),
            "requested" => read(line, ProjectBody::Requested),
            _ => Decoded::Unknown,
        }
    }
}
