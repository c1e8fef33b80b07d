//! The audit events of the operator's control over a session: checkpoints, prompts, compaction, approvals, the bound
//! issue. Pure; the table is published in `docs/audit.md`.

use ctx_session::record::Compaction;
use ctx_session::{Body, SessionId};
use serde_json::{Value, json};

use super::EventName;

/// What happened, who did it, and the rest.
pub(super) type Told = (EventName, Option<u32>, Value);

/// What one of these records is told as; nothing for any other record.
pub(super) fn told(id: SessionId, body: &Body) -> Option<Told> {
    of_checkpoint(id, body).or_else(|| of_compaction(id, body)).or_else(|| of_approval_or_issue(id, body))
}

fn of_checkpoint(id: SessionId, body: &Body) -> Option<Told> {
    match body {
        Body::CheckpointCreated(made) => {
            let data = json!({
                "checkpoint_id": made.checkpoint_id, "session_id": id, "created_by": made.created_by,
                "reason": made.reason,
            });
            Some((EventName::CheckpointCreated, made.by, data))
        }
        Body::PromptEdited(edited) => {
            let data = json!({
                "checkpoint_id": edited.checkpoint_id, "session_id": id, "target": edited.target,
                "old_hash": edited.old_hash, "new_hash": edited.new_hash,
            });
            Some((EventName::PromptEdited, Some(edited.by), data))
        }
        Body::CheckpointResumed(resumed) => {
            let targets: Vec<&str> = resumed.prompts.iter().map(|prompt| prompt.target.as_str()).collect();
            let data = json!({
                "checkpoint_id": resumed.checkpoint_id, "session_id": id, "prompts_edited": targets,
            });
            Some((EventName::CheckpointResumed, Some(resumed.by), data))
        }
        Body::RolledBack(back) => {
            let data = json!({
                "checkpoint_id": back.checkpoint_id, "session_id": id,
                "messages_superseded": back.superseded.len(), "messages_restored": back.restored.len(),
            });
            Some((EventName::CheckpointRolledBack, Some(back.by), data))
        }
        _ => None,
    }
}

fn of_compaction(id: SessionId, body: &Body) -> Option<Told> {
    match body {
        Body::Compaction(made) => {
            let name =
                if made.proposed { EventName::CompactionProposed } else { EventName::CompactionApplied };
            Some((name, None, compacted(id, made)))
        }
        Body::CompactionApproved(approved) => {
            let data = json!({
                "compaction_id": approved.compaction_id, "session_id": id, "run_id": approved.turn_id,
                "messages_superseded": approved.superseded_message_ids.len(),
                "outputs_elided": approved.elided_call_ids.len(), "user_id": approved.by,
            });
            Some((EventName::CompactionApproved, Some(approved.by), data))
        }
        Body::CompactionRejected(rejected) => {
            let data = json!({
                "compaction_id": rejected.compaction_id, "session_id": id, "user_id": rejected.by,
                "reason": rejected.reason,
            });
            Some((EventName::CompactionRejected, rejected.by, data))
        }
        Body::CompactionFlagged(flagged) => {
            let data = json!({
                "compaction_id": flagged.compaction_id, "session_id": id, "flag": flagged.flag,
                "notes": flagged.notes, "user_id": flagged.by,
            });
            Some((EventName::CompactionFlagged, Some(flagged.by), data))
        }
        _ => None,
    }
}

fn of_approval_or_issue(id: SessionId, body: &Body) -> Option<Told> {
    match body {
        Body::ApprovalRequested(asked) => {
            let data = json!({
                "approval_id": asked.approval_id, "session_id": id, "run_id": asked.turn_id,
                "call_id": asked.call_id, "tool": asked.tool, "subject": asked.subject,
                "expires_at": asked.expires_at.as_millis(),
            });
            Some((EventName::ApprovalRequested, None, data))
        }
        Body::ApprovalSettled(settled) => {
            let data = json!({
                "approval_id": settled.approval_id, "session_id": id, "run_id": settled.turn_id,
                "outcome": settled.outcome, "note": settled.note, "user_id": settled.by,
            });
            Some((EventName::ApprovalSettled, settled.by, data))
        }
        Body::Bound(bound) => {
            let data = json!({ "session_id": id, "issue_id": bound.issue_id, "user_id": bound.by });
            Some((EventName::SessionBound, Some(bound.by), data))
        }
        Body::Unbound(unbound) => {
            let data = json!({ "session_id": id, "issue_id": unbound.issue_id, "user_id": unbound.by });
            Some((EventName::SessionUnbound, Some(unbound.by), data))
        }
        Body::MessagePinned(pin) => {
            let data = json!({ "session_id": id, "message_id": pin.message_id, "user_id": pin.by });
            let name = if pin.pinned { EventName::MessagePinned } else { EventName::MessageUnpinned };
            Some((name, Some(pin.by), data))
        }
        _ => None,
    }
}

fn compacted(id: SessionId, made: &Compaction) -> Value {
    json!({
        "compaction_id": made.compaction_id, "session_id": id, "run_id": made.turn_id,
        "agent_path": made.agent_path, "trigger": made.trigger, "strategy": made.strategy,
        "threshold_estimate": made.threshold_estimate, "after_estimate": made.after_estimate,
        "messages_superseded": made.superseded_message_ids.len(), "outputs_elided": made.elided_call_ids.len(),
        "fallback_reason": made.fallback_reason,
    })
}
