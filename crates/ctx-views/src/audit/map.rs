//! Which audit events a commit of a session amounts to. Pure; the table is published in `docs/audit.md`.

use ctx_session::record::{
    Attached, Detached, LimitScope, QueuedDiscarded, SessionMeta, StateChanged, Trigger, Usage,
};
use ctx_session::{Body, Name, Record, RunId, Session, SessionId, StateName, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::control::{self, Told};
use crate::identity;

/// Characters of a message that the log of deeds repeats.
const PREVIEW_CHARS: usize = 80;

/// The words for what can happen. Each is a row of the table in `docs/audit.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventName {
    #[serde(rename = "session.created")]
    SessionCreated,
    #[serde(rename = "session.queued")]
    SessionQueued,
    #[serde(rename = "session.resumed_from_queue")]
    SessionResumedFromQueue,
    #[serde(rename = "session.queued_discarded")]
    SessionQueuedDiscarded,
    #[serde(rename = "session.state")]
    SessionState,
    #[serde(rename = "session.attached")]
    SessionAttached,
    #[serde(rename = "session.detached")]
    SessionDetached,
    #[serde(rename = "session.ended")]
    SessionEnded,
    #[serde(rename = "session.purged")]
    SessionPurged,
    #[serde(rename = "session.crash_recovered")]
    SessionCrashRecovered,
    #[serde(rename = "run.created")]
    RunCreated,
    #[serde(rename = "run.completed")]
    RunCompleted,
    #[serde(rename = "run.cancelled")]
    RunCancelled,
    #[serde(rename = "checkpoint.created")]
    CheckpointCreated,
    #[serde(rename = "checkpoint.resumed")]
    CheckpointResumed,
    #[serde(rename = "checkpoint.rolled_back")]
    CheckpointRolledBack,
    #[serde(rename = "prompt.edited")]
    PromptEdited,
    #[serde(rename = "compaction.proposed")]
    CompactionProposed,
    #[serde(rename = "compaction.applied")]
    CompactionApplied,
    #[serde(rename = "compaction.approved")]
    CompactionApproved,
    #[serde(rename = "compaction.rejected")]
    CompactionRejected,
    #[serde(rename = "compaction.flagged")]
    CompactionFlagged,
    #[serde(rename = "approval.requested")]
    ApprovalRequested,
    #[serde(rename = "approval.settled")]
    ApprovalSettled,
    #[serde(rename = "session.bound")]
    SessionBound,
    #[serde(rename = "session.unbound")]
    SessionUnbound,
    #[serde(rename = "message.pinned")]
    MessagePinned,
    #[serde(rename = "message.unpinned")]
    MessageUnpinned,
    #[serde(rename = "project.added")]
    ProjectAdded,
    #[serde(rename = "project.moved")]
    ProjectMoved,
    #[serde(rename = "project.removed")]
    ProjectRemoved,
    #[serde(rename = "issue.created")]
    IssueCreated,
    #[serde(rename = "issue.changed")]
    IssueChanged,
    #[serde(rename = "todo.added")]
    TodoAdded,
    #[serde(rename = "todo.changed")]
    TodoChanged,
}

