//! Requests that carry a key of their client's: done once, and known again when they come again, also by a daemon that was
//! started since. The record of it is part of the command it belongs to: both are in the log, or neither is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::code::Refusal;
use crate::command::{Answer, Command, Decision};
use crate::ids::{CheckpointId, IssueId, RunId};
use crate::record::{Body, RunKind, SessionBody};
use crate::rules::Given;
use crate::session::Session;

/// Where a client writes its key.
pub const KEY_FIELD: &str = "Idempotency-Key";

/// A request as it is known again. Hashes: a key may be long, and what was asked larger still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    /// Of who asked, where, and with which key.
    pub request: String,
    /// Of what was asked. The same key for something else is a mistake of the client's.
    pub asked: String,
}

impl RequestKey {
    /// Whether this is the other request again; refused when the key is the same and what is asked is not.
    pub fn repeats(&self, earlier: &RequestKey) -> Result<bool, Refusal> {
        if self.request != earlier.request {
            return Ok(false);
        }
        if self.asked != earlier.asked {
            let message = "this key was used for another request; use a new key";
            return Err(Refusal::invalid(KEY_FIELD, message));
        }
        Ok(true)
    }
}

/// A request with a key was carried out by the command that this record is of. Says what it made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requested {
    #[serde(flatten)]
    pub key: RequestKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_id: Option<IssueId>,
}

/// The requests that a log tells of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests(HashMap<String, Requested>);

impl Requests {
    pub(crate) fn add(&mut self, requested: &Requested) {
        self.0.insert(requested.key.request.clone(), requested.clone());
    }

    /// A fork's requests are its own.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// What came of this request before, if it was made.
    pub fn find(&self, key: &RequestKey) -> Result<Option<&Requested>, Refusal> {
        let Some(found) = self.0.get(&key.request) else { return Ok(None) };
        Ok(key.repeats(&found.key)?.then_some(found))
    }
}

impl Session {
    /// The answer to a request that was carried out before.
    pub fn repeated(&self, key: &RequestKey) -> Result<Option<Answer>, Refusal> {
        let Some(found) = self.requests.find(key)? else { return Ok(None) };
        let run = found.turn_id.and_then(|run| self.run(run));
        Ok(Some(match (found.checkpoint_id, run) {
            (Some(checkpoint), _) => Answer::Checkpoint { checkpoint },
            (None, Some(run)) if run.kind == RunKind::Message => {
                let message = crate::rules::message_of(run);
                Answer::Posted { run: run.id, message, state: run.state.clone(), repeated: true }
            }
            (None, Some(run)) => Answer::Run { run: run.id, state: run.state.clone() },
            (None, None) => Answer::Done,
        }))
    }

    /// Decides a command that carries a key: as without one, but once.
    pub(crate) fn decide_once(
        &self,
        key: &RequestKey,
        command: &Command,
        given: &mut Given<'_>,
    ) -> Result<Decision, Refusal> {
        if let Some(answer) = self.repeated(key)? {
            return Ok(Decision { records: Vec::new(), effects: Vec::new(), answer });
        }
        let mut decision = self.decide(command, given)?;
        let (turn_id, checkpoint_id) = match &decision.answer {
            Answer::Posted { run, .. } | Answer::Run { run, .. } => (Some(*run), None),
            Answer::Checkpoint { checkpoint } => (None, Some(*checkpoint)),
            Answer::Done | Answer::Held | Answer::Ignored => (None, None),
        };
        if !decision.records.is_empty() {
            // First: the last record of a command that moves the state is the move.
            let requested = Requested { key: key.clone(), turn_id, checkpoint_id, issue_id: None };
            decision.records.insert(0, Body::Session(SessionBody::Requested(requested)));
        }
        Ok(decision)
    }
}
