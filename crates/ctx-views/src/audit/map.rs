//! Which audit events a commit of a session amounts to. Pure; the table is published in `docs/audit.md`.

use ctx_session::record::{
    Bound, EventName, ImportUndone, Imported, LimitScope, MessageBody, QueuedDiscarded, RunBody, SessionBody,
    SessionMeta, StateChanged, Unbound, Usage,
};
use ctx_session::{Body, Name, Record, RunId, Session, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::control;
use crate::identity;

/// Characters of a message that the log of deeds repeats.
const PREVIEW_CHARS: usize = 80;

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
    Session {
        session: SessionId,
        session_seq: u64,
    },
    Project {
        project: Name,
        project_seq: u64,
    },
    /// No record: the daemon did it to the root itself, once for each layout.
    Root {
        layout: u64,
    },
}

impl AuditEvent {
    /// The session that it happened in, or whose run did it.
    pub fn session(&self) -> Option<SessionId> {
        match &self.record {
            RecordOf::Session { session, .. } => Some(*session),
            RecordOf::Project { .. } | RecordOf::Root { .. } => {
                self.data.get("session_id").and_then(Value::as_str).and_then(|id| id.parse().ok())
            }
        }
    }
}

/// The events of one commit. `session` has its records applied. What a fork copied from its source was audited
/// there.
pub fn events(session: &Session, commit: &[Record]) -> Vec<AuditEvent> {
    let copied = session.meta.forked_from.map_or(0, |from| from.seq);
    // What happened in another agent is not what happened here: that it was brought in is.
    let is_import = |record: &Record| matches!(record.body, Body::Session(SessionBody::Imported(_)));
    let imported = commit.last().is_some_and(is_import);
    let own = commit.iter().filter(|record| record.seq == 0 || record.seq > copied);
    let own = own.filter(|record| !imported || is_import(record));
    own.flat_map(|record| of_record(session, commit, record)).collect()
}

fn of_record(session: &Session, commit: &[Record], record: &Record) -> Vec<AuditEvent> {
    let event = |name, (user, data): (Option<u32>, Value)| AuditEvent {
        event: name,
        user: user.unwrap_or(session.meta.owner),
        record: RecordOf::Session { session: session.id(), session_seq: record.seq },
        data,
    };
    let own = || Some(event(record.body.event()?, data_of(session, commit, &record.body)?));
    match &record.body {
        Body::Run(RunBody::Cancelled(end)) => {
            let data = completed(session, end.turn_id, "cancelled", end.duration_ms);
            let completed = event(EventName::RunCompleted, (end.by, data));
            std::iter::once(completed).chain(own()).collect()
        }
        Body::Session(SessionBody::StateChanged(change)) => {
            let second = change.event().map(|name| {
                let data = state_data(session, commit, name, change, record.time);
                event(name, (change.by, data))
            });
            own().into_iter().chain(second).collect()
        }
        _ => own().into_iter().collect(),
    }
}

/// Who did what a record says, and the fields of its event. None for records that the audit log leaves out.
fn data_of(session: &Session, commit: &[Record], body: &Body) -> Option<(Option<u32>, Value)> {
    let id = session.id();
    match body {
        Body::Session(body) => of_session(id, body),
        Body::Run(body) => of_run(session, commit, body),
        Body::Message(MessageBody::Pinned(pin)) => {
            let data = json!({ "session_id": id, "message_id": pin.message_id, "user_id": pin.by });
            Some((Some(pin.by), data))
        }
        Body::Message(_) | Body::Tool(_) => None,
        Body::Checkpoint(body) => Some(control::of_checkpoint(id, body)),
        Body::Compaction(body) => control::of_compaction(id, body),
        Body::Approval(body) => Some(control::of_approval(id, body)),
        Body::Terminal(body) => Some(control::of_terminal(id, body)),
        Body::Subagent(body) => control::of_subagent(id, body).map(|data| (None, data)),
    }
}

