//! Deeds that no record describes: a session that was purged, because its log goes with it, and a root that was taken over.
//!
//! A purge leaves a notice that the journal keeps from before the log goes until it has been audited.

use ctx_session::Timestamp;
use ctx_session::record::SessionMeta;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EventName;
use super::map::{AuditEvent, RecordOf};

/// A deed that is audited once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    pub time: Timestamp,
    #[serde(flatten)]
    pub event: AuditEvent,
}

impl Deed {
    /// `next_seq` is the seq that the log's next record would have had; `by` is who purged it.
    pub fn new(meta: &SessionMeta, next_seq: u64, by: u32, time: Timestamp) -> Deed {
        let data = json!({
            "session_id": meta.session_id, "project_id": meta.project, "agent": meta.agent, "name": meta.name,
            "owner": meta.owner, "user_id": by,
        });
        let record = RecordOf::Session { session: meta.session_id, session_seq: next_seq };
        Deed { time, event: AuditEvent { event: EventName::SessionPurged, user: by, record, data } }
    }

    /// Logs that belonged to users are the daemon's now.
    pub fn taken_over(layout: u64, logs: u64, daemon: u32, time: Timestamp) -> Deed {
        let (event, record) = (EventName::RootTakenOver, RecordOf::Root { layout });
        Deed {
            time,
            event: AuditEvent {
                event,
                user: daemon,
                record,
                data: json!({ "layout": layout, "logs": logs, "user_id": daemon }),
            },
        }
    }

    pub fn to_notice(&self) -> String {
        // This type has no map with keys that are not strings: serialising it cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn of_notice(notice: &str) -> Option<Deed> {
        serde_json::from_str(notice).ok()
    }
}
