//! The issues of a project with their todos, by number.

use ctx_session::Name;
use ctx_session::project::{Issue, Todo};
use rusqlite::Row;

use super::Queries;
use super::control::{closed, id, maybe_id};
use crate::db::DbError;
use crate::db::column::{count_of, json, time_of};

impl Queries<'_> {
    pub fn issues(&self, project: &Name) -> Result<Vec<Issue>, DbError> {
        let sql = "SELECT id, number, title, body, status, criteria, owner, session, created_at, updated_at
                   FROM issues WHERE project = ? ORDER BY number";
        let mut issues = self.rows(sql, vec![project.to_string().into()], issue)?;
        let sql = "SELECT id, text, status, note, created_at, updated_at
                   FROM todos WHERE issue = ? ORDER BY position";
        for issue in &mut issues {
            issue.todos = self.rows(sql, vec![issue.id.to_string().into()], todo)?;
        }
        Ok(issues)
    }
}

fn issue(row: &Row<'_>) -> rusqlite::Result<Issue> {
    Ok(Issue {
        id: id(row, 0)?,
        number: count_of(row.get(1)?),
        title: row.get(2)?,
        body: row.get(3)?,
        status: closed(row, 4)?,
        criteria: json(row, 5)?,
        todos: Vec::new(),
        owner: row.get(6)?,
        session: maybe_id(row, 7)?,
        created_at: time_of(row.get(8)?),
        updated_at: time_of(row.get(9)?),
    })
}

fn todo(row: &Row<'_>) -> rusqlite::Result<Todo> {
    Ok(Todo {
        id: id(row, 0)?,
        text: row.get(1)?,
        status: closed(row, 2)?,
        note: row.get(3)?,
        created_at: time_of(row.get(4)?),
        updated_at: time_of(row.get(5)?),
    })
}
