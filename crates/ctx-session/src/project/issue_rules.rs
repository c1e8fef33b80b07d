//! What may be done with issues and todos, and what it writes.

use super::issue::{
    Criterion, Issue, IssueChanged, IssueClaimed, IssueCreated, Todo, TodoAdded, TodoChanged, TodoStatus, Who,
};
use super::{Project, ProjectBody};
use crate::code::{Code, Refusal};
use crate::ids::{IdSource, IssueId, SessionId, TodoId};
use crate::issue::{IssueStatus, TodoOp};
use crate::limits::Limits;
use crate::project::IssueBody;
use crate::time::Timestamp;

/// Most todos of one issue, and most criteria.
const ITEMS_MAX: usize = 500;

/// What is asked of a project's issues. The engine has checked who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueCommand {
    Create { title: String, body: String, criteria: Vec<Criterion>, by: u32 },
    Change { issue: IssueId, change: Change, who: Who },
    AddTodo { issue: IssueId, text: String, who: Who },
    Todo { issue: IssueId, op: TodoOp, who: Who },
    Criterion { issue: IssueId, item: String, met: bool, who: Who },
    Claim { issue: IssueId, session: SessionId, by: u32 },
}

/// What is to change; what is not named stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    pub title: Option<String>,
    pub body: Option<String>,
    pub criteria: Option<Vec<Criterion>>,
    pub status: Option<IssueStatus>,
}

/// What the rules are handed besides.
pub struct IssueGiven<'a> {
    pub now: Timestamp,
    pub ids: &'a mut IdSource,
    pub limits: &'a Limits,
}

impl Project {
    /// Decides a command. A refusal writes nothing.
    pub fn decide_issue(
        &self,
        command: &IssueCommand,
        given: &mut IssueGiven<'_>,
    ) -> Result<Vec<ProjectBody>, Refusal> {
        match command {
            IssueCommand::Create { title, body, criteria, by } => {
                self.create_issue(title, body, criteria, *by, given)
            }
            IssueCommand::Change { issue, change, who } => {
                self.change_issue(*issue, change, *who, given.limits)
            }
            IssueCommand::AddTodo { issue, text, who } => {
                let issue = self.known(*issue)?;
                Ok(vec![add(issue, text, *who, given)?])
            }
            IssueCommand::Todo { issue, op, who } => todo(self.known(*issue)?, op, *who, given),
            IssueCommand::Criterion { issue, item, met, who } => {
                let criteria = marked(self.known(*issue)?, item, *met)?;
                let change = Change { criteria: Some(criteria), ..Change::default() };
                self.change_issue(*issue, &change, *who, given.limits)
            }
            IssueCommand::Claim { issue, session, by } => {
                let issue = self.known(*issue)?;
                if issue.session == Some(*session) {
                    return Ok(Vec::new());
                }
                let claimed = IssueClaimed { issue_id: issue.id, session_id: *session, by: *by };
                Ok(vec![ProjectBody::Issue(IssueBody::Claimed(claimed))])
            }
        }
    }

    fn known(&self, id: IssueId) -> Result<&Issue, Refusal> {
        self.issue(id).ok_or_else(|| Refusal::new(Code::Enoent, format!("no issue {id}")))
    }

    fn create_issue(
        &self,
        title: &str,
        body: &str,
        criteria: &[Criterion],
        by: u32,
        given: &mut IssueGiven<'_>,
    ) -> Result<Vec<ProjectBody>, Refusal> {
        let title = checked_title(title, given.limits)?;
        check_body(body, given.limits)?;
        check_criteria(criteria, given.limits)?;
        let number = self.issues().last().map_or(0, |issue| issue.number).saturating_add(1);
        let issue_id = IssueId(given.ids.next(given.now));
        let (body, criteria) = (body.to_owned(), criteria.to_vec());
        Ok(vec![ProjectBody::Issue(IssueBody::Created(IssueCreated {
            issue_id,
            number,
            title,
            body,
            criteria,
            by,
        }))])
    }

    fn change_issue(
        &self,
        id: IssueId,
        change: &Change,
        who: Who,
        limits: &Limits,
    ) -> Result<Vec<ProjectBody>, Refusal> {
        let issue = self.known(id)?;
        let title = change.title.as_deref().map(|title| checked_title(title, limits)).transpose()?;
        change.body.as_deref().map_or(Ok(()), |body| check_body(body, limits))?;
        change.criteria.as_deref().map_or(Ok(()), |criteria| check_criteria(criteria, limits))?;
        let changed = IssueChanged {
            issue_id: id,
            title: title.filter(|title| *title != issue.title),
            body: change.body.clone().filter(|body| *body != issue.body),
            criteria: change.criteria.clone().filter(|criteria| *criteria != issue.criteria),
            status: change.status.filter(|status| *status != issue.status),
            who,
        };
        let is_empty = changed.title.is_none()
            && changed.body.is_none()
            && changed.criteria.is_none()
            && changed.status.is_none();
        Ok(if is_empty { Vec::new() } else { vec![ProjectBody::Issue(IssueBody::Changed(changed))] })
    }
}

