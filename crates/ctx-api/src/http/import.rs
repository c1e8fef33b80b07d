//! Sessions of other agents that are brought in.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Records of a session, and what the session is where it is new.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBatch {
    /// One id for everything that one import brings in.
    pub import_id: String,
    pub agent: String,
    /// The session's id here: the source always gives the same.
    pub session: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// Where the session comes from: `agent`, `native_id`, `path` and what the source says besides.
    #[schema(value_type = Object)]
    pub origin: Value,
    /// Records as `docs/records.md` has them, each with its `time`.
    #[schema(value_type = Vec<Object>)]
    pub records: Vec<Box<RawValue>>,
    /// Messages that count no more: the user left them to say something else in their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<String>,
    /// Nothing changes; the answer says how many records would be added.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportDone {
    pub session: String,
    pub created: bool,
    /// Records that were not there before.
    pub added: u64,
}

/// A session that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedSession {
    pub session: String,
    pub agent: String,
    pub native_id: String,
    /// The import that made it, or the newest that added to it and was not taken back.
    pub import_id: String,
}

/// What came of taking the newest import back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportUndone {
    /// None: there was none.
    pub import_id: Option<String>,
    pub removed: u64,
    /// Sessions of earlier imports from which what it had added was taken.
    #[serde(default)]
    pub taken_back: u64,
    pub kept: Vec<KeptSession>,
}

/// A session that an undone import leaves where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptSession {
    pub session: String,
    pub why: String,
}
