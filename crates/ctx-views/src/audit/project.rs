//! The audit events of a project: its place in the registry, its issues and their todos. Pure; the table is published
//! in `docs/audit.md`.

use ctx_session::project::{IssueBody, Project, ProjectBody, ProjectRecord, RegistryBody};
use ctx_session::{IssueId, TodoId};
use serde_json::{Value, json};

use super::map::{AuditEvent, RecordOf};

/// The events of one commit. `project` has its records applied.
pub fn project_events(project: &Project, commit: &[ProjectRecord]) -> Vec<AuditEvent> {
    commit.iter().filter_map(|record| of_record(project, record)).collect()
}

fn of_record(project: &Project, record: &ProjectRecord) -> Option<AuditEvent> {
    let (user, mut data) = user_and_data(project, &record.body)?;
    let event = record.body.event()?;
    if let Some(fields) = data.as_object_mut() {
        fields.insert("project_id".to_owned(), json!(project.slug));
        fields.insert("user_id".to_owned(), json!(user));
    }
    let record = RecordOf::Project { project: project.slug.clone(), project_seq: record.seq };
    Some(AuditEvent { event, user, record, data })
}

fn user_and_data(project: &Project, body: &ProjectBody) -> Option<(u32, Value)> {
    let number = |issue: IssueId| project.issue(issue).map(|issue| issue.number);
    let text = |issue: IssueId, todo: TodoId| {
        let todos = project.issue(issue).map(|issue| issue.todos.iter());
        todos.into_iter().flatten().find(|found| found.id == todo).map(|found| found.text.as_str())
    };
    Some(match body {
        ProjectBody::Registry(RegistryBody::Added(added)) => {
            let data = json!({ "directory": added.directory, "owner": added.owner });
            (added.by, data)
        }
        ProjectBody::Registry(RegistryBody::Moved(moved)) => {
            (moved.by, json!({ "directory": moved.directory }))
        }
        ProjectBody::Registry(RegistryBody::Trusted(trusted)) => {
            (trusted.by, json!({ "dsl_hash": trusted.dsl_hash }))
        }
        ProjectBody::Registry(RegistryBody::Removed(removed)) => (removed.by, json!({})),
        ProjectBody::Issue(IssueBody::Created(created)) => {
            let data = json!({
                "issue_id": created.issue_id, "number": created.number, "title": created.title,
            });
            (created.by, data)
        }
        ProjectBody::Issue(IssueBody::Changed(changed)) => {
            let is_changed = [
                ("title", changed.title.is_some()),
                ("body", changed.body.is_some()),
                ("criteria", changed.criteria.is_some()),
                ("status", changed.status.is_some()),
            ];
            let fields = is_changed.into_iter().filter(|(_, is_changed)| *is_changed);
            let fields: Vec<&str> = fields.map(|(field, _)| field).collect();
            let data = json!({
                "issue_id": changed.issue_id, "number": number(changed.issue_id), "fields": fields,
                "status": changed.status, "session_id": changed.who.session_id,
            });
            (changed.who.by, data)
        }
        // The session that points back is audited as `session.bound`; a claim alone means nothing.
        // Nobody did the other two: they are what the daemon keeps for itself.
        ProjectBody::Issue(IssueBody::Claimed(_))
        | ProjectBody::Registry(RegistryBody::Requested(_) | RegistryBody::Read(_)) => {
            return None;
        }
        ProjectBody::Issue(IssueBody::TodoAdded(added)) => {
            let data = json!({
                "issue_id": added.issue_id, "number": number(added.issue_id), "todo_id": added.todo_id,
                "text": added.text, "session_id": added.who.session_id,
            });
            (added.who.by, data)
        }
        ProjectBody::Issue(IssueBody::TodoChanged(changed)) => {
            let data = json!({
                "issue_id": changed.issue_id, "number": number(changed.issue_id), "todo_id": changed.todo_id,
                "text": text(changed.issue_id, changed.todo_id), "status": changed.status,
                "note": changed.note, "session_id": changed.who.session_id,
            });
            (changed.who.by, data)
        }
    })
}
