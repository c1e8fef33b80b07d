//! The words for where a tool call stands, wherever the API shows one.

use ctx_session::record::ToolStatus;
use ctx_session::{CallId, Session};

/// Where a call stands that has started and has no result.
pub(super) fn open(session: &Session, call: CallId) -> &'static str {
    match session.control.open_approval_of(call) {
        Some(_) => WAITING_APPROVAL,
        None if session.has_its_turn(call) => RUNNING,
        None => PENDING,
    }
}

/// Where a call stands that has a result, or will have none.
pub(super) fn ended(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Ok | ToolStatus::Error => FINISHED,
        ToolStatus::Interrupted | ToolStatus::Skipped => status.as_str(),
    }
}

/// Its turn comes when the calls before it have their results and the session goes on.
pub(super) const PENDING: &str = "pending";
/// It has no result yet.
pub(super) const RUNNING: &str = "running";
/// It starts when the operator allows it.
const WAITING_APPROVAL: &str = "waiting_approval";
/// It has a result.
pub(super) const FINISHED: &str = "finished";
