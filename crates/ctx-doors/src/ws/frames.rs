//! What an event looks like on the session's socket: a pure mapping to channel, type and payload.

use ctx_api::model;
use ctx_api::ws::Channel;
use ctx_engine::Event;
use ctx_engine::port::DeltaKind;
use ctx_session::project::{ProjectBody, ProjectRecord};
use ctx_session::record::{Body, StateChanged, StateName, Trigger};
use ctx_session::{Name, Record, conversation};
use serde_json::{Value, json};

/// A frame without its number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub channel: Channel,
    pub kind: &'static str,
    pub payload: Value,
}

fn output(kind: &'static str, payload: Value) -> Told {
    Told { channel: Channel::Output, kind, payload }
}

fn add(payload: &mut Value, name: &str, value: Value) {
    if let Some(fields) = payload.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

fn event(record: &Record, kind: &'static str, mut payload: Value) -> Told {
    add(&mut payload, "record_seq", json!(record.seq));
    add(&mut payload, "time", json!(record.time.as_millis()));
    Told { channel: Channel::Events, kind, payload }
}

/// The frames of an event, in order: one for most, two where the audit log has two.
pub(super) fn of_event(seen: &Event) -> Vec<Told> {
    match seen {
        Event::Delta { run, message, kind, text, .. } => {
            let kind = match kind {
                DeltaKind::Text => "delta",
                DeltaKind::Reasoning => "reasoning_delta",
            };
            vec![output(kind, json!({ "run_id": run, "message_id": message, "text": &**text }))]
        }
        Event::Record(record) => of_record(record),
        Event::Issue { project, record, .. } => of_issue(project, record).into_iter().collect(),
    }
}

/// What happened to the bound issue: the record's own fields, under the name that the audit log has for it.
fn of_issue(project: &Name, record: &ProjectRecord) -> Option<Told> {
    let kind = match &record.body {
        ProjectBody::IssueCreated(_) => "issue.created",
        ProjectBody::IssueChanged(_) => "issue.changed",
        ProjectBody::TodoAdded(_) => "todo.added",
        ProjectBody::TodoChanged(_) => "todo.changed",
        // The session itself tells whom it is bound to, and a project is no part of it.
        ProjectBody::IssueClaimed(_)
        | ProjectBody::ProjectAdded(_)
        | ProjectBody::ProjectMoved(_)
        | ProjectBody::ProjectRemoved(_)
        | ProjectBody::ProjectRead(_)
        | ProjectBody::Requested(_) => return None,
    };
    let mut payload = own_fields(&record.body);
    add(&mut payload, "project_id", json!(project));
    add(&mut payload, "project_seq", json!(record.seq));
    add(&mut payload, "time", json!(record.time.as_millis()));
    Some(Told { channel: Channel::Events, kind, payload })
}

/// A record's fields, under the names of the API.
fn own_fields(body: &impl serde::Serialize) -> Value {
    let mut payload = serde_json::to_value(body).unwrap_or_default();
    if let Some(fields) = payload.as_object_mut() {
        fields.remove("type");
        for (old, new) in [("turn_id", "run_id"), ("by", "user_id")] {
            if let Some(value) = fields.remove(old) {
                fields.insert(new.to_owned(), value);
            }
        }
    }
    payload
}

fn of_record(record: &Record) -> Vec<Told> {
    let time = record.time.as_millis();
    let one = |kind: &'static str, payload: Value| vec![event(record, kind, payload)];
    match &record.body {
        Body::User(user) => vec![output(
            "message",
            json!({ "id": user.message_id, "run_id": user.turn_id, "role": "user", "content": user.text,
                "client_id": user.client_id, "created_at": time, "record_seq": record.seq }),
        )],
        Body::AssistantFinished(done) => vec![output(
            "message",
            json!({ "id": done.message_id, "run_id": done.turn_id, "role": "assistant", "content": done.text,
                "finish_reason": done.finish_reason, "usage": done.usage, "created_at": time,
                "record_seq": record.seq }),
        )],
        Body::ToolStarted(tool) => vec![output(
            "tool_started",
            json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "name": tool.name, "input": tool.input,
                "created_at": time, "record_seq": record.seq }),
        )],
        Body::ToolFinished(tool) => vec![output(
            "tool_finished",
            json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "status": tool.status,
                "duration_ms": tool.duration_ms, "output": tool.output, "truncated": tool.truncated,
                "record_seq": record.seq }),
        )],
        Body::SessionMeta(meta) => one(
            "session.created",
            json!({ "session_id": meta.session_id, "project_id": meta.project, "user_id": meta.owner,
                "forked_from": meta.forked_from }),
        ),
        Body::Context(context) => {
            let payload = json!({ "run_id": context.turn_id, "model": model::in_api(&context.model), "cwd": context.cwd });
            one("run.context", payload)
        }
        Body::RunCreated(run) => {
            one("run.created", json!({ "run_id": run.turn_id, "kind": run.kind, "continues": run.continues }))
        }
        Body::AssistantStarted(step) => one(
            "run.step",
            json!({ "run_id": step.turn_id, "message_id": step.message_id, "model": model::in_api(&step.model),
                "step": step.step }),
        ),
        Body::ReasoningFinished(done) => one(
            "run.reasoning",
            json!({ "run_id": done.turn_id, "message_id": done.message_id, "text": done.text }),
        ),
        Body::RunFinished(end) => one(
            "run.completed",
            json!({ "run_id": end.turn_id, "state": "done", "duration_ms": end.duration_ms, "tokens": end.usage,
                "finish_reason": end.finish_reason }),
        ),
        Body::Failed(end) => one(
            "run.completed",
            json!({ "run_id": end.turn_id, "state": "failed", "duration_ms": end.duration_ms,
                "error": { "code": end.code, "reason": end.reason, "message": end.message } }),
        ),
        Body::Cancelled(end) => one(
            "run.cancelled",
            json!({ "run_id": end.turn_id, "reason": end.reason, "user_id": end.by,
                "duration_ms": end.duration_ms }),
        ),
        Body::QueuedDiscarded(gone) => one(
            "session.queued_discarded",
            json!({ "run_id": gone.turn_id, "message_id": gone.message_id, "user_id": gone.by }),
        ),
        Body::StateChanged(change) => of_move(record, change),
        Body::SessionRenamed(renamed) => one("session.renamed", json!({ "title": renamed.title })),
        Body::ModelSet(set) => {
            one("session.model_set", json!({ "model_override": set.model.as_deref().map(model::in_api) }))
        }
        Body::CwdChanged(changed) => one("session.cwd_changed", json!({ "cwd": changed.cwd })),
        Body::Attached(on) => one(
            "session.attached",
            json!({ "connection": on.connection, "user_id": on.user, "device_hint": on.device_hint }),
        ),
        Body::Detached(off) => one(
            "session.detached",
            json!({ "connection": off.connection, "user_id": off.user, "reason": off.reason }),
        ),
        Body::SessionFailed(failure) => one("session.failed", json!({ "failure": failure })),
        Body::Archived(archived) => {
            one("session.archived", json!({ "archived": archived.archived, "user_id": archived.by }))
        }
        // The client's own bookkeeping.
        Body::Requested(_) => Vec::new(),
        Body::Forked(forked) => one("session.forked", json!({ "user_id": forked.by })),
        Body::System(note) => vec![output(
            "message",
            json!({ "id": note.message_id, "run_id": note.turn_id, "role": "system", "content": note.text,
                "created_at": time, "record_seq": record.seq }),
        )],
        Body::ToolPending(tool) => one(
            "tool.pending",
            json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "name": tool.name, "input": tool.input }),
        ),
        Body::CheckpointCreated(_)
        | Body::PromptEdited(_)
        | Body::CheckpointResumed(_)
        | Body::RolledBack(_)
        | Body::Compaction(_)
        | Body::CompactionApproved(_)
        | Body::CompactionRejected(_)
        | Body::CompactionFlagged(_)
        | Body::CompactionsAggregated(_)
        | Body::ApprovalRequested(_)
        | Body::ApprovalSettled(_)
        | Body::Bound(_)
        | Body::MessagePinned(_)
        | Body::Unbound(_) => {
            let mut told = of_control(record);
            told.extend(summary(record));
            told
        }
    }
}

