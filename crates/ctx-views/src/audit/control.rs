//! The fields of the audit events of checkpoints, prompt edits, compactions, approvals and subagents. Pure; the table is published
//! in `docs/audit.md`.

use ctx_session::SessionId;
use ctx_session::record::{
    ApprovalBody, CheckpointBody, Compaction, CompactionBody, SubagentBody, TerminalBody,
};
use serde_json::{Value, json};

/// Who did it, and the fields.
type Audited = (Option<u32>, Value);

pub(super) fn of_checkpoint(id: SessionId, body: &CheckpointBody) -> Audited {
    match body {
        CheckpointBody::Created(made) => {
            let data = json!({
                "checkpoint_id": made.checkpoint_id, "session_id": id, "created_by": made.created_by,
                "reason": made.reason,
            });
            (made.by, data)
        }
        CheckpointBody::PromptEdited(edited) => {
            let data = json!({
                "checkpoint_id": edited.checkpoint_id, "session_id": id, "target": edited.target,
                "old_hash": edited.old_hash, "new_hash": edited.new_hash,
            });
            (Some(edited.by), data)
        }
        CheckpointBody::Resumed(resumed) => {
            let targets: Vec<&str> = resumed.prompts.iter().map(|prompt| prompt.target.as_str()).collect();
            let data = json!({
                "checkpoint_id": resumed.checkpoint_id, "session_id": id, "prompts_edited": targets,
            });
            (Some(resumed.by), data)
        }
        CheckpointBody::RolledBack(back) => {
            let data = json!({
                "checkpoint_id": back.checkpoint_id, "session_id": id,
                "messages_superseded": back.superseded.len(), "messages_restored": back.restored.len(),
            });
            (Some(back.by), data)
        }
    }
}

pub(super) fn of_compaction(id: SessionId, body: &CompactionBody) -> Option<Audited> {
    Some(match body {
        CompactionBody::Recorded(made) => (None, compacted(id, made)),
        CompactionBody::Approved(approved) => {
            let data = json!({
                "compaction_id": approved.compaction_id, "session_id": id, "run_id": approved.turn_id,
                "messages_superseded": approved.superseded_message_ids.len(),
                "outputs_elided": approved.elided_call_ids.len(), "user_id": approved.by,
            });
            (Some(approved.by), data)
        }
        CompactionBody::Rejected(rejected) => {
            let data = json!({
                "compaction_id": rejected.compaction_id, "session_id": id, "user_id": rejected.by,
                "reason": rejected.reason,
            });
            (rejected.by, data)
        }
        CompactionBody::Flagged(flagged) => {
            let data = json!({
                "compaction_id": flagged.compaction_id, "session_id": id, "flag": flagged.flag,
                "notes": flagged.notes, "user_id": flagged.by,
            });
            (Some(flagged.by), data)
        }
        CompactionBody::Aggregated(_) => return None,
    })
}

pub(super) fn of_approval(id: SessionId, body: &ApprovalBody) -> Audited {
    match body {
        ApprovalBody::Requested(asked) => {
            let data = json!({
                "approval_id": asked.approval_id, "session_id": id, "run_id": asked.turn_id,
                "call_id": asked.call_id, "tool": asked.tool, "subject": asked.subject, "pattern": asked.pattern,
                "expires_at": asked.expires_at.as_millis(),
            });
            (None, data)
        }
        ApprovalBody::Settled(settled) => {
            let data = json!({
                "approval_id": settled.approval_id, "session_id": id, "run_id": settled.turn_id,
                "outcome": settled.outcome, "scope": settled.scope, "note": settled.note, "user_id": settled.by,
            });
            (settled.by, data)
        }
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

/// The start and the end of a subagent: the run's owner is who they happen to.
pub(super) fn of_subagent(id: SessionId, body: &SubagentBody) -> Option<Value> {
    Some(match body {
        SubagentBody::Spawned(spawned) => json!({
            "invocation_id": spawned.invocation_id, "session_id": id, "run_id": spawned.turn_id,
            "subagent_name": spawned.name, "model": spawned.model,
            "walltime_ms": spawned.walltime_ms, "memory_bytes": spawned.memory_bytes,
        }),
        SubagentBody::Exited(exited) => json!({
            "invocation_id": exited.invocation_id, "session_id": id, "run_id": exited.turn_id,
            "subagent_name": exited.name, "state": exited.state, "cause": exited.cause,
            "exit_code": exited.exit_code, "duration_ms": exited.duration_ms, "message": exited.message,
        }),
        SubagentBody::Running(_) => return None,
    })
}

/// What happens to a terminal, and who did it.
pub(super) fn of_terminal(id: SessionId, body: &TerminalBody) -> (Option<u32>, Value) {
    match body {
        TerminalBody::Opened(opened) => {
            let subagent = opened.caller.as_ref().map(|caller| &caller.name);
            let data = json!({
                "pty_id": opened.pty_id, "session_id": id, "run_id": opened.turn_id, "subagent_name": subagent,
                "command": opened.command, "caged": opened.caged,
            });
            (Some(opened.by), data)
        }
        TerminalBody::Closed(closed) => {
            let data = json!({
                "pty_id": closed.pty_id, "session_id": id, "run_id": closed.turn_id, "reason": closed.reason,
                "exit_code": closed.exit_code, "transcript_lines": closed.transcript_lines,
            });
            (None, data)
        }
        TerminalBody::Reattached(back) => {
            let data = json!({
                "pty_id": back.pty_id, "session_id": id, "user_id": back.user,
                "scrollback_lines_sent": back.scrollback_lines,
            });
            (Some(back.user), data)
        }
    }
}
