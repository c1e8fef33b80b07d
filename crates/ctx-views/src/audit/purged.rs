//! A session that was purged: the one deed that no record tells of, because the log goes with the session.
//!
//! So what is to be told is a notice that the journal keeps from before the log goes until it has been told.

use ctx_session::Timestamp;
use ctx_session::record::SessionMeta;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EventName;
use super::map::{AuditEvent, RecordOf};

/// What is told of a session when it is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Purged {
    pub time: Timestamp,
    #[serde(flatten)]
    pub event: AuditEvent,
}

impl Purged {
    /// `next_seq` is the seq that the log's next record would have had; `by` is who purged it.
    pub fn new(meta: &SessionMeta, next_seq: u64, by: u32, time: Timestamp) -> Purged {
        let data = json!({
            "session_id": meta.session_id, "project_id": meta.project, "agent": meta.agent, "name": meta.name,
            "owner": meta.owner, "user_id": by,
        });
        let record = RecordOf::Session { session: meta.session_id, session_seq: next_seq };
        Purged { time, event: AuditEvent { event: EventName::SessionPurged, user: by, record, data } }
    }

    pub fn to_notice(&self) -> String {
        // This type has no map with keys that are not strings: serialising it cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn of_notice(notice: &str) -> Option<Purged> {
        serde_json::from_str(notice).ok()
    }
}
