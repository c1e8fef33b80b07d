//! Putting a session that is handed on into the other agent's store. The only place in which a foreign store is written to, and
//! only ever added to.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::event::Agent;
use crate::sqlite::columns;
use crate::write::{Handoff, claude, codex, opencode};

/// A session that was handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOn {
    pub id: String,
    pub path: PathBuf,
    /// The words of the command that resumes it, in the session's directory.
    pub resume: Vec<String>,
}

/// Writes a session into the store below a home directory, or into the store itself.
pub fn hand_over(agent: Agent, home: &Path, handoff: &Handoff) -> io::Result<HandedOn> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match agent {
        Agent::Codex => {
            let rollout = codex::write(handoff);
            let path = store_of(home, ".codex").join("sessions").join(&rollout.file);
            create(&path, &rollout.text)?;
            let resume = words(&["codex", "resume", &rollout.id]);
            Ok(HandedOn { id: rollout.id, path, resume })
        }
        Agent::Claude => {
            let session = claude::write(handoff);
            let path = store_of(home, ".claude").join("projects").join(&session.file);
            create(&path, &session.text)?;
            let resume = words(&["claude", "--resume", &session.id]);
            Ok(HandedOn { id: session.id, path, resume })
        }
        Agent::Opencode => {
            let session = opencode::write(handoff);
            let path = store_of(home, ".local/share/opencode").join("opencode.db");
            insert(&path, handoff, &session)?;
            let resume = words(&["opencode", "-s", &session.id]);
            Ok(HandedOn { id: session.id, path, resume })
        }
        Agent::Goose | Agent::Gemini | Agent::Aider => {
            Err(io::Error::other(format!("sessions are not handed on to {agent}")))
        }
    }
}

/// The store below a home; the directory itself where it is named like the store.
fn store_of(home: &Path, below: &str) -> PathBuf {
    if home.ends_with(below) { home.to_owned() } else { home.join(below) }
}

/// Writes a file that was not there, as a whole, for its owner alone.
fn create(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let beside = path.with_extension("jsonl.new");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Adds the rows in one transaction.
fn insert(path: &Path, handoff: &Handoff, session: &opencode::Session) -> io::Result<()> {
    if !path.is_file() {
        let message =
            format!("{} is not there; start opencode once, so that it makes its database", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut db = Connection::open(path).map_err(io::Error::other)?;
    db.busy_timeout(Duration::from_secs(10)).map_err(io::Error::other)?;
    insert_rows(&mut db, handoff, session).map_err(io::Error::other)
}

fn insert_rows(db: &mut Connection, handoff: &Handoff, session: &opencode::Session) -> rusqlite::Result<()> {
    let now = i64::try_from(handoff.at.as_millis()).unwrap_or(i64::MAX);
    let rows = db.transaction()?;
    let of_directory = "SELECT id FROM project WHERE worktree = ?1";
    let project: Option<String> =
        rows.query_row(of_directory, params![handoff.cwd], |row| row.get(0)).optional()?;
    let project = match project {
        Some(project) => project,
        None => {
            rows.execute(
                "INSERT OR IGNORE INTO project (id, worktree, time_created, time_updated, sandboxes)
                 VALUES ('global', '/', ?1, ?1, '[]')",
                params![now],
            )?;
            "global".to_owned()
        }
    };
    rows.execute(
        "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
        params![session.id, project, "handed-on", handoff.cwd, session.title, "1.18.33", now],
    )?;
    // Some versions have the path below the project's root, and take none for damage.
    if columns(&rows, "session").iter().any(|name| name == "path") {
        rows.execute("UPDATE session SET path = '' WHERE id = ?1", params![session.id])?;
    }
    for message in &session.messages {
        let at = i64::try_from(message.at.as_millis()).unwrap_or(i64::MAX);
        rows.execute(
            "INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?1, ?2, ?3, ?3, ?4)",
            params![message.id, session.id, at, message.data.to_string()],
        )?;
    }
    for part in &session.parts {
        let at = i64::try_from(part.at.as_millis()).unwrap_or(i64::MAX);
        rows.execute(
            "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)
             VALUES (?1, ?2, ?3, ?4, ?4, ?5)",
            params![part.id, part.message, session.id, at, part.data.to_string()],
        )?;
    }
    rows.commit()
}