fn checked_title(title: &str, limits: &Limits) -> Result<String, Refusal> {
    one_line("title", "a title", title, limits)
}

/// A text on one line, not empty and not too long.
fn one_line(field: &'static str, what: &str, text: &str, limits: &Limits) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Refusal::invalid(field, format!("{what} must not be empty")));
    }
    if text.len() > limits.title_bytes {
        return Err(Refusal::invalid(field, format!("{what} has at most {} bytes", limits.title_bytes)));
    }
    if text.chars().any(char::is_control) {
        return Err(Refusal::invalid(field, format!("{what} is one line without control characters")));
    }
    Ok(text.to_owned())
}

fn check_body(body: &str, limits: &Limits) -> Result<(), Refusal> {
    if body.len() > limits.message_bytes {
        let message = format!("a body has at most {} bytes", limits.message_bytes);
        return Err(Refusal::new(Code::Emsgsize, message));
    }
    Ok(())
}

fn check_criteria(criteria: &[Criterion], limits: &Limits) -> Result<(), Refusal> {
    if criteria.len() > ITEMS_MAX {
        return Err(Refusal::invalid("criteria", format!("an issue has at most {ITEMS_MAX} criteria")));
    }
    criteria
        .iter()
        .try_for_each(|criterion| one_line("criteria", "a criterion", &criterion.text, limits).map(drop))
}

fn add(issue: &Issue, text: &str, who: Who, given: &mut IssueGiven<'_>) -> Result<ProjectBody, Refusal> {
    if issue.todos.len() >= ITEMS_MAX {
        return Err(Refusal::invalid("item", format!("an issue has at most {ITEMS_MAX} todos")));
    }
    let text = one_line("item", "a todo", text, given.limits)?;
    let todo_id = TodoId(given.ids.next(given.now));
    Ok(ProjectBody::Issue(IssueBody::TodoAdded(TodoAdded { issue_id: issue.id, todo_id, text, who })))
}

fn todo(
    issue: &Issue,
    op: &TodoOp,
    who: Who,
    given: &mut IssueGiven<'_>,
) -> Result<Vec<ProjectBody>, Refusal> {
    match op {
        TodoOp::Init { items } => init(issue, items, who, given),
        TodoOp::Append { item } => Ok(vec![add(issue, item, who, given)?]),
        TodoOp::Start { item } => set(issue, item, TodoStatus::InProgress, who),
        TodoOp::Done { item } => set(issue, item, TodoStatus::Done, who),
        TodoOp::Drop { item } => set(issue, item, TodoStatus::Dropped, who),
        TodoOp::Note { item, note } => {
            let todo = meant(issue, item)?;
            let note = Some(one_line("note", "a note", note, given.limits)?);
            let changed = TodoChanged { issue_id: issue.id, todo_id: todo.id, status: None, note, who };
            Ok(vec![ProjectBody::Issue(IssueBody::TodoChanged(changed))])
        }
    }
}

fn init(
    issue: &Issue,
    items: &[String],
    who: Who,
    given: &mut IssueGiven<'_>,
) -> Result<Vec<ProjectBody>, Refusal> {
    if issue.todos.iter().any(|todo| todo.status.is_left()) {
        let message =
            format!("there are todos already; append to them, or drop them first:\n{}", issue.list());
        return Err(Refusal::new(Code::Eexist, message));
    }
    if items.is_empty() || issue.todos.len().saturating_add(items.len()) > ITEMS_MAX {
        return Err(Refusal::invalid("items", format!("a list has 1 to {ITEMS_MAX} todos")));
    }
    items.iter().map(|item| add(issue, item, who, given)).collect()
}

fn set(issue: &Issue, item: &str, status: TodoStatus, who: Who) -> Result<Vec<ProjectBody>, Refusal> {
    let todo = meant(issue, item)?;
    if todo.status == status {
        return Ok(Vec::new());
    }
    let (issue_id, todo_id, status) = (issue.id, todo.id, Some(status));
    Ok(vec![ProjectBody::Issue(IssueBody::TodoChanged(TodoChanged {
        issue_id,
        todo_id,
        status,
        note: None,
        who,
    }))])
}

/// The criteria with one of them met, or not.
fn marked(issue: &Issue, item: &str, met: bool) -> Result<Vec<Criterion>, Refusal> {
    let mut criteria = issue.criteria.clone();
    let item = item.trim();
    let named = || criteria.iter().position(|criterion| criterion.text == item);
    let numbered = || item.trim_end_matches('.').parse::<usize>().ok()?.checked_sub(1);
    let at = named().or_else(numbered);
    match at.and_then(|at| criteria.get_mut(at)) {
        Some(criterion) => criterion.done = met,
        None => {
            let message = format!("no such criterion; the criteria are:\n{}", issue.criteria_list());
            return Err(Refusal::new(Code::Enoent, message));
        }
    }
    Ok(criteria)
}

fn meant<'a>(issue: &'a Issue, item: &str) -> Result<&'a Todo, Refusal> {
    issue.todo(item).ok_or_else(|| {
        let message = format!("no such todo; the todos are:\n{}", issue.list());
        Refusal::new(Code::Enoent, message)
    })
}
