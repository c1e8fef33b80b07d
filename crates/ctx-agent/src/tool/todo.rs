//! `todo` and `issue`: the working list of the issue that the session is bound to, and the issue itself.

use std::sync::Arc;

use ctx_session::issue::{IssueAct, IssueStatus, TodoOp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, Scope, Tool, ToolError, Work, arguments};
use crate::control::policy::Effects;
use crate::model::ToolSpec;

/// The tool `todo`.
#[derive(Debug)]
pub struct Todo;

/// Its name: a step after one of its results gets no reminder.
pub const TODO: &str = "todo";

impl Tool for Todo {
    fn spec(&self) -> ToolSpec {
        let item = json!({ "type": "string", "description": "the todo's text, or its number in the list" });
        ToolSpec {
            name: TODO.to_owned(),
            description: "Keeps the todo list of the issue that this session is bound to. Begin with init, then append, \
                          start (one at a time), done, drop or note. Answers with the list as it is then."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "op": { "enum": ["init", "append", "start", "done", "drop", "note"] },
                    "items": { "type": "array", "items": { "type": "string" }, "description": "with init alone" },
                    "item": item,
                    "note": { "type": "string", "description": "with note alone" }
                },
                "required": ["op"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, _: &Arc<Scope>) -> Result<Plan, ToolError> {
        let op: TodoOp = arguments(&self.spec(), input)?;
        Ok(Plan::new(Vec::new(), Work::Issue(IssueAct::Todo(op))))
    }
}

/// The tool `issue`.
#[derive(Debug)]
pub struct Issue;

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Input {
    Read {},
    Transition { to: IssueStatus },
    Criterion { item: String, met: bool },
}

impl Tool for Issue {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "issue".to_owned(),
            description: "Reads the issue that this session is bound to, marks one of its acceptance criteria as met or \
                          not, or moves it to another status. When all criteria are met, ask for sign-off with checkpoint; a \
                          transition to resolved or closed waits until the operator confirms it."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "op": { "enum": ["read", "criterion", "transition"] },
                    "item": {
                        "type": "string",
                        "description": "with criterion alone: the criterion's text, or its number in the list"
                    },
                    "met": { "type": "boolean", "description": "with criterion alone" },
                    "to": { "enum": ["open", "in_progress", "resolved", "closed"], "description": "with transition alone" }
                },
                "required": ["op"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, _: &Arc<Scope>) -> Result<Plan, ToolError> {
        let act = match arguments(&self.spec(), input)? {
            Input::Read {} => IssueAct::Read,
            Input::Transition { to } => IssueAct::Move { to },
            Input::Criterion { item, met } => IssueAct::Criterion { item, met },
        };
        // Where the operator is asked, they see what for.
        let subjects = match &act {
            IssueAct::Move { to } => vec![to.as_str().to_owned()],
            IssueAct::Read | IssueAct::Todo(_) | IssueAct::Criterion { .. } => Vec::new(),
        };
        Ok(Plan::new(subjects, Work::Issue(act)))
    }
}
