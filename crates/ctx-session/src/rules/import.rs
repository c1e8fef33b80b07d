//! Sessions of other agents: which records may be brought in, and when.

use std::collections::{BTreeSet, HashSet};

use super::{answer, busy, over};
use crate::code::Refusal;
use crate::command::{Answer, Decision, Import, UndoImport};
use crate::conversation::{said_id, superseded_ids};
use crate::ids::Ulid;
use crate::record::{
    Body, CompactionBody, ImportUndone, Imported, MessageBody, RunBody, SessionBody, ToolBody,
};
use crate::session::{Session, State};
use crate::time::Timestamp;

pub(super) fn import(session: &Session, import: &Import, now: Timestamp) -> Result<Decision, Refusal> {
    may_add(session)?;
    if let Some((_, body)) = import.records.iter().find(|(_, body)| !may_import(body)) {
        return Err(Refusal::invalid("records", format!("a record of type {} is not imported", body.name())));
    }
    if import.records.is_empty() && import.restored.is_empty() {
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

/// The records that a log has, by what identifies them: a record of a source has the same id in every reading.
#[derive(Debug, Default)]
pub struct Known {
    seen: HashSet<(&'static str, Ulid)>,
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
    /// Notes a record of the log. Whether it is new.
    pub fn add(&mut self, body: &Body) -> bool {
        match body {
            Body::Session(SessionBody::ImportUndone(undone)) => {
                self.undone.superseded.extend(&undone.superseded);
                self.undone.restored.extend(&undone.restored);
            }
            Body::Session(SessionBody::Imported(import)) if !import.restored.is_empty() => {
                self.undone = Marked::default();
            }
            _ => {}
        }
        identity(body).is_none_or(|id| self.seen.insert(id))
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
        | Body::Terminal(_)
        | Body::Subagent(_) => return None,
    };
    Some((body.name(), id))
}