/// The message that stands for what a compaction took away.
fn summary(record: &Record) -> Option<Told> {
    let said = conversation::said(record)?;
    Some(output(
        "message",
        json!({ "id": said.id, "run_id": said.run, "role": said.role, "content": said.text(),
            "created_at": record.time.as_millis(), "record_seq": record.seq }),
    ))
}

/// What the operator did with the session: the record's own fields, under the name that the audit log has for it.
fn of_control(record: &Record) -> Vec<Told> {
    let kind = match &record.body {
        Body::CheckpointCreated(_) => "checkpoint.created",
        Body::PromptEdited(_) => "prompt.edited",
        Body::CheckpointResumed(_) => "checkpoint.resumed",
        Body::RolledBack(_) => "checkpoint.rolled_back",
        Body::Compaction(made) if made.proposed => "compaction.proposed",
        Body::Compaction(_) => "compaction.applied",
        Body::CompactionApproved(_) => "compaction.approved",
        Body::CompactionRejected(_) => "compaction.rejected",
        Body::CompactionFlagged(_) => "compaction.flagged",
        Body::CompactionsAggregated(_) => "compaction.aggregated",
        Body::ApprovalRequested(_) => "approval.requested",
        Body::ApprovalSettled(_) => "approval.settled",
        Body::Bound(_) => "session.bound",
        Body::Unbound(_) => "session.unbound",
        Body::MessagePinned(pin) if pin.pinned => "message.pinned",
        Body::MessagePinned(_) => "message.unpinned",
        _ => return Vec::new(),
    };
    let mut payload = own_fields(&record.body);
    // A time has one form at every door.
    if let Body::ApprovalRequested(asked) = &record.body {
        add(&mut payload, "expires_at", json!(asked.expires_at.as_millis()));
    }
    vec![event(record, kind, payload)]
}

/// A change of state, and beside it what the audit log calls it where it has a name of its own.
fn of_move(record: &Record, change: &StateChanged) -> Vec<Told> {
    let mut state = json!({ "from_state": change.from, "to_state": change.to, "trigger": change.trigger,
        "user_id": change.by });
    if change.to == StateName::Queued {
        add(&mut state, "queued", json!(true));
        add(&mut state, "reason", json!("concurrency_limit"));
        add(&mut state, "limit", json!(change.limit));
    }
    let mut told = vec![event(record, "session.state", state)];
    let besides = match change.trigger {
        Trigger::ConcurrencyLimit => Some("session.queued"),
        Trigger::QueueResumed => Some("session.resumed_from_queue"),
        Trigger::CrashRecovered => Some("session.crash_recovered"),
        Trigger::SessionEnded => Some("session.ended"),
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
        | Trigger::SessionFailed => None,
    };
    told.extend(
        besides.map(|kind| event(record, kind, json!({ "user_id": change.by, "limit": change.limit }))),
    );
    told
}