fn of_session(id: SessionId, body: &SessionBody) -> Option<(Option<u32>, Value)> {
    let (user, data) = match body {
        // One that repair wrote again after damage does not tell of a creation.
        SessionBody::Meta(meta) => (None, identity::records_creation(meta).then(|| created(meta))?),
        SessionBody::StateChanged(change) => (change.by, moved(id, change)),
        SessionBody::Attached(on) => {
            let data = json!({ "session_id": id, "user_id": on.user, "device_hint": on.device_hint });
            (Some(on.user), data)
        }
        SessionBody::Detached(off) => {
            let data = json!({ "session_id": id, "user_id": off.user, "reason": off.reason });
            (Some(off.user), data)
        }
        SessionBody::Bound(Bound { issue_id, by }) | SessionBody::Unbound(Unbound { issue_id, by }) => {
            (Some(*by), json!({ "session_id": id, "issue_id": issue_id, "user_id": by }))
        }
        SessionBody::Imported(Imported { import_id, by, records, .. }) => {
            let data = json!({ "session_id": id, "import_id": import_id, "records": records, "user_id": by });
            (Some(*by), data)
        }
        SessionBody::ImportUndone(ImportUndone { import_id, by, superseded, .. }) => {
            let messages = superseded.len();
            (
                Some(*by),
                json!({ "session_id": id, "import_id": import_id, "messages": messages, "user_id": by }),
            )
        }
        SessionBody::Renamed(_)
        | SessionBody::ModelSet(_)
        | SessionBody::CwdChanged(_)
        | SessionBody::Failed(_)
        | SessionBody::Archived(_)
        | SessionBody::Forked(_)
        | SessionBody::Requested(_) => return None,
    };
    Some((user, data))
}

/// The beginning and the end of a run.
fn of_run(session: &Session, commit: &[Record], body: &RunBody) -> Option<(Option<u32>, Value)> {
    let id = session.id();
    Some(match body {
        RunBody::Created(run) => {
            let preview = message_preview(commit, run.turn_id);
            let data = json!({
                "run_id": run.turn_id, "session_id": id, "kind": run.kind, "message_preview": preview,
            });
            (begun_by(commit), data)
        }
        RunBody::Finished(end) => (None, completed_with(end.turn_id, "done", end.duration_ms, end.usage)),
        RunBody::Failed(end) => (None, completed(session, end.turn_id, "failed", end.duration_ms)),
        RunBody::Cancelled(end) => {
            let by = end.by.unwrap_or(session.meta.owner);
            (end.by, json!({ "run_id": end.turn_id, "session_id": id, "user_id": by }))
        }
        RunBody::QueuedDiscarded(QueuedDiscarded { turn_id, message_id, by }) => {
            let data =
                json!({ "session_id": id, "run_id": turn_id, "message_id": message_id, "user_id": by });
            (Some(*by), data)
        }
        RunBody::Context(_) | RunBody::Retrying(_) | RunBody::Noticed(_) => return None,
    })
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

/// The fields of the second event that some changes of state give.
fn state_data(
    session: &Session,
    commit: &[Record],
    name: EventName,
    change: &StateChanged,
    time: Timestamp,
) -> Value {
    let (id, user) = (session.id(), change.by.unwrap_or(session.meta.owner));
    let newest = session.runs().next_back();
    let run = newest.map(|run| run.id);
    let running = change.limit.map(|limit| limit.running);
    match name {
        EventName::SessionQueued => {
            let reason = change.limit.map(|limit| match limit.scope {
                LimitScope::PerProject => "per_project",
                LimitScope::PerOperator => "per_operator",
            });
            json!({
                "session_id": id, "run_id": run, "message_id": newest.and_then(|run| run.message_id),
                "reason": reason, "running_count": running, "limit": change.limit.map(|limit| limit.limit),
            })
        }
        EventName::SessionResumedFromQueue => {
            json!({ "session_id": id, "run_id": run, "user_id": user, "running_count": running })
        }
        EventName::SessionCrashRecovered => {
            let failed = commit.iter().find_map(|record| match &record.body {
                Body::Run(RunBody::Failed(failed)) => Some(failed.turn_id),
                _ => None,
            });
            json!({ "session_id": id, "failed_run_id": failed })
        }
        _ => json!({
            "session_id": id, "user_id": user, "run_count": session.runs().count(),
            "duration": time.millis_since(session.created_at),
        }),
    }
}

fn completed(session: &Session, run: RunId, state: &str, duration_ms: u64) -> Value {
    let usage = session.run(run).map(|run| run.usage).unwrap_or_default();
    completed_with(run, state, duration_ms, usage)
}

fn completed_with(run: RunId, state: &str, duration_ms: u64, usage: Usage) -> Value {
    json!({ "run_id": run, "state": state, "duration_ms": duration_ms, "tokens": usage })
}

/// Who began the run of a commit: the move that goes with it says so.
fn begun_by(commit: &[Record]) -> Option<u32> {
    commit.iter().find_map(|record| match &record.body {
        Body::Session(SessionBody::StateChanged(change)) => change.by,
        _ => None,
    })
}

/// The beginning of the message that a run was created with, on one line.
fn message_preview(commit: &[Record], run: RunId) -> Option<String> {
    commit.iter().find_map(|record| match &record.body {
        Body::Message(MessageBody::User(user)) if user.turn_id == run => {
            let line = user.text.chars().map(|c| if c.is_control() { ' ' } else { c });
            Some(line.take(PREVIEW_CHARS).collect())
        }
        _ => None,
    })
}
