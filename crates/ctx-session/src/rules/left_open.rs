//! What a run or a subagent leaves open when it ends: tool calls, approvals, subagents. Each is settled once, by a record.

use super::subagent;
use crate::command::FinishedTool;
use crate::control::Approval;
use crate::ids::RunId;
use crate::record::{
    ApprovalBody, ApprovalOutcome, ApprovalScope, ApprovalSettled, Body, Caller, ExitCause, ToolStatus,
};
use crate::session::Session;
use crate::time::Timestamp;

/// What settles the subagents, tools and approvals that a run left open. The model reads why.
pub(super) fn interrupted(
    session: &Session,
    run: RunId,
    cause: ExitCause,
    why: &str,
    now: Timestamp,
) -> Vec<Body> {
    let approvals = session.control.open_approvals().filter(|approval| approval.asked.turn_id == run);
    let mut records: Vec<Body> = approvals.map(approval_interrupted).collect();
    records.extend(interrupted_calls(session, run, why, now, |caller| caller.is_some()));
    records.extend(subagent::all_exited(session, run, cause, now));
    records.extend(interrupted_calls(session, run, why, now, |caller| caller.is_none()));
    records
}

/// What settles the open tools of a run, of those callers.
pub(super) fn interrupted_calls(
    session: &Session,
    run: RunId,
    why: &str,
    now: Timestamp,
    whose: impl Fn(Option<&Caller>) -> bool,
) -> Vec<Body> {
    let open = session.open_tools_of(run).filter(|(_, tool)| whose(tool.caller.as_ref()));
    let settled = open.map(|(call_id, tool)| {
        let lasted = now.millis_since(tool.started);
        FinishedTool::new(call_id, ToolStatus::Interrupted, lasted, why).record(run, tool.caller.clone())
    });
    settled.collect()
}

/// What settles the calls of a run that were held and will never be made. Those of subagents are never held.
pub(super) fn skipped(session: &Session, run: RunId) -> impl Iterator<Item = Body> + '_ {
    let held = session.pending_calls().iter().filter(move |call| call.turn_id == run);
    let why = "the run ended before this tool was called";
    held.map(move |call| FinishedTool::new(call.call_id, ToolStatus::Skipped, 0, why).record(run, None))
}

pub(super) fn approval_interrupted(approval: &Approval) -> Body {
    Body::Approval(ApprovalBody::Settled(ApprovalSettled {
        turn_id: approval.asked.turn_id,
        approval_id: approval.asked.approval_id,
        outcome: ApprovalOutcome::Interrupted,
        scope: ApprovalScope::Call,
        by: None,
        note: None,
    }))
}
