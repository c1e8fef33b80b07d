//! Sessions of other agents: which records may be brought in, and when.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{answer, busy, over};
use crate::code::Refusal;
use crate::command::{Answer, Decision, Import, UndoImport};
use crate::conversation::{restored_ids, said_id, superseded_ids};
use crate::ids::Ulid;
use crate::record::{
    Body, CompactionBody, ImportUndone, Imported, MessageBody, RunBody, SessionBody, ToolBody, ToolStarted,
    Usage,
};
use crate::session::{Session, State};
use crate::time::Timestamp;

pub(super) fn import(session: &Session, import: &Import, now: Timestamp) -> Result<Decision, Refusal> {
    may_add(session)?;
    if let Some((_, body)) = import.records.iter().find(|(_, body)| !may_import(body)) {
        return Err(Refusal::invalid("records", format!("a record of type {} is not imported", body.name())));
    }
    if import.records.is_empty() && import.restored.is_empty() && import.superseded.is_empty() {
        return Ok(answer(Answer::Ignored));
    }
    let Import { import_id, records, by, restored, superseded } = import;
    let last = Imported {
        import_id: *import_id,
        by: *by,
        records: u64::try_from(records.len()).unwrap_or(u64::MAX),
        at: now,
        restored: restored.clone(),
        superseded: superseded.clone(),
    };
    let mut records: Vec<Body> = records.iter().map(|(_, body)| body.clone()).collect();
    records.push(Body::Session(SessionBody::Imported(last)));
    Ok(Decision { records, effects: Vec::new(), answer: Answer::Done })
}

pub(super) fn undo(session: &Session, undo: &UndoImport, now: Timestamp) -> Result<Decision, Refusal> {
    may_add(session)?;
    if !session.imports.contains(&undo.import_id) {
        return Ok(answer(Answer::Ignored));
    }
    let UndoImport { import_id, by, superseded, restored } = undo.clone();
    let undone = ImportUndone { import_id, by, superseded, restored, at: now };
    let records = vec![Body::Session(SessionBody::ImportUndone(undone))];
    Ok(Decision { records, effects: Vec::new(), answer: Answer::Done })
}

/// Only an imported session in which nothing goes on is added to.
fn may_add(session: &Session) -> Result<(), Refusal> {
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
    Ok(())
}

/// Whether a record can be part of another agent's session: what was said and done, and no more.
pub fn may_import(body: &Body) -> bool {
    match body {
        Body::Message(MessageBody::Pinned(_)) | Body::Tool(ToolBody::Pending(_)) => false,
        Body::Message(_) | Body::Tool(_) => true,
        Body::Run(
            RunBody::Context(_) | RunBody::QueuedDiscarded(_) | RunBody::Retrying(_) | RunBody::Noticed(_),
        ) => false,
        Body::Run(_) => true,
        Body::Compaction(CompactionBody::Recorded(made)) => !made.proposed,
        Body::Compaction(_)
        | Body::Session(_)
        | Body::Checkpoint(_)
        | Body::Approval(_)
        | Body::Terminal(_)
        | Body::Subagent(_) => false,
    }
}

/// The name of a call of which only the result could be read.
pub const UNKNOWN_CALL: &str = "unknown";

/// The records that a log has, by what identifies them: a record of a source has the same id in every reading.
///
/// A source that grows may say more of what it has said before: how a run really ended, and what a model call cost. Then a
/// later end counts instead of the earlier, and what the call cost besides is added in a record without a text.
#[derive(Debug, Default)]
pub struct Known {
    seen: HashSet<(&'static str, Ulid)>,
    /// The newest end of each run, and whether more of the run came after it.
    ends: HashMap<Ulid, (Timestamp, Body, bool)>,
    /// What each message of the model cost, all of its records together.
    costs: HashMap<Ulid, Usage>,
    /// The calls by the ids that their provider gave them; true: it is known of its result alone.
    calls: HashMap<String, (Ulid, bool)>,
    /// Messages that do not count.
    superseded: HashSet<Ulid>,
    /// What undone imports had brought, and what compactions among it had left out.
    undone: Marked,
}

/// Messages that no longer count, and others that count again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marked {
    pub superseded: BTreeSet<Ulid>,
    pub restored: BTreeSet<Ulid>,
}

impl Known {
    /// Notes a record of the log.
    pub fn add(&mut self, time: Timestamp, body: &Body) {
        match body {
            Body::Session(SessionBody::ImportUndone(undone)) => {
                self.undone.superseded.extend(&undone.superseded);
                self.undone.restored.extend(&undone.restored);
            }
            Body::Session(SessionBody::Imported(import)) if !import.restored.is_empty() => {
                self.undone = Marked::default();
            }
            Body::Message(MessageBody::AssistantFinished(done)) => {
                let cost = self.costs.entry(done.message_id.0).or_default();
                *cost = cost.plus(done.usage.unwrap_or_default());
            }
            Body::Tool(ToolBody::Started(tool)) => {
                if let Some(id) = &tool.provider_call_id {
                    self.calls.insert(id.clone(), (tool.call_id.0, tool.name == UNKNOWN_CALL));
                }
            }
            _ => {}
        }
        self.superseded.extend(superseded_ids(body));
        for id in restored_ids(body) {
            self.superseded.remove(id);
        }
        if let Some(run) = ended(body) {
            self.ends.insert(run, (time, body.clone(), false));
        } else if let Some((_, _, grew)) = body.run().and_then(|run| self.ends.get_mut(&run.0)) {
            *grew = true;
        }
        self.seen.extend(identity(body));
    }

