//! Issues and their todos, as a project's log tells them.
//!
//! Todos are dropped, never deleted, and at most one of an issue is in progress. Which session works on an issue is a
//! claim here and a pointer in the session's log; a claim counts only while the session points back.

use serde::{Deserialize, Serialize};

use crate::ids::{IssueId, SessionId, TodoId};
use crate::issue::IssueStatus;
use crate::time::Timestamp;
use crate::word_enum::word_enum;

/// Something that must be true before an issue is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    pub text: String,
    #[serde(default)]
    pub done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueCreated {
    pub issue_id: IssueId,
    pub number: u64,
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<Criterion>,
    /// Whose it is.
    pub by: u32,
}

/// What is not there has not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueChanged {
    pub issue_id: IssueId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Vec<Criterion>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IssueStatus>,
    #[serde(flatten)]
    pub who: Who,
}

/// Who changed something: a user, or the run of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    pub by: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// A session works on it from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueClaimed {
    pub issue_id: IssueId,
    pub session_id: SessionId,
    pub by: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoAdded {
    pub issue_id: IssueId,
    pub todo_id: TodoId,
    pub text: String,
    #[serde(flatten)]
    pub who: Who,
}

word_enum! {
    /// Where a todo stands.
    TodoStatus {
        Open = "open",
        InProgress = "in_progress",
        Done = "done",
        Dropped = "dropped",
    }
}

impl TodoStatus {
    /// Whether there is still something to do.
    pub fn is_left(self) -> bool {
        match self {
            TodoStatus::Open | TodoStatus::InProgress => true,
            TodoStatus::Done | TodoStatus::Dropped => false,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            TodoStatus::Open => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Done => "[x]",
            TodoStatus::Dropped => "[-]",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoChanged {
    pub issue_id: IssueId,
    pub todo_id: TodoId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TodoStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(flatten)]
    pub who: Who,
}

/// One step of the work on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Todo {
    pub id: TodoId,
    pub text: String,
    pub status: TodoStatus,
    pub note: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// An issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub id: IssueId,
    /// Per project, from 1.
    pub number: u64,
    pub title: String,
    pub body: String,
    pub status: IssueStatus,
    pub criteria: Vec<Criterion>,
    pub todos: Vec<Todo>,
    pub owner: u32,
    /// The session that bound it last.
    pub session: Option<SessionId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Issue {
    pub(super) fn new(created: &IssueCreated, time: Timestamp) -> Issue {
        Issue {
            id: created.issue_id,
            number: created.number,
            title: created.title.clone(),
            body: created.body.clone(),
            status: IssueStatus::Open,
            criteria: created.criteria.clone(),
            todos: Vec::new(),
            owner: created.by,
            session: None,
            created_at: time,
            updated_at: time,
        }
    }

    pub(super) fn change(&mut self, changed: &IssueChanged, time: Timestamp) {
        self.updated_at = time;
        if let Some(title) = &changed.title {
            self.title.clone_from(title);
        }
        if let Some(body) = &changed.body {
            self.body.clone_from(body);
        }
        if let Some(criteria) = &changed.criteria {
            self.criteria.clone_from(criteria);
        }
        self.status = changed.status.unwrap_or(self.status);
    }

    pub(super) fn add_todo(&mut self, added: &TodoAdded, time: Timestamp) {
        self.updated_at = time;
        if self.todos.iter().any(|todo| todo.id == added.todo_id) {
            return;
        }
        self.todos.push(Todo {
            id: added.todo_id,
            text: added.text.clone(),
            status: TodoStatus::Open,
            note: None,
            created_at: time,
            updated_at: time,
        });
    }

    pub(super) fn change_todo(&mut self, changed: &TodoChanged, time: Timestamp) {
        self.updated_at = time;
        // One at a time: what was in progress waits again.
        if changed.status == Some(TodoStatus::InProgress) {
            for todo in self.todos.iter_mut().filter(|todo| todo.status == TodoStatus::InProgress) {
                todo.status = TodoStatus::Open;
            }
        }
        if let Some(todo) = self.todos.iter_mut().find(|todo| todo.id == changed.todo_id) {
            todo.status = changed.status.unwrap_or(todo.status);
            todo.note = changed.note.clone().or(todo.note.take());
            todo.updated_at = time;
        }
    }

    /// The todo that a tool or a person means: by its text, its number in the list, or its id.
    pub fn todo(&self, item: &str) -> Option<&Todo> {
        let item = item.trim();
        let named = self.todos.iter().filter(|todo| todo.text == item);
        let mut named: Vec<&Todo> = named.collect();
        // Of two with one text, the one with something left to do is meant.
        named.sort_by_key(|todo| !todo.status.is_left());
        let numbered = || {
            let number: usize = item.trim_end_matches('.').parse().ok()?;
            self.todos.get(number.checked_sub(1)?)
        };
        let by_id = || self.todos.iter().find(|todo| item.parse().is_ok_and(|id: TodoId| id == todo.id));
        named.first().copied().or_else(numbered).or_else(by_id)
    }

    /// The list as a person or a model reads it.
    pub fn list(&self) -> String {
        if self.todos.is_empty() {
            return "no todos yet".to_owned();
        }
        let lines = self.todos.iter().enumerate().map(|(at, todo)| line(at, todo));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What is left to do, line by line.
    pub fn left(&self) -> Vec<String> {
        let left = self.todos.iter().enumerate().filter(|(_, todo)| todo.status.is_left());
        left.map(|(at, todo)| line(at, todo)).collect()
    }

    /// All of it as text for a model.
    pub fn text(&self) -> String {
        let mut text = format!("#{} {} ({})\n", self.number, self.title, self.status.as_str());
        if !self.body.is_empty() {
            text += &format!("\n{}\n", self.body.trim_end());
        }
        if !self.criteria.is_empty() {
            text += &format!("\nAcceptance criteria:\n{}\n", self.criteria_list());
        }
        text + "\nTodos:\n" + &self.list() + "\n"
    }

    /// The acceptance criteria, likewise.
    pub fn criteria_list(&self) -> String {
        let lines = self.criteria.iter().enumerate().map(|(at, criterion)| {
            let mark = if criterion.done { "[x]" } else { "[ ]" };
            format!("{}. {mark} {}", at + 1, criterion.text)
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() { "(none)".to_owned() } else { lines.join("\n") }
    }
}

fn line(at: usize, todo: &Todo) -> String {
    let note = todo.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{}. {} {}{note}", at + 1, todo.status.mark(), todo.text)
}