impl EventName {
    pub const ALL: [EventName; 35] = [
        EventName::SessionCreated,
        EventName::SessionQueued,
        EventName::SessionResumedFromQueue,
        EventName::SessionQueuedDiscarded,
        EventName::SessionState,
        EventName::SessionAttached,
        EventName::SessionDetached,
        EventName::SessionEnded,
        EventName::SessionPurged,
        EventName::SessionCrashRecovered,
        EventName::RunCreated,
        EventName::RunCompleted,
        EventName::RunCancelled,
        EventName::CheckpointCreated,
        EventName::CheckpointResumed,
        EventName::CheckpointRolledBack,
        EventName::PromptEdited,
        EventName::CompactionProposed,
        EventName::CompactionApplied,
        EventName::CompactionApproved,
        EventName::CompactionRejected,
        EventName::CompactionFlagged,
        EventName::ApprovalRequested,
        EventName::ApprovalSettled,
        EventName::SessionBound,
        EventName::SessionUnbound,
        EventName::MessagePinned,
        EventName::MessageUnpinned,
        EventName::ProjectAdded,
        EventName::ProjectMoved,
        EventName::ProjectRemoved,
        EventName::IssueCreated,
        EventName::IssueChanged,
        EventName::TodoAdded,
        EventName::TodoChanged,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            EventName::SessionCreated => "session.created",
            EventName::SessionQueued => "session.queued",
            EventName::SessionResumedFromQueue => "session.resumed_from_queue",
            EventName::SessionQueuedDiscarded => "session.queued_discarded",
            EventName::SessionState => "session.state",
            EventName::SessionAttached => "session.attached",
            EventName::SessionDetached => "session.detached",
            EventName::SessionEnded => "session.ended",
            EventName::SessionPurged => "session.purged",
            EventName::SessionCrashRecovered => "session.crash_recovered",
            EventName::RunCreated => "run.created",
            EventName::RunCompleted => "run.completed",
            EventName::RunCancelled => "run.cancelled",
            EventName::CheckpointCreated => "checkpoint.created",
            EventName::CheckpointResumed => "checkpoint.resumed",
            EventName::CheckpointRolledBack => "checkpoint.rolled_back",
            EventName::PromptEdited => "prompt.edited",
            EventName::CompactionProposed => "compaction.proposed",
            EventName::CompactionApplied => "compaction.applied",
            EventName::CompactionApproved => "compaction.approved",
            EventName::CompactionRejected => "compaction.rejected",
            EventName::CompactionFlagged => "compaction.flagged",
            EventName::ApprovalRequested => "approval.requested",
            EventName::ApprovalSettled => "approval.settled",
            EventName::SessionBound => "session.bound",
            EventName::SessionUnbound => "session.unbound",
            EventName::MessagePinned => "message.pinned",
            EventName::MessageUnpinned => "message.unpinned",
            EventName::ProjectAdded => "project.added",
            EventName::ProjectMoved => "project.moved",
            EventName::ProjectRemoved => "project.removed",
            EventName::IssueCreated => "issue.created",
            EventName::IssueChanged => "issue.changed",
            EventName::TodoAdded => "todo.added",
            EventName::TodoChanged => "todo.changed",
        }
    }
}

/// Something that someone did, or that happened to what is theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEvent {
    pub event: EventName,
    /// Who did it; the session's owner where nobody in particular did.
    pub user: u32,
    #[serde(flatten)]
    pub record: RecordOf,
    pub data: Value,
}

/// The record that says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordOf {
    Session { session: SessionId, session_seq: u64 },
    Project { project: Name, project_seq: u64 },
}

impl AuditEvent {
    /// The session that it happened in, or whose run did it.
    pub fn session(&self) -> Option<SessionId> {
        match &self.record {
            RecordOf::Session { session, .. } => Some(*session),
            RecordOf::Project { .. } => {
                self.data.get("session_id").and_then(Value::as_str).and_then(|id| id.parse().ok())
            }
        }
    }
}

/// Whether a record of this kind can give events, for readers that have not decoded it.
pub(super) fn is_audited(kind: &str) -> bool {
    matches!(
        kind,
        "session_meta"
            | "run_created"
            | "run_finished"
            | "cancelled"
            | "failed"
            | "queued_discarded"
            | "state_changed"
            | "attached"
            | "detached"
            | "checkpoint_created"
            | "prompt_edited"
            | "checkpoint_resumed"
            | "rolled_back"
            | "compaction"
            | "compaction_approved"
            | "compaction_rejected"
            | "compaction_flagged"
            | "approval_requested"
            | "approval_settled"
            | "bound"
            | "unbound"
            | "message_pinned"
    )
}

/// The events of one commit. `session` has its records applied. What a fork copied from its source was audited
/// there.
pub fn events(session: &Session, commit: &[Record]) -> Vec<AuditEvent> {
    let copied = session.meta.forked_from.map_or(0, |from| from.seq);
    let own = commit.iter().filter(|record| record.seq == 0 || record.seq > copied);
    own.flat_map(|record| of_record(session, commit, record)).collect()
}

