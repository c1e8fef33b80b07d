//! Saved states of files.

use ctx_session::{Timestamp, Ulid};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::KeptFile;

/// `GET /snapshots`: one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    #[schema(value_type = String)]
    pub id: Ulid,
    #[schema(value_type = String)]
    pub created: Timestamp,
    /// `asked`, `shell`, `before_run`, `after_run`, `checkpoint` or `before_restore`.
    pub reason: String,
    /// The directory that it is of.
    pub workspace: String,
    pub files: u64,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session: Option<Ulid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<Ulid>,
    /// A checkpoint needs it: it does not go to make room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// `GET /snapshots/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotFiles {
    pub snapshot: Snapshot,
    pub workspace: String,
    pub files: Vec<SnapshotFile>,
    /// What is not part of it though it is not ignored.
    pub left_out: Vec<KeptFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotFile {
    /// From the workspace on; bytes that are no text are written as `\\xNN`.
    pub path: String,
    /// `file`, `dir` or `link`.
    pub kind: String,
    /// Octal; a link has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /snapshots/prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneSnapshots {
    /// Those from before this time go, but for what a rollback needs.
    #[schema(value_type = String)]
    pub before: Timestamp,
}

/// What a prune removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotsPruned {
    pub snapshots: u64,
    pub bytes: u64,
    /// The directories whose snapshots were left, and why: a damaged one, for example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}
