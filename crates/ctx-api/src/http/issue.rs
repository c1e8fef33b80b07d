//! Issues of a project, their todos, and the issue that a session works on.

use ctx_session::issue::{IssueStatus, TodoOp};
use ctx_session::project::TodoStatus;
use ctx_session::{IssueId, Name, SessionId, TodoId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// An issue. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Issue {
    #[schema(value_type = String)]
    pub id: IssueId,
    /// Per project, from 1.
    pub number: u64,
    #[schema(value_type = String)]
    pub project: Name,
    pub title: String,
    pub body: String,
    /// `open`, `in_progress`, `resolved` or `closed`.
    #[schema(schema_with = super::words::issue_status)]
    pub status: IssueStatus,
    pub criteria: Vec<Criterion>,
    pub todos: Vec<Todo>,
    /// Whose it is.
    pub owner: u32,
    /// The session that works on it.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    pub created_at: u64,
    pub updated_at: u64,
}

/// Something that must be true before an issue is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub text: String,
    #[serde(default)]
    pub done: bool,
}

/// A criterion in a request: its text, or all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a criterion is a text, or {\"text\": …, \"done\": …}")]
pub enum CriterionGiven {
    Text(String),
    Whole(Criterion),
}

impl From<CriterionGiven> for Criterion {
    fn from(given: CriterionGiven) -> Criterion {
        match given {
            CriterionGiven::Text(text) => Criterion { text, done: false },
            CriterionGiven::Whole(criterion) => criterion,
        }
    }
}

/// One step of the work on an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Todo {
    #[schema(value_type = String)]
    pub id: TodoId,
    pub text: String,
    /// `open`, `in_progress`, `done` or `dropped`.
    #[schema(schema_with = super::words::todo_status)]
    pub status: TodoStatus,
    pub note: Option<String>,
    pub created_at: u64,
    pub updated_at: u64,
}

/// `POST /projects/:id/issues`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIssue {
    pub title: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub criteria: Vec<CriterionGiven>,
}

/// `PATCH /issues/:iid`: what is there is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<IssueStatus>,
    /// All of them: those that are not named are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Vec<CriterionGiven>>,
}

/// `POST /issues/:iid/todos`: a todo to be added, or an operation as the `todo` tool has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TodoChange {
    Add(NewTodo),
    Operation(TodoOperation),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTodo {
    pub text: String,
}

/// By hand, so that what is wrong with an operation is said, and not that it is no todo either.
impl<'de> Deserialize<'de> for TodoChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TodoChange, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = match value.get("op") {
            Some(_) => serde_json::from_value(value).map(TodoChange::Operation),
            None => serde_json::from_value(value).map(TodoChange::Add),
        };
        read.map_err(D::Error::custom)
    }
}

/// An operation as the `todo` tool has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TodoOperation(pub TodoOp);

/// As the tool describes it to models.
impl PartialSchema for TodoOperation {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let ops = ["init", "append", "start", "done", "drop", "note"];
        let object = ObjectBuilder::new()
            .property("op", text().enum_values(Some(ops)))
            .property("items", ArrayBuilder::new().items(text()).description(Some("with init alone")))
            .property("item", text().description(Some("a todo's text, its number in the list, or its id")))
            .property("note", text().description(Some("with note alone")))
            .required("op");
        object.build().into()
    }
}

impl ToSchema for TodoOperation {}

/// `PUT /sessions/:id/bind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    pub issue_id: String,
}
