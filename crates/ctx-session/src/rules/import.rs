//! Sessions of other agents: which records may be brought in, and when.

use std::collections::HashSet;

use super::{answer, busy, over};
use crate::code::Refusal;
use crate::command::{Answer, Decision, Import};
use crate::ids::Ulid;
use crate::record::{Body, CompactionBody, Imported, MessageBody, RunBody, SessionBody, ToolBody};
use crate::session::{Session, State};
use crate::time::Timestamp;

pub(super) fn import(session: &Session, import: &Import, now: Timestamp) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle => {}
        State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {
            return Err(busy("the session is at work; import again when it is idle"));
        }
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    if session.meta.origin.is_none() {
        return Err(Refusal::invalid("session", "only a session that was imported can be added to"));
    }
    if let Some((_, body)) = import.records.iter().find(|(_, body)| !may_import(body)) {
        return Err(Refusal::invalid("records", format!("a record of type {} is not imported", body.name())));
    }
    if import.records.is_empty() {
        return Ok(answer(Answer::Ignored));
    }
    let Import { import_id, records, by } = import;
    let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
    let last = Imported { import_id: *import_id, by: *by, records: count, at: now };
    let mut records: Vec<Body> = records.iter().map(|(_, body)| body.clone()).collect();
    records.push(Body::Session(SessionBody::Imported(last)));
    Ok(Decision { records, effects: Vec::new(), answer: Answer::Done })
}

/// Whether a record can be part of another agent's session: what was said and done, and no more.
pub fn may_import(body: &Body) -> bool {
    match body {
        Body::Message(MessageBody::Pinned(_)) | Body::Tool(ToolBody::Pending(_)) => false,
        Body::Message(_) | Body::Tool(_) => true,
        Body::Run(RunBody::Context(_) | RunBody::QueuedDiscarded(_) | RunBody::Retrying(_)) => false,
        Body::Run(_) => true,
        Body::Compaction(CompactionBody::Recorded(made)) => !made.proposed,
        Body::Compaction(_)
        | Body::Session(_)
        | Body::Checkpoint(_)
        | Body::Approval(_)
        | Body::Subagent(_) => false,
    }
}

/// The records that a log has, by what identifies them: a record of a source has the same id in every reading.
#[derive(Debug, Default)]
pub struct Known {
    seen: HashSet<(&'static str, Ulid)>,
}

impl Known {
    /// Notes a record of the log. Whether it is new.
    pub fn add(&mut self, body: &Body) -> bool {
        identity(body).is_none_or(|id| self.seen.insert(id))
    }
}

/// What a record is of. The end of a run is one thing, however it ended.
fn identity(body: &Body) -> Option<(&'static str, Ulid)> {
    let id = match body {
        Body::Message(MessageBody::User(user)) => user.message_id.0,
        Body::Message(MessageBody::AssistantStarted(started)) => started.message_id.0,
        Body::Message(MessageBody::AssistantFinished(finished)) => finished.message_id.0,
        Body::Message(MessageBody::ReasoningFinished(reasoning)) => reasoning.message_id.0,
        Body::Message(MessageBody::System(note)) => note.message_id.0,
        Body::Tool(ToolBody::Started(tool)) => tool.call_id.0,
        Body::Tool(ToolBody::Finished(tool)) => tool.call_id.0,
        Body::Run(RunBody::Created(created)) => created.turn_id.0,
        Body::Run(RunBody::Finished(end)) => return Some(("end", end.turn_id.0)),
        Body::Run(RunBody::Cancelled(end)) => return Some(("end", end.turn_id.0)),
        Body::Run(RunBody::Failed(end)) => return Some(("end", end.turn_id.0)),
        Body::Compaction(CompactionBody::Recorded(made)) => made.compaction_id.0,
        Body::Message(_)
        | Body::Tool(_)
        | Body::Run(_)
        | Body::Compaction(_)
        | Body::Session(_)
        | Body::Checkpoint(_)
        | Body::Approval(_)
        | Body::Subagent(_) => return None,
    };
    Some((body.name(), id))
}
