//! What an event looks like on the session's socket: a pure mapping to channel, type and payload.

use ctx_api::model;
use ctx_api::ws::Channel;
use ctx_engine::Event;
use ctx_session::conversation::{Part, Role};
use ctx_session::port::DeltaKind;
use ctx_session::project::{ProjectBody, ProjectRecord};
use ctx_session::record::{
    ApprovalBody, Body, Caller, EventName, MessageBody, RunBody, SessionBody, StateChanged, StateName,
    ToolBody,
};
use ctx_session::{Name, Record, conversation};
use serde_json::{Value, json};

/// A frame without its number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UnnumberedFrame {
    pub channel: Channel,
    pub kind: &'static str,
    pub payload: Value,
}

fn output(kind: &'static str, payload: Value) -> UnnumberedFrame {
    UnnumberedFrame { channel: Channel::Output, kind, payload }
}

fn add(payload: &mut Value, name: &str, value: Value) {
    if let Some(fields) = payload.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

/// Who says or does it, where that is a subagent.
fn add_caller(payload: &mut Value, caller: Option<&Caller>) {
    if let Some(caller) = caller {
        add(payload, "caller", json!(caller));
    }
}

fn event(record: &Record, kind: &'static str, mut payload: Value) -> UnnumberedFrame {
    add(&mut payload, "record_seq", json!(record.seq));
    add(&mut payload, "time", json!(record.time.as_millis()));
    UnnumberedFrame { channel: Channel::Events, kind, payload }
}

/// The frames of an event, in order: one for most, two where the audit log has two.
pub(super) fn of_event(seen: &Event) -> Vec<UnnumberedFrame> {
    match seen {
        Event::Delta { run, caller, message, kind, text, .. } => {
            let kind = match kind {
                DeltaKind::Text => "delta",
                DeltaKind::Reasoning => "reasoning_delta",
            };
            let mut payload = json!({ "run_id": run, "message_id": message, "text": &**text });
            add_caller(&mut payload, caller.as_ref());
            vec![output(kind, payload)]
        }
        Event::Record(record) => {
            let mut frames = of_record(record);
            frames.iter_mut().for_each(|frame| add_caller(&mut frame.payload, record.body.caller()));
            frames
        }
        Event::Issue { project, record, .. } => of_issue(project, record).into_iter().collect(),
    }
}

/// What happened to the bound issue: the record's own fields, under the name that the audit log has for it. What happens
/// to the project itself is no part of a session.
fn of_issue(project: &Name, record: &ProjectRecord) -> Option<UnnumberedFrame> {
    let ProjectBody::Issue(body) = &record.body else { return None };
    let mut payload = own_fields(body);
    add(&mut payload, "project_id", json!(project));
    add(&mut payload, "project_seq", json!(record.seq));
    add(&mut payload, "time", json!(record.time.as_millis()));
    Some(UnnumberedFrame { channel: Channel::Events, kind: record.body.event()?.as_str(), payload })
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

fn of_record(record: &Record) -> Vec<UnnumberedFrame> {
    match &record.body {
        Body::Session(SessionBody::StateChanged(change)) => of_move(record, change),
        Body::Session(body) => own_event(record, of_session(body)),
        Body::Run(body) => own_event(record, Some(of_run(body))),
        Body::Message(body) => of_message(record, body),
        Body::Tool(body) => of_tool(record, body),
        Body::Checkpoint(body) => own_event(record, Some(own_fields(body))),
        Body::Subagent(body) => own_event(record, Some(own_fields(body))),
        Body::Terminal(body) => own_event(record, Some(own_fields(body))),
        Body::Compaction(body) => {
            let mut frames = own_event(record, Some(own_fields(body)));
            frames.extend(summary(record));
            frames
        }
        Body::Approval(body) => {
            let mut payload = own_fields(body);
            // A time has one form at every door.
            if let ApprovalBody::Requested(asked) = body {
                add(&mut payload, "expires_at", json!(asked.expires_at.as_millis()));
            }
            own_event(record, Some(payload))
        }
    }
}

/// The frame with the name that the table of records has for a record.
fn own_event(record: &Record, payload: Option<Value>) -> Vec<UnnumberedFrame> {
    let name = record.body.event().map(EventName::as_str);
    name.zip(payload).map(|(name, payload)| event(record, name, payload)).into_iter().collect()
}

fn of_session(body: &SessionBody) -> Option<Value> {
    Some(match body {
        SessionBody::Meta(meta) => {
            json!({ "session_id": meta.session_id, "project_id": meta.project, "user_id": meta.owner,
                "forked_from": meta.forked_from })
        }
        SessionBody::Renamed(renamed) => json!({ "title": renamed.title }),
        SessionBody::ModelSet(set) => {
            json!({ "model_override": set.model.as_deref().map(model::in_api) })
        }
        SessionBody::CwdChanged(changed) => json!({ "cwd": changed.cwd }),
        SessionBody::Attached(on) => {
            json!({ "connection": on.connection, "user_id": on.user, "device_hint": on.device_hint })
        }
        SessionBody::Detached(off) => {
            json!({ "connection": off.connection, "user_id": off.user, "reason": off.reason })
        }
        SessionBody::Failed(failure) => json!({ "failure": failure }),
        SessionBody::Archived(archived) => {
            json!({ "archived": archived.archived, "user_id": archived.by })
        }
        SessionBody::Forked(forked) => json!({ "user_id": forked.by }),
        SessionBody::Bound(_)
        | SessionBody::Unbound(_)
        | SessionBody::Imported(_)
        | SessionBody::ImportUndone(_) => own_fields(body),
        // A change of state has frames of its own; a request's key is the client's bookkeeping.
        SessionBody::StateChanged(_) | SessionBody::Requested(_) => return None,
    })
}

fn of_run(body: &RunBody) -> Value {
    match body {
        RunBody::Context(context) => {
            json!({ "run_id": context.turn_id, "model": model::in_api(&context.model), "cwd": context.cwd })
        }
        RunBody::Retrying(_) | RunBody::Noticed(_) => own_fields(body),
        RunBody::Created(run) => {
            json!({ "run_id": run.turn_id, "kind": run.kind, "continues": run.continues })
        }
        RunBody::Finished(end) => {
            json!({ "run_id": end.turn_id, "state": "done", "duration_ms": end.duration_ms, "tokens": end.usage,
                "finish_reason": end.finish_reason })
        }
        RunBody::Failed(end) => {
            json!({ "run_id": end.turn_id, "state": "failed", "duration_ms": end.duration_ms,
                "error": { "code": end.code, "reason": end.reason, "message": end.message } })
        }
        RunBody::Cancelled(end) => {
            json!({ "run_id": end.turn_id, "reason": end.reason, "user_id": end.by,
                "duration_ms": end.duration_ms })
        }
        RunBody::QueuedDiscarded(gone) => {
            json!({ "run_id": gone.turn_id, "message_id": gone.message_id, "user_id": gone.by })
        }
    }
}

fn of_message(record: &Record, body: &MessageBody) -> Vec<UnnumberedFrame> {
    let time = record.time.as_millis();
    let message = |payload: Value| vec![output("message", payload)];
    match body {
        MessageBody::User(user) => {
            let mut payload = json!({ "id": user.message_id, "run_id": user.turn_id, "role": "user",
                "content": user.text, "client_id": user.client_id, "created_at": time,
                "record_seq": record.seq });
            if !user.images.is_empty() {
                let shown = user.images.iter().cloned().map(Part::Image);
                let text = Part::Text { text: user.text.clone() };
                add(&mut payload, "parts", json!([text].into_iter().chain(shown).collect::<Vec<Part>>()));
            }
            message(payload)
        }
        MessageBody::AssistantFinished(done) => message(
            json!({ "id": done.message_id, "run_id": done.turn_id, "role": role_of(record), "content": done.text,
                "finish_reason": done.finish_reason, "usage": done.usage, "created_at": time,
                "record_seq": record.seq }),
        ),
        MessageBody::System(note) => message(
            json!({ "id": note.message_id, "run_id": note.turn_id, "role": "system", "content": note.text,
                "created_at": time, "record_seq": record.seq }),
        ),
        MessageBody::AssistantStarted(step) => {
            let payload = json!({ "run_id": step.turn_id, "message_id": step.message_id,
                "model": model::in_api(&step.model), "step": step.step });
            own_event(record, Some(payload))
        }
        MessageBody::ReasoningFinished(done) => {
            let payload = json!({ "run_id": done.turn_id, "message_id": done.message_id, "text": done.text });
            own_event(record, Some(payload))
        }
        MessageBody::Pinned(_) => own_event(record, Some(own_fields(body))),
    }
}

fn role_of(record: &Record) -> Role {
    if record.body.caller().is_some() { Role::Subagent } else { Role::Assistant }
}

fn of_tool(record: &Record, body: &ToolBody) -> Vec<UnnumberedFrame> {
    match body {
        ToolBody::Started(tool) => vec![output(
            "tool_started",
            json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "name": tool.name, "input": tool.input,
                "created_at": record.time.as_millis(), "record_seq": record.seq }),
        )],
        ToolBody::Finished(tool) => {
            let mut shown = json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "status": tool.status,
                "duration_ms": tool.duration_ms, "output": tool.output, "truncated": tool.truncated,
                "completed_at": record.time.as_millis(), "record_seq": record.seq });
            if let Some(diff) = &tool.diff {
                add(&mut shown, "diff", json!(diff));
            }
            if let Some(summary) = &tool.summary {
                add(&mut shown, "summary", json!(summary));
            }
            vec![output("tool_finished", shown)]
        }
        ToolBody::Pending(tool) => {
            let payload = json!({ "call_id": tool.call_id, "run_id": tool.turn_id, "name": tool.name,
                "input": tool.input });
            own_event(record, Some(payload))
        }
    }
}

/// The message that stands for what a compaction took away.
fn summary(record: &Record) -> Option<UnnumberedFrame> {
    let said = conversation::said(record)?;
    Some(output(
        "message",
        json!({ "id": said.id, "run_id": said.run, "role": said.role, "content": said.text(),
            "created_at": record.time.as_millis(), "record_seq": record.seq }),
    ))
}

/// A change of state, and a second frame where the audit log counts it as an event of its own.
fn of_move(record: &Record, change: &StateChanged) -> Vec<UnnumberedFrame> {
    let mut state = json!({ "from_state": change.from, "to_state": change.to, "trigger": change.trigger,
        "user_id": change.by });
    if change.to == StateName::Queued {
        add(&mut state, "queued", json!(true));
        add(&mut state, "reason", json!("concurrency_limit"));
        add(&mut state, "limit", json!(change.limit));
    }
    let mut frames = own_event(record, Some(state));
    frames.extend(
        change
            .event()
            .map(|name| event(record, name.as_str(), json!({ "user_id": change.by, "limit": change.limit }))),
    );
    frames
}
