//! `agent.dispatch`: the primary gives a part of its work to a subagent and reads what came of it.
//!
//! Here the call is checked; the subagent itself is run by the loop.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use ctx_session::subagent::DISPATCH;
use ctx_session::{Code, Name};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, Scope, Tool, ToolError, Work, arguments};
use crate::control::policy::Effects;
use crate::control::short;
use crate::model::ToolSpec;
use crate::project::{Plays, Subagent};

/// The tool, for an agent with these subagents.
#[derive(Debug)]
pub struct Dispatch {
    subagents: BTreeMap<Name, Subagent>,
}

impl Dispatch {
    /// None for an agent without subagents.
    pub fn to(subagents: &BTreeMap<Name, Subagent>) -> Option<Dispatch> {
        (!subagents.is_empty()).then(|| Dispatch { subagents: subagents.clone() })
    }

    fn names(&self) -> Vec<&str> {
        self.subagents.keys().map(Name::as_str).collect()
    }
}

/// What a subagent is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatched {
    pub agent: String,
    pub prompt: String,
}

impl Tool for Dispatch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: DISPATCH.to_owned(),
            description: "Gives a task to a subagent and returns its last message. A subagent knows nothing of this \
                          conversation: `prompt` says all it needs. Several calls in one answer run side by side."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "agent": { "type": "string", "enum": self.names(), "description": "the subagent" },
                    "prompt": { "type": "string", "description": "what it is to do, and what to report" }
                },
                "required": ["agent", "prompt"],
                "additionalProperties": false
            }),
        }
    }

    fn runs_in_parallel(&self) -> bool {
        true
    }

    /// What a subagent does is judged call by call, under the same policy.
    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, _: &Arc<Scope>) -> Result<Plan, ToolError> {
        let asked: Dispatched = arguments(&self.spec(), input)?;
        let found = self.subagents.iter().find(|(name, _)| name.as_str() == asked.agent);
        match found.map(|(_, subagent)| &subagent.plays) {
            Some(Plays::Model { .. }) => {}
            Some(Plays::Acp { .. }) => {
                let message = format!(
                    "the subagent `{}` is a program that speaks ACP, and ctx cannot run these yet; use one with a model",
                    asked.agent
                );
                return Err(ToolError::new(Code::Enoexec, message));
            }
            None => {
                let known = self.names().join(", ");
                let message = format!("no subagent `{}`; the subagents are {known}", short(&asked.agent));
                return Err(ToolError::new(Code::Enoent, message));
            }
        }
        if asked.prompt.trim().is_empty() {
            return Err(ToolError::new(Code::Einval, "the prompt is empty; say what the subagent is to do"));
        }
        Ok(Plan::new(vec![asked.agent.clone()], Work::Dispatch(asked)))
    }
}
