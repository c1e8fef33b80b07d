//! The files that a session changed, and taking that back.

use ctx_session::{RunId, Ulid};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /sessions/:id/changes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The directory that the paths are in; null: no file changes of the session are saved.
    pub workspace: Option<String>,
    /// Paths that are as they were before the session are not here.
    pub files: Vec<ChangedFile>,
}

/// A file that a session's runs have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedFile {
    /// From the workspace on; bytes that are no text are written as `\\xNN`.
    pub path: String,
    /// `created`, `changed` or `removed`.
    pub change: String,
    /// The runs that changed it.
    #[schema(value_type = Vec<String>)]
    pub runs: Vec<RunId>,
    /// Someone else may have done it: no tool of the run accounts for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// Someone else changed it between two runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
    /// A patch for `git apply`, where it was asked for and both sides are text. Empty directories, and of modes all but whether
    /// a file is executable, are in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// `POST /sessions/:id/undo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// Only say what would change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Files that went back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilesBack {
    pub workspace: String,
    pub changed: Vec<FileBack>,
    /// Files that were changed again since, and were left as they are.
    pub kept: Vec<KeptFile>,
    /// Of those that went back, paths whose change someone else may have made during a run.
    pub uncertain: Vec<String>,
    /// Of runs whose end could not be saved, the snapshots before them: what they changed is not known, and was left.
    #[schema(value_type = Vec<String>)]
    #[serde(default)]
    pub unknown: Vec<Ulid>,
    /// The snapshot that brings everything back: `ctx snapshots restore`. Null: nothing was changed yet.
    #[schema(value_type = Option<String>)]
    pub undo: Option<Ulid>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileBack {
    pub path: String,
    /// What happened to it now: `created`, `changed` or `removed`.
    pub change: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptFile {
    pub path: String,
    pub why: String,
}
