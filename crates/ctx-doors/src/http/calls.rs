//! The words for where a tool call stands, wherever the API shows one.

use ctx_session::{CallId, Session};

/// Where a call stands that has started and has no result.
pub(super) fn open(session: &Session, call: CallId) -> &'static str {
    if session.control.open_approval_of(call).is_some() { WAITING_APPROVAL } else { RUNNING }
}

/// It starts when the session is resumed.
pub(super) const PENDING: &str = "pending";
/// It has no result yet.
pub(super) const RUNNING: &str = "running";
/// It starts when the operator allows it.
const WAITING_APPROVAL: &str = "waiting_approval";
/// It has a result.
pub(super) const FINISHED: &str = "finished";