fn of_record(session: &Session, commit: &[Record], record: &Record) -> Vec<AuditEvent> {
    let owner = session.meta.owner;
    let event = |event, user: Option<u32>, data| AuditEvent {
        event,
        user: user.unwrap_or(owner),
        record: RecordOf::Session { session: session.id(), session_seq: record.seq },
        data,
    };
    let id = session.id();
    match &record.body {
        Body::SessionMeta(meta) if identity::tells_creation(meta) => {
            vec![event(EventName::SessionCreated, None, created(meta))]
        }
        // What a damaged log was, written down again.
        Body::SessionMeta(_) => Vec::new(),
        Body::RunCreated(_) | Body::RunFinished(_) | Body::Failed(_) | Body::Cancelled(_) => {
            let told = of_run(session, commit, &record.body);
            told.into_iter().map(|(name, user, data)| event(name, user, data)).collect()
        }
        Body::QueuedDiscarded(QueuedDiscarded { turn_id, message_id, by }) => {
            let data =
                json!({ "session_id": id, "run_id": turn_id, "message_id": message_id, "user_id": by });
            vec![event(EventName::SessionQueuedDiscarded, Some(*by), data)]
        }
        Body::StateChanged(change) => {
            let mut events = vec![event(EventName::SessionState, change.by, moved(id, change))];
            let more = with_state(session, commit, change, record.time);
            events.extend(more.map(|(name, data)| event(name, change.by, data)));
            events
        }
        Body::Attached(Attached { user, device_hint, .. }) => {
            let data = json!({ "session_id": id, "user_id": user, "device_hint": device_hint });
            vec![event(EventName::SessionAttached, Some(*user), data)]
        }
        Body::Detached(Detached { user, reason, .. }) => {
            let data = json!({ "session_id": id, "user_id": user, "reason": reason });
            vec![event(EventName::SessionDetached, Some(*user), data)]
        }
        Body::CheckpointCreated(_)
        | Body::PromptEdited(_)
        | Body::CheckpointResumed(_)
        | Body::RolledBack(_)
        | Body::Compaction(_)
        | Body::CompactionApproved(_)
        | Body::CompactionRejected(_)
        | Body::CompactionFlagged(_)
        | Body::ApprovalRequested(_)
        | Body::ApprovalSettled(_)
        | Body::Bound(_)
        | Body::MessagePinned(_)
        | Body::Unbound(_) => {
            let told = control::told(id, &record.body);
            told.map(|(name, user, data)| event(name, user, data)).into_iter().collect()
        }
        Body::Context(_)
        | Body::Requested(_)
        | Body::User(_)
        | Body::AssistantStarted(_)
        | Body::AssistantFinished(_)
        | Body::ReasoningFinished(_)
        | Body::ToolStarted(_)
        | Body::ToolFinished(_)
        | Body::SessionRenamed(_)
        | Body::ModelSet(_)
        | Body::CwdChanged(_)
        | Body::SessionFailed(_)
        | Body::Archived(_)
        | Body::Forked(_)
        | Body::System(_)
        | Body::ToolPending(_)
        | Body::CompactionsAggregated(_) => Vec::new(),
    }
}

/// The beginning and the end of a run; nothing for any other record.
fn of_run(session: &Session, commit: &[Record], body: &Body) -> Vec<Told> {
    let id = session.id();
    let ended = |run, state, ms| completed(run, state, ms, usage_of(session, run));
    match body {
        Body::RunCreated(run) => {
            let preview = message_preview(commit, run.turn_id);
            let data = json!({
                "run_id": run.turn_id, "session_id": id, "kind": run.kind, "message_preview": preview,
            });
            vec![(EventName::RunCreated, begun_by(commit), data)]
        }
        Body::RunFinished(end) => {
            let data = completed(end.turn_id, "done", end.duration_ms, end.usage);
            vec![(EventName::RunCompleted, None, data)]
        }
        Body::Failed(end) => {
            vec![(EventName::RunCompleted, None, ended(end.turn_id, "failed", end.duration_ms))]
        }
        Body::Cancelled(end) => {
            let by = end.by.unwrap_or(session.meta.owner);
            let data = json!({ "run_id": end.turn_id, "session_id": id, "user_id": by });
            let done = ended(end.turn_id, "cancelled", end.duration_ms);
            vec![(EventName::RunCompleted, end.by, done), (EventName::RunCancelled, end.by, data)]
        }
        _ => Vec::new(),
    }
}

