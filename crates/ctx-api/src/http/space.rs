//! Spaces on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A space: the members of its group read and resume the sessions in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    pub name: String,
    /// The group as it was called when the space was made.
    pub group: String,
    pub gid: u32,
    /// The uid of whoever made it.
    pub created_by: u32,
    /// Epoch milliseconds.
    pub created_at: u64,
}

/// `POST /spaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSpace {
    pub name: String,
    /// A group of this machine, by name or number.
    pub group: String,
}
