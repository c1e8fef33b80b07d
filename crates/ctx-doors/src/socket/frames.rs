//! What an event looks like on the wire: a pure mapping from records and deltas to frames.

use ctx_api::socket::{Content, DoneStatus, Frame};
use ctx_engine::{Event, EventId};
use ctx_session::port::DeltaKind;
use ctx_session::record::{
    ApprovalBody, AssistantFinished, Body, Caller, CheckpointBody, FinishReason, LimitHit, MessageBody,
    Record, RunBody, SessionBody, StateName, ToolBody,
};
use ctx_session::{RunId, SessionId};

/// Whose frames they are.
#[derive(Debug, Clone)]
pub struct Named {
    pub session: String,
    pub id: SessionId,
}

/// A frame as its line, LF included.
pub fn line(frame: &Frame) -> String {
    // A frame has no map with keys that are not strings: serialising it cannot fail.
    let mut line = serde_json::to_string(frame).unwrap_or_default();
    line.push('\n');
    line
}

/// A frame as its line, cut to the frame limit where it would not fit.
pub fn fitting_line(frame: Frame, max: usize) -> String {
    let whole = line(&frame);
    if whole.len() <= max {
        return whole;
    }
    // Escaping makes at most six bytes of one, a frame has at most two long texts, and a kilobyte is plenty for the
    // other fields.
    line(&cut(frame, max.saturating_sub(1024) / 12))
}

/// Shortens only the texts of a frame, so that its line stays JSON with all fields. The input of a call becomes text: half an object is none.
fn cut(frame: Frame, max: usize) -> Frame {
    let shorten = |text: String| {
        let mut end = max.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.get(..end).unwrap_or_default().to_owned()
    };
    match frame {
        Frame::Message { id, run, session, role, content, at_output_limit, .. } => {
            let content = content
                .into_iter()
                .map(|Content::Text { text }| Content::Text { text: shorten(text) })
                .collect();
            let whole = Some("messages.jsonl of the session has it whole".to_owned());
            Frame::Message { id, run, session, role, content, truncated: true, whole, at_output_limit }
        }
        Frame::Delta { id, run, session, text } => Frame::Delta { id, run, session, text: shorten(text) },
        Frame::Reasoning { id, run, session, text } => {
            Frame::Reasoning { id, run, session, text: shorten(text) }
        }
        Frame::ToolCall { id, run, session, call, name, input, caller, .. } => {
            let input = serde_json::Value::String(shorten(input.to_string()));
            Frame::ToolCall { id, run, session, call, name, input, truncated: true, caller }
        }
        Frame::ToolResult { id, run, session, call, status, output, diff, summary, caller, .. } => {
            let (output, diff, truncated) = (shorten(output), diff.map(shorten), true);
            Frame::ToolResult { id, run, session, call, status, output, truncated, diff, summary, caller }
        }
        Frame::Error { id, run, session, request, code, reason, message } => {
            Frame::Error { id, run, session, request, code, reason, message: shorten(message) }
        }
        Frame::Approval { id, run, session, session_id, approval, call, tool, subject, diff } => {
            let (subject, diff) = (subject.map(shorten), diff.map(shorten));
            Frame::Approval { id, run, session, session_id, approval, call, tool, subject, diff }
        }
        Frame::Notice { id, run, session, reason, message, caller } => {
            Frame::Notice { id, run, session, reason, message: shorten(message), caller }
        }
        mut retrying @ Frame::Retrying { .. } => {
            if let Frame::Retrying { message, .. } = &mut retrying {
                *message = shorten(std::mem::take(message));
            }
            retrying
        }
        // A reason is short.
        Frame::Start { .. }
        | Frame::Queued { .. }
        | Frame::Usage { .. }
        | Frame::Paused { .. }
        | Frame::Done { .. }
        | Frame::Pong {} => frame,
    }
}

/// The frames of an event, each with its id; most have one, many none.
pub fn of_event(named: &Named, event: &Event) -> Vec<(EventId, Frame)> {
    match event {
        Event::Record(record) => of_record(named, record),
        // What subagents say is for the primary; what they do has frames.
        Event::Delta { caller: Some(_), .. } => Vec::new(),
        Event::Delta { id, run, kind, text, .. } => {
            let (session, run, text) = (named.session.clone(), run.to_string(), text.to_string());
            let frame = match kind {
                DeltaKind::Text => Frame::Delta { id: id.to_string(), run, session, text },
                DeltaKind::Reasoning => Frame::Reasoning { id: id.to_string(), run, session, text },
            };
            vec![(*id, frame)]
        }
        // Those who speak with an agent are not told what becomes of its issue; the WebSocket has it.
        Event::Issue { .. } => Vec::new(),
    }
}

fn of_record(named: &Named, record: &Record) -> Vec<(EventId, Frame)> {
    let at = EventId::record(record.seq);
    let (id, session) = (at.to_string(), named.session.clone());
    let one = |frame: Frame| vec![(at, frame)];
    match &record.body {
        Body::Run(body) => of_run(named, record.seq, body),
        Body::Tool(body) => of_tool(id, session, body).map(one).unwrap_or_default(),
        Body::Message(MessageBody::AssistantFinished(message)) => of_answer(named, record.seq, message),
        Body::Checkpoint(CheckpointBody::Created(made)) => one(Frame::Paused {
            id,
            run: made.turn_id.to_string(),
            session,
            session_id: named.id.to_string(),
            checkpoint: made.checkpoint_id.to_string(),
            reason: made.reason.clone(),
        }),
        Body::Approval(ApprovalBody::Requested(asked)) => one(Frame::Approval {
            id,
            run: asked.turn_id.to_string(),
            session,
            session_id: named.id.to_string(),
            approval: asked.approval_id.to_string(),
            call: asked.call_id.to_string(),
            tool: asked.tool.clone(),
            subject: asked.subject.clone(),
            diff: asked.diff.clone(),
        }),
        Body::Session(_)
        | Body::Compaction(_)
        | Body::Message(_)
        | Body::Subagent(_)
        | Body::Checkpoint(_)
        | Body::Terminal(_)
        | Body::Approval(_) => Vec::new(),
    }
}

