//! Where a new session begins when it does not begin empty.

use ctx_session::SessionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `resume_from` of a new session: the session it is a fork of, as it is now or up to a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ResumeFrom {
    #[schema(value_type = String)]
    Session(SessionId),
    At(ResumeAt),
}

/// A place in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeAt {
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The last record to take over, which must end a command. Default: all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Up to where it was paused at this checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

impl ResumeFrom {
    pub fn place(&self) -> ResumeAt {
        match self {
            ResumeFrom::Session(session) => ResumeAt { session: *session, seq: None, checkpoint: None },
            ResumeFrom::At(at) => at.clone(),
        }
    }
}
