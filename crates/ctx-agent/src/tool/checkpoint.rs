//! `checkpoint`: the model pauses its session and waits for the operator.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, Scope, Tool, ToolError, Work, arguments};
use crate::control::policy::Effects;
use crate::model::ToolSpec;

/// Its name: calls behind it in one answer wait for the resume.
pub const CHECKPOINT: &str = "checkpoint";

/// The longest reason that is kept, in bytes.
const REASON_BYTES: usize = 1024;

/// The tool.
#[derive(Debug)]
pub struct Checkpoint;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    reason: Option<String>,
}

impl Tool for Checkpoint {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: CHECKPOINT.to_owned(),
            description:
                "Pauses the session until the operator has looked at it. Use it when you need a decision or \
                          a sign-off; say why in `reason`."
                    .to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "reason": { "type": "string", "description": "what the operator is to decide" } },
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, _: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: Input = arguments(&self.spec(), input)?;
        let reason = input.reason.map(|reason| crate::cut(&reason, REASON_BYTES).to_owned());
        Ok(Plan::new(Vec::new(), Work::Checkpoint { reason }))
    }
}