/// An answer of the agent and what it used. What a subagent says is for the agent.
fn of_answer(named: &Named, seq: u64, message: &AssistantFinished) -> Vec<(EventId, Frame)> {
    if message.caller.is_some() {
        return Vec::new();
    }
    let (at, after) = (EventId::record(seq), EventId { seq, n: 1 });
    let (run, session) = (message.turn_id.to_string(), named.session.clone());
    // A step that only called tools has said nothing.
    let said = (!message.text.is_empty()).then(|| Frame::Message {
        id: at.to_string(),
        run: run.clone(),
        session: session.clone(),
        role: "assistant".to_owned(),
        content: vec![Content::Text { text: message.text.clone() }],
        truncated: false,
        whole: None,
        at_output_limit: message.finish_reason == FinishReason::Length,
    });
    let used = message.usage.map(|usage| Frame::Usage { id: after.to_string(), run, session, usage });
    said.map(|frame| (at, frame)).into_iter().chain(used.map(|frame| (after, frame))).collect()
}

/// The frame of a tool's record. A call that is held has none: it gets one when it is started.
fn of_tool(id: String, session: String, body: &ToolBody) -> Option<Frame> {
    match body {
        ToolBody::Started(tool) => Some(Frame::ToolCall {
            id,
            run: tool.turn_id.to_string(),
            session,
            call: tool.call_id.to_string(),
            name: tool.name.clone(),
            input: tool.input.clone(),
            truncated: false,
            caller: name_of(tool.caller.as_ref()),
        }),
        ToolBody::Finished(tool) => Some(Frame::ToolResult {
            id,
            run: tool.turn_id.to_string(),
            session,
            call: tool.call_id.to_string(),
            status: tool.status.to_string(),
            output: tool.output.clone(),
            truncated: tool.truncated,
            diff: tool.diff.clone(),
            summary: tool.summary.clone(),
            caller: name_of(tool.caller.as_ref()),
        }),
        ToolBody::Pending(_) => None,
    }
}

/// The frames of a run's record. A failure has two, each with an id of its own, so that a client may resume between them.
fn of_run(named: &Named, seq: u64, body: &RunBody) -> Vec<(EventId, Frame)> {
    let (at, after) = (EventId::record(seq), EventId { seq, n: 1 });
    let (id, session) = (at.to_string(), named.session.clone());
    let done = |at: EventId, run: RunId, status, finish_reason| {
        let (id, session) = (Some(at.to_string()), named.session.clone());
        (at, Frame::Done { id, run: run.to_string(), session, status, finish_reason })
    };
    match body {
        RunBody::Context(context) => vec![(
            at,
            Frame::Start {
                id,
                run: context.turn_id.to_string(),
                // As the tree has it, which this socket is part of.
                model: context.model.clone(),
                session,
                session_id: named.id.to_string(),
            },
        )],
        RunBody::Retrying(retry) => vec![(
            at,
            Frame::Retrying {
                id,
                run: retry.turn_id.to_string(),
                session,
                code: retry.code,
                reason: retry.reason.clone(),
                message: retry.message.clone(),
                attempt: retry.attempt,
                attempts_max: retry.attempts_max,
                wait_ms: retry.wait_ms,
                caller: name_of(retry.caller.as_ref()),
            },
        )],
        RunBody::Noticed(noticed) => vec![(
            at,
            Frame::Notice {
                id,
                run: noticed.turn_id.to_string(),
                session,
                reason: noticed.reason.clone(),
                message: noticed.message.clone(),
                caller: name_of(noticed.caller.as_ref()),
            },
        )],
        RunBody::Finished(end) => vec![done(at, end.turn_id, DoneStatus::Ok, end.finish_reason)],
        RunBody::Cancelled(end) => vec![done(at, end.turn_id, DoneStatus::Cancelled, None)],
        RunBody::Failed(end) => {
            let error = Frame::Error {
                id: Some(id),
                run: Some(end.turn_id.to_string()),
                session: Some(session),
                request: None,
                code: end.code,
                reason: Some(end.reason.clone()),
                message: end.message.clone(),
            };
            vec![(at, error), done(after, end.turn_id, DoneStatus::Error, None)]
        }
        RunBody::Created(_) | RunBody::QueuedDiscarded(_) => Vec::new(),
    }
}

fn name_of(caller: Option<&Caller>) -> Option<String> {
    caller.map(|caller| caller.name.clone())
}

/// Of a record that queues a message: the limit that was reached, if the record has it. None for any other record.
pub fn queued_at(record: &Record) -> Option<Option<LimitHit>> {
    match &record.body {
        Body::Session(SessionBody::StateChanged(change)) if change.to == StateName::Queued => {
            Some(change.limit)
        }
        _ => None,
    }
}

/// The run that a frame's event belongs to.
pub fn run_of(event: &Event) -> Option<RunId> {
    match event {
        Event::Delta { run, .. } => Some(*run),
        Event::Record(record) => record.body.run(),
        Event::Issue { .. } => None,
    }
}
