//! What a session is held with: an agent, or a model on its socket.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::Role;
use crate::name::{BadName, Name};
use crate::record::SessionMeta;

/// An object of the tree that holds sessions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    Agent(Name),
    Model { provider: Name, model: Name },
}

impl Object {
    /// None where a first record names neither.
    pub fn of(meta: &SessionMeta) -> Option<Object> {
        match &meta.agent {
            Some(agent) => Some(Object::Agent(agent.clone())),
            None => Object::model(&meta.model).ok().flatten(),
        }
    }

    /// The model of `provider/model`; None: it is written otherwise.
    pub fn model(text: &str) -> Result<Option<Object>, BadName> {
        let Some((provider, model)) = text.split_once('/') else { return Ok(None) };
        Ok(Some(Object::Model { provider: Name::new(provider)?, model: Name::new(model)? }))
    }

    pub fn agent(&self) -> Option<&Name> {
        match self {
            Object::Agent(name) => Some(name),
            Object::Model { .. } => None,
        }
    }

    /// The directory that its `session/` lies in, below that of a user or a space.
    pub fn dir(&self) -> String {
        match self {
            Object::Agent(name) => format!("agent/{name}"),
            Object::Model { provider, model } => format!("model/{provider}/{model}.d"),
        }
    }
}

/// As people write it: `coder`, `debug/echo`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Agent(name) => write!(f, "{name}"),
            Object::Model { provider, model } => write!(f, "{provider}/{model}"),
        }
    }
}

/// A message that was there before a session began. The session's first record keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    pub role: Role,
    pub content: String,
}

/// What a first record says of the messages before the session.
#[derive(Debug, Serialize, Deserialize)]
struct BeganWith {
    messages: Vec<Earlier>,
}

impl Earlier {
    /// As the first record of a session keeps them; nothing where there are none.
    pub fn origin(messages: Vec<Earlier>) -> Option<Value> {
        let kept = (!messages.is_empty()).then_some(BeganWith { messages })?;
        serde_json::to_value(kept).ok()
    }

    /// Those that a session began with.
    pub fn of(meta: &SessionMeta) -> Vec<Earlier> {
        let kept = meta.origin.clone().and_then(|origin| serde_json::from_value::<BeganWith>(origin).ok());
        kept.map(|kept| kept.messages).unwrap_or_default()
    }
}