fn created(meta: &SessionMeta) -> Value {
    let forked_from = meta.forked_from.map(|from| from.session_id);
    json!({
        "session_id": meta.session_id, "project_id": meta.project, "user_id": meta.owner, "forked_from": forked_from,
    })
}

fn moved(session: SessionId, change: &StateChanged) -> Value {
    json!({
        "session_id": session, "from_state": change.from, "to_state": change.to, "trigger": change.trigger,
    })
}

/// What a change of state is besides.
fn with_state(
    session: &Session,
    commit: &[Record],
    change: &StateChanged,
    time: Timestamp,
) -> Option<(EventName, Value)> {
    let id = session.id();
    let newest = session.runs().next_back();
    let run = newest.map(|run| run.id);
    match change.trigger {
        Trigger::ConcurrencyLimit => {
            let reason = change.limit.map(|limit| match limit.scope {
                LimitScope::PerProject => "per_project",
                LimitScope::PerOperator => "per_operator",
            });
            let data = json!({
                "session_id": id, "run_id": run, "message_id": newest.and_then(|run| run.message_id), "reason": reason,
                "running_count": change.limit.map(|limit| limit.running),
                "limit": change.limit.map(|limit| limit.limit),
            });
            Some((EventName::SessionQueued, data))
        }
        Trigger::QueueResumed => {
            let data = json!({
                "session_id": id, "run_id": run, "user_id": change.by.unwrap_or(session.meta.owner),
                "running_count": change.limit.map(|limit| limit.running),
            });
            Some((EventName::SessionResumedFromQueue, data))
        }
        Trigger::CrashRecovered => {
            let failed = commit.iter().find_map(|record| match &record.body {
                Body::Failed(failed) => Some(failed.turn_id),
                _ => None,
            });
            let data = json!({ "session_id": id, "failed_run_id": failed });
            Some((EventName::SessionCrashRecovered, data))
        }
        Trigger::SessionEnded if change.to == StateName::Ended => {
            let data = json!({
                "session_id": id, "user_id": change.by.unwrap_or(session.meta.owner),
                "run_count": session.runs().count(), "duration": time.millis_since(session.created_at),
            });
            Some((EventName::SessionEnded, data))
        }
        Trigger::MessagePosted
        | Trigger::QueuedDiscarded
        | Trigger::RunCompleted
        | Trigger::RunFailed
        | Trigger::RunCancelled
        | Trigger::Checkpoint
        | Trigger::CheckpointResumed
        | Trigger::RolledBack
        | Trigger::CompactionRequested
        | Trigger::CompactionApproved
        | Trigger::CompactionRejected
        | Trigger::SessionEnded
        | Trigger::SessionFailed => None,
    }
}

fn completed(run: RunId, state: &str, duration_ms: u64, usage: Usage) -> Value {
    json!({ "run_id": run, "state": state, "duration_ms": duration_ms, "tokens": usage })
}

fn usage_of(session: &Session, run: RunId) -> Usage {
    session.run(run).map(|run| run.usage).unwrap_or_default()
}

/// Who began the run of a commit: the move that goes with it says so.
fn begun_by(commit: &[Record]) -> Option<u32> {
    commit.iter().find_map(|record| match &record.body {
        Body::StateChanged(change) => change.by,
        _ => None,
    })
}

/// The beginning of the message that a run was created with, on one line.
fn message_preview(commit: &[Record], run: RunId) -> Option<String> {
    commit.iter().find_map(|record| match &record.body {
        Body::User(user) if user.turn_id == run => {
            let line = user.text.chars().map(|c| if c.is_control() { ' ' } else { c });
            Some(line.take(PREVIEW_CHARS).collect())
        }
        _ => None,
    })
}
