//! Requests that carry a key of their client's: done once, and known again when they come again, also by a daemon that was
//! started since. The record of it is part of the command it belongs to: both are in the log, or neither is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::code::Refusal;
use crate::ids::{CheckpointId, IssueId, RunId};

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
