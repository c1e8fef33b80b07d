//! `output.read`: what an earlier tool call gave, also where the model was only shown its beginning.

use std::sync::Arc;

use ctx_session::{CallId, Code};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, Scope, Tool, ToolError, Work, arguments};
use crate::control::policy::Effects;
use crate::cut;
use crate::model::ToolSpec;

/// Its name: the text that stands for a cut output says it.
pub const OUTPUT_READ: &str = "output.read";

/// What the line after a window takes at most.
const NOTE_BYTES: usize = 128;

/// The tool.
#[derive(Debug)]
pub struct OutputRead;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    call_id: String,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    limit: Option<usize>,
}

/// Which part of which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub call: CallId,
    /// In bytes.
    pub offset: usize,
    pub limit: usize,
}

impl Tool for OutputRead {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: OUTPUT_READ.to_owned(),
            description: "Reads the output of an earlier tool call that was cut or left out.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "call_id": { "type": "string" },
                    "offset": { "type": "integer", "minimum": 0, "description": "in bytes" },
                    "limit": { "type": "integer", "minimum": 1 }
                },
                "required": ["call_id"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let Input { call_id, offset, limit } = arguments(&self.spec(), input)?;
        let bad = || ToolError::new(Code::Einval, format!("`{call_id}` is not the id of a tool call"));
        let call: CallId = call_id.parse().map_err(|_| bad())?;
        if limit == Some(0) {
            return Err(ToolError::new(Code::Einval, "limit counts from 1"));
        }
        // What is read back must not be cut itself.
        let most = scope.limits.tool_output_bytes.saturating_sub(NOTE_BYTES).max(1);
        let limit = limit.unwrap_or(most).min(most);
        Ok(Plan::new(vec![call_id], Work::Output(Window { call, offset, limit })))
    }
}

impl Window {
    /// The part of the whole, and where it stands in it when there is more. Never begins or ends inside a character.
    pub fn of(&self, whole: &str) -> Result<String, ToolError> {
        let begin = whole.floor_char_boundary(self.offset);
        let rest = whole.get(begin..).unwrap_or_default();
        if rest.is_empty() && self.offset > 0 {
            let message = format!("the output has {} bytes; read from before its end", whole.len());
            return Err(ToolError::new(Code::Einval, message));
        }
        let mut part = cut(rest, self.limit);
        if part.is_empty() {
            // A limit smaller than the character there.
            part = rest.char_indices().nth(1).map_or(rest, |(at, _)| rest.get(..at).unwrap_or(rest));
        }
        let end = begin + part.len();
        if end == whole.len() {
            return Ok(part.to_owned());
        }
        Ok(format!("{part}\n[bytes {begin} to {end} of {}; go on with offset {end}]", whole.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::Ulid;

    fn window(offset: usize, limit: usize) -> Result<String, Code> {
        let call = CallId(Ulid(1));
        Window { call, offset, limit }.of("abcdé fgh").map_err(|error| error.code)
    }

    #[test]
    fn windows_follow_each_other_to_the_end() {
        assert_eq!(window(0, 3).as_deref(), Ok("abc\n[bytes 0 to 3 of 10; go on with offset 3]"));
        assert_eq!(window(3, 2).as_deref(), Ok("d\n[bytes 3 to 4 of 10; go on with offset 4]"));
        assert_eq!(window(4, 1).as_deref(), Ok("é\n[bytes 4 to 6 of 10; go on with offset 6]"));
        assert_eq!(window(6, 100).as_deref(), Ok(" fgh"));
        assert_eq!(window(5, 100).as_deref(), Ok("é fgh"), "from the beginning of a character");
        assert_eq!(window(10, 1), Err(Code::Einval));
        assert_eq!(window(99, 1), Err(Code::Einval));
    }
}
