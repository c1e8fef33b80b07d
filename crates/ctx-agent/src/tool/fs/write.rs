//! `fs.write`: makes a file say something, whole.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Plan, Scope, Tool, ToolError, arguments};
use super::change::Before;
use crate::control::policy::Effects;
use crate::model::ToolSpec;

/// The tool.
#[derive(Debug)]
pub struct FsWrite;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    content: String,
}

impl Tool for FsWrite {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.write".to_owned(),
            description: "Writes a whole file; directories that are missing are made. A file that exists must have been \
                          read before. To change a part of a file use fs.edit."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "content": {"type": "string"}
                },
                "required": ["path", "content"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn runs_in_parallel(&self) -> bool {
        true
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: Input = arguments(&self.spec(), input)?;
        let before = Before::read(scope, &input.path)?;
        before.refuse_marks(scope, &[&input.content])?;
        let verb = if before.old.is_some() { "wrote" } else { "created" };
        let what = format!("{verb} {} ({} bytes)", before.spot.path.display(), input.content.len());
        Ok(before.plan(scope, input.content.into_bytes(), what))
    }
}