    /// What of a record of a source the log does not have, which is noted.
    pub fn take(&mut self, time: Timestamp, body: Body) -> Option<Body> {
        let new = self.news(time, body)?;
        self.add(time, &new);
        Some(new)
    }

    fn news(&mut self, time: Timestamp, body: Body) -> Option<Body> {
        if let Some((known_at, known, grew)) = ended(&body).and_then(|run| self.ends.get(&run)) {
            // Sources mark an end more than once; as long as nothing else came, it is the same.
            let is_same =
                if *grew { *known == body } else { without_duration(known) == without_duration(&body) };
            return (time >= *known_at && !is_same).then_some(body);
        }
        let is_known = identity(&body).is_some_and(|id| self.seen.contains(&id));
        match body {
            Body::Message(MessageBody::AssistantFinished(mut done)) if is_known => {
                let known = self.costs.get(&done.message_id.0).copied().unwrap_or_default();
                let more = done.usage.unwrap_or_default().minus(known);
                (done.text, done.usage) = (String::new(), Some(more));
                (more != Usage::default()).then_some(Body::Message(MessageBody::AssistantFinished(done)))
            }
            Body::Tool(ToolBody::Started(tool)) if tool.name == UNKNOWN_CALL && self.has_other(&tool) => {
                // The call is there; what cannot be read now was read before, and so was its result.
                self.seen.insert(("tool_started", tool.call_id.0));
                self.seen.insert(("tool_finished", tool.call_id.0));
                None
            }
            body => (!is_known).then_some(body),
        }
    }

    /// Those of some messages that count until now.
    pub fn counting(&self, messages: impl Iterator<Item = Ulid>) -> impl Iterator<Item = Ulid> {
        messages.filter(|id| !self.superseded.contains(id))
    }

    fn has_other(&self, tool: &ToolStarted) -> bool {
        let known = tool.provider_call_id.as_ref().and_then(|id| self.calls.get(id));
        known.is_some_and(|(call, _)| *call != tool.call_id.0)
    }

    /// The calls known of their results alone that these records have as a whole: those count instead.
    pub fn made_whole(&self, records: &[(Timestamp, Body)]) -> Vec<Ulid> {
        let stands_for = |(_, body): &(Timestamp, Body)| {
            let Body::Tool(ToolBody::Started(tool)) = body else { return None };
            let (call, is_unknown) = self.calls.get(tool.provider_call_id.as_ref()?)?;
            (*is_unknown && *call != tool.call_id.0).then_some(*call)
        };
        records.iter().filter_map(stands_for).collect()
    }

    /// What an import of these brings back, all of it at once: the log has it, so that it only has to count again.
    pub fn take_undone(&mut self, records: &[(Timestamp, Body)]) -> Marked {
        let is_undone = |(_, body): &(Timestamp, Body)| {
            said_id(body).is_some_and(|id| self.undone.superseded.contains(&id))
        };
        if !records.iter().any(is_undone) {
            return Marked::default();
        }
        let Marked { superseded, restored } = std::mem::take(&mut self.undone);
        Marked { restored: superseded.difference(&restored).copied().collect(), superseded: restored }
    }
}

/// Gathers what one import added to a log, record by record.
#[derive(Debug)]
pub struct Added {
    import: Ulid,
    /// The messages and the compactions of the records since the last import.
    since: Vec<(Option<Ulid>, Vec<Ulid>)>,
    added: Marked,
}

impl Added {
    pub fn by(import: Ulid) -> Added {
        Added { import, since: Vec::new(), added: Marked::default() }
    }

    pub fn apply(&mut self, body: &Body) {
        if let Body::Session(SessionBody::Imported(import)) = body {
            if import.import_id == self.import {
                let from =
                    self.since.len().saturating_sub(usize::try_from(import.records).unwrap_or(usize::MAX));
                for (said, compacted) in self.since.drain(..).skip(from) {
                    self.added.superseded.extend(said);
                    self.added.restored.extend(compacted);
                }
                self.added.superseded.extend(&import.restored);
                self.added.restored.extend(&import.superseded);
            }
            self.since.clear();
            return;
        }
        // The result of a call that was there before belongs to that call, which stays.
        let said = said_id(body).filter(|_| !matches!(body, Body::Tool(ToolBody::Finished(_))));
        self.since.push((said, superseded_ids(body).to_vec()));
    }

    /// What taking it back does: its messages no longer count, and what its compactions left out does again.
    pub fn marked(mut self) -> Marked {
        self.added.restored.retain(|id| !self.added.superseded.contains(id));
        self.added
    }
}

/// The run that a record ends.
fn ended(body: &Body) -> Option<Ulid> {
    match body {
        Body::Run(RunBody::Finished(end)) => Some(end.turn_id.0),
        Body::Run(RunBody::Cancelled(end)) => Some(end.turn_id.0),
        Body::Run(RunBody::Failed(end)) => Some(end.turn_id.0),
        _ => None,
    }
}

fn without_duration(end: &Body) -> Body {
    let mut end = end.clone();
    match &mut end {
        Body::Run(RunBody::Finished(end)) => end.duration_ms = 0,
        Body::Run(RunBody::Cancelled(end)) => end.duration_ms = 0,
        Body::Run(RunBody::Failed(end)) => end.duration_ms = 0,
        _ => {}
    }
    end
}

/// What a record is of. What ends a run is told apart by the run.
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
        Body::Compaction(CompactionBody::Recorded(made)) => made.compaction_id.0,
        Body::Message(_)
        | Body::Tool(_)
        | Body::Run(_)
        | Body::Compaction(_)
        | Body::Session(_)
        | Body::Checkpoint(_)
        | Body::Approval(_)
        | Body::Terminal(_)
        | Body::Subagent(_) => return None,
    };
    Some((body.name(), id))
}
