//! Fetching the rows of a session: from the tables of Goose and OpenCode, or from OpenCode's tree of files.
//!
//! What the rows say is decided in `goose` and `opencode`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ctx_session::Timestamp;
use serde_json::Value;

use crate::event::Transcript;
use crate::{goose, opencode, sqlite};

pub(crate) fn read_goose(db: &rusqlite::Connection, id: &str, file: &str) -> rusqlite::Result<Transcript> {
    let has = sqlite::columns(db, "sessions");
    let column = |name: &str| {
        if has.iter().any(|has| has == name) { name.to_owned() } else { format!("NULL AS {name}") }
    };
    let names = [
        "name",
        "working_dir",
        "created_at",
        "model_config_json",
        "accumulated_input_tokens",
        "accumulated_output_tokens",
        "accumulated_cost",
    ];
    let query = format!("SELECT {} FROM sessions WHERE id = ?1", names.map(column).join(", "));
    let session = db.query_row(&query, [id], |row| {
        Ok(goose::Session {
            id: id.to_owned(),
            name: row.get(0)?,
            working_dir: row.get(1)?,
            created_at: row.get(2)?,
            model_config: row.get(3)?,
            input_tokens: row.get::<_, Option<i64>>(4)?.map(i64::unsigned_abs),
            output_tokens: row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs),
            cost: row.get(6)?,
        })
    })?;
    let metadata = if sqlite::columns(db, "messages").iter().any(|name| name == "metadata_json") {
        "metadata_json"
    } else {
        "NULL"
    };
    let query = format!(
        "SELECT id, role, content_json, created_timestamp, {metadata} FROM messages WHERE session_id = ?1 ORDER BY id"
    );
    let mut statement = db.prepare(&query)?;
    let rows = statement.query_map([id], |row| {
        Ok(goose::Row {
            id: row.get(0)?,
            role: row.get(1)?,
            content: row.get(2)?,
            created: row.get::<_, i64>(3)?.unsigned_abs(),
            metadata: row.get(4)?,
        })
    })?;
    let (rows, damage) = split(rows);
    let mut found = goose::read(&session, &rows, file);
    damage.into_iter().for_each(|why| found.note_damage(file, 0, why));
    Ok(found)
}

pub(crate) fn read_opencode(
    db: &rusqlite::Connection,
    id: &str,
    file: &str,
    now: Timestamp,
) -> rusqlite::Result<Transcript> {
    let query = "SELECT directory, title, version, parent_id, time_created FROM session WHERE id = ?1";
    let session = db.query_row(query, [id], |row| {
        Ok(opencode::Session {
            id: id.to_owned(),
            directory: row.get(0)?,
            title: row.get(1)?,
            version: row.get(2)?,
            parent: row.get(3)?,
            created: row.get::<_, Option<i64>>(4)?.map(|time| crate::json::epoch(time.unsigned_abs())),
        })
    })?;
    let rows = |query: &str| {
        let mut statement = db.prepare(query)?;
        let rows = statement.query_map([id], |row| {
            let (id, owner, data) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(opencode::Row { id, owner, data, file: file.to_owned() })
        })?;
        Ok::<_, rusqlite::Error>(split(rows))
    };
    let (messages, mut damage) = rows("SELECT id, '', data FROM message WHERE session_id = ?1")?;
    let (parts, more) = rows("SELECT id, message_id, data FROM part WHERE session_id = ?1")?;
    damage.extend(more);
    let mut found = opencode::read(session, &messages, &parts, now);
    damage.into_iter().for_each(|why| found.note_damage(file, 0, why));
    Ok(found)
}

/// The rows that can be read, and why others cannot.
fn split<T>(rows: impl Iterator<Item = rusqlite::Result<T>>) -> (Vec<T>, Vec<String>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for row in rows {
        match row {
            Ok(row) => good.push(row),
            Err(error) => {
                bad.push(format!("a row that cannot be read: {error}"));
                // SQLite gives the same error for ever where a page is damaged.
                if bad.len() > 100 {
                    break;
                }
            }
        }
    }
    (good, bad)
}

pub(crate) fn read_tree(root: &Path, path: &Path, now: Timestamp) -> io::Result<Transcript> {
    let file = path.display().to_string();
    let bytes = fs::read(path)?;
    let mut session = match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) => opencode::Session::from_json(&value),
        Err(error) => {
            let title = Some(format!("(the session's file cannot be read: {error})"));
            opencode::Session { title, ..opencode::Session::default() }
        }
    };
    if session.id.is_empty() {
        session.id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    let row = |path: &Path, owner: &str| {
        let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let data = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        opencode::Row { id, owner: owner.to_owned(), data, file: path.display().to_string() }
    };
    let of = |dir: PathBuf, owner: &str| -> Vec<opencode::Row> {
        directory(&dir).iter().map(|path| row(path, owner)).collect()
    };
    let messages = of(root.join("message").join(&session.id), "");
    let parts = messages
        .iter()
        .flat_map(|message| of(root.join("part").join(&message.id), &message.id))
        .collect::<Vec<_>>();
    let is_whole = serde_json::from_slice::<Value>(&bytes);
    let mut found = opencode::read(session, &messages, &parts, now);
    if let Err(error) = is_whole {
        found.note_damage(&file, error.line() as u64, format!("not a record: {error}"));
    }
    Ok(found)
}

/// The paths in a directory, sorted; none where it cannot be read.
pub(crate) fn directory(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
