//! The tables `issues` and `todos`: what the logs of projects say, not those of sessions.
//!
//! A project's log is read whole at a start; after that the engine hands over each issue that has changed. Every row
//! says up to which record it is true, so that what was read late does not undo what came meanwhile.

use std::ops::ControlFlow;

use ctx_journal::{Journal, JournalError, LogPath};
use ctx_session::Name;
use ctx_session::project::{Issue, Project, ProjectBody, ProjectRecord};
use ctx_session::record::Decoded;
use rusqlite::{Connection, params};

use super::column::int;

/// Where the logs of projects are.
pub const PROJECT_LOGS: &str = ".state/project";

pub(super) const TABLES: [&str; 2] = ["issues", "todos"];

/// Issues of one project as they were when its log had `next_seq` records.
#[derive(Debug)]
pub(super) struct Issues {
    pub log: LogPath,
    pub project: Name,
    pub next_seq: u64,
    pub issues: Vec<Issue>,
    /// These are all that the project has; a reader has found them.
    pub is_whole: bool,
}

/// The project that a log is of.
pub fn project_of_log(log: &LogPath) -> Option<Name> {
    Name::new(log.dir().strip_prefix(PROJECT_LOGS)?.strip_prefix('/')?).ok()
}

/// The logs of all projects.
pub fn project_logs(journal: &dyn Journal) -> Result<Vec<LogPath>, JournalError> {
    match journal.list(PROJECT_LOGS) {
        Err(JournalError::NotThere { .. }) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Reads the log of a project.
pub(super) fn read(journal: &dyn Journal, log: &LogPath, slug: Name) -> Result<Issues, JournalError> {
    let mut project = Project::new(slug);
    journal.read(log, 0, &mut |entry| {
        match ProjectBody::decode(&entry.kind, &entry.text) {
            Decoded::Known(body) => project.apply(&ProjectRecord { seq: entry.seq, time: entry.time, body }),
            Decoded::Unknown | Decoded::Malformed(_) => project.next_seq = entry.seq + 1,
        }
        ControlFlow::Continue(())
    })?;
    let (issues, next_seq) = (project.issues().to_vec(), project.next_seq);
    Ok(Issues { log: log.clone(), project: project.slug, next_seq, issues, is_whole: true })
}

/// Writes them, but for those of which something newer is written.
pub(super) fn put(db: &Connection, given: &Issues) -> rusqlite::Result<()> {
    let seq = int(given.next_seq);
    if given.is_whole {
        forget(db, "project = ?1 AND seq <= ?2", params![given.project.as_str(), seq])?;
    }
    for issue in &given.issues {
        let id = issue.id.to_string();
        forget(db, "id = ?1 AND seq <= ?2", params![id, seq])?;
        let added = db
            .prepare_cached(
                "INSERT INTO issues (id, project, number, title, body, status, criteria, owner, session, created_at,
                   updated_at, seq)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING",
            )?
            .execute(params![
                id,
                given.project.as_str(),
                int(issue.number),
                issue.title,
                issue.body,
                issue.status.as_str(),
                serde_json::to_string(&issue.criteria).unwrap_or_default(),
                issue.owner,
                issue.session.map(|session| session.to_string()),
                int(issue.created_at.as_millis()),
                int(issue.updated_at.as_millis()),
                seq,
            ])?;
        if added > 0 {
            put_todos(db, issue)?;
        }
    }
    Ok(())
}

fn put_todos(db: &Connection, issue: &Issue) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT INTO todos (issue, position, id, text, status, note, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for (position, todo) in (1_i64..).zip(&issue.todos) {
        statement.execute(params![
            issue.id.to_string(),
            position,
            todo.id.to_string(),
            todo.text,
            todo.status.as_str(),
            todo.note,
            int(todo.created_at.as_millis()),
            int(todo.updated_at.as_millis()),
        ])?;
    }
    Ok(())
}

fn forget(db: &Connection, which: &str, values: impl rusqlite::Params + Copy) -> rusqlite::Result<()> {
    db.prepare_cached(&format!("DELETE FROM todos WHERE issue IN (SELECT id FROM issues WHERE {which})"))?
        .execute(values)?;
    db.prepare_cached(&format!("DELETE FROM issues WHERE {which}"))?.execute(values)?;
    Ok(())
}

/// Forgets projects whose logs are gone.
pub(super) fn keep_only(db: &Connection, projects: &[Name]) -> rusqlite::Result<()> {
    let known: Vec<String> = db
        .prepare("SELECT DISTINCT project FROM issues")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for gone in
        known.iter().filter(|known| !projects.iter().any(|project| project.as_str() == known.as_str()))
    {
        forget(db, "project = ?1", params![gone])?;
    }
    Ok(())
}
