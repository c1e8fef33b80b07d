//! Projects as the API shows them.

use ctx_session::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A project. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Its slug.
    #[schema(value_type = String)]
    pub id: Name,
    pub directory: String,
    pub owner: u32,
    /// `ready`, or `invalid`: then it refuses new sessions.
    pub state: ProjectState,
    /// What is wrong with its files, when it is invalid.
    pub errors: Vec<ProjectError>,
    /// The agent that a session has when none is named.
    #[schema(value_type = Option<String>)]
    pub agent: Option<Name>,
    /// The SHA-256 of the project file, when it is right.
    pub dsl_hash: Option<String>,
    /// The SHA-256 of the file and its prompts together: a session that keeps another one is stale.
    pub dsl_snapshot: Option<String>,
    /// What the file grants, one line each: it holds only once its owner has agreed to the file.
    #[serde(default)]
    pub grants: Vec<String>,
    /// Whether new sessions can begin as far as the grants go; `POST /projects/:id/trust` agrees to them.
    #[serde(default)]
    pub trusted: bool,
    /// Where what holds for a directory is not what was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    pub added_at: u64,
    pub updated_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProjectState {
    Ready,
    Invalid,
}

/// Something in a project's files that cannot stay as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectError {
    pub code: String,
    /// Relative to the project's directory.
    pub file: String,
    pub line: u64,
    pub column: u64,
    pub message: String,
}

/// `POST /projects`: register a `directory` with a project file, or ask for the project that `dir` belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProject {
    /// An absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The directory that a client is in. Its project is the nearest directory with a project file, else the root of
    /// the git work tree, else the directory itself; it is registered if it is not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Default: what its file says, or else what the directory is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// `POST /projects/:id/trust`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectTrust {
    /// The `dsl_hash` that was read; another file is refused. Default: as the file is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// `PUT /projects/:id`: the directory was moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}
