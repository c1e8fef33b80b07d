//! Putting records into the tables: one function for what lists need, one for messages and full text.
//!
//! Runs are in [`super::runs`], what the operator did in [`super::control`].

use ctx_journal::LogPath;
use ctx_session::conversation::{self, Change, Message, Part, Role};
use ctx_session::record::{
    CheckpointBody, CompactionBody, SessionBody, TerminalBody, ToolBody, ToolStatus, Usage,
};
use ctx_session::{Body, CheckpointId, Record, StateName, Timestamp, Ulid};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::column::{Print, Standing, count_of, int, json, millis, time_of, to_json, word};
use super::spaced::spaced;
use super::{control, runs, subagents};
use ctx_session::overview::{LastRun, Overview, Pause};

/// How much of a tool's output is kept and searched; the log has the rest.
pub const OUTPUT_BYTES: usize = 4 * 1024;

/// A session's row with its place in this file and how far its log has been read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    pub(super) key: i64,
    /// As far as the log has been read; lists show it when that is to its end.
    pub(super) row: Overview,
    pub(super) next_seq: u64,
    pub(super) text_seq: u64,
    /// The last record that was read, by its seq and its print.
    pub(super) last: Option<(u64, Print)>,
    /// The row comes from the middle of the log.
    pub(super) is_reading: bool,
}

pub(super) const SESSION_COLUMNS: &str = "meta, state, failure, title, cwd, model_override, created_at, \
     updated_at, ended_at, posted_at, last_run, last_run_over, runs, messages, tokens_in, tokens_out, preview, archived, \
     bound_issue, pause, imports, damage, tokens_cached, cost_nano";
/// How many they are: what else is asked for follows them.
pub(super) const SESSION_COLUMNS_LEN: usize = 24;

/// Reads [`SESSION_COLUMNS`] from a row.
pub(super) fn session_row(row: &Row<'_>) -> rusqlite::Result<Overview> {
    let time = |at: usize| -> rusqlite::Result<Timestamp> { Ok(time_of(row.get(at)?)) };
    let maybe_time = |at: usize| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(time_of))
    };
    let last_run: Option<String> = row.get(10)?;
    let is_over: bool = row.get(11)?;
    let bound_issue: Option<String> = row.get(18)?;
    Ok(Overview {
        meta: json(row, 0)?,
        state: state_of(&row.get::<_, String>(1)?),
        failure: row.get::<_, Option<String>>(2)?.and_then(|text| serde_json::from_str(&text).ok()),
        title: row.get(3)?,
        cwd: row.get(4)?,
        model_override: row.get(5)?,
        created_at: time(6)?,
        updated_at: time(7)?,
        ended_at: maybe_time(8)?,
        posted_at: maybe_time(9)?,
        last_run: last_run.and_then(|id| id.parse().ok()).map(|id| LastRun { id, is_over }),
        runs: count_of(row.get(12)?),
        messages: count_of(row.get(13)?),
        usage: Usage {
            input: count_of(row.get(14)?),
            output: count_of(row.get(15)?),
            cached: count_of(row.get(22)?),
            cost_nano_usd: count_of(row.get(23)?),
        },
        preview: row.get(16)?,
        archived: row.get(17)?,
        bound_issue: bound_issue.and_then(|id| id.parse().ok()),
        pause: row
            .get::<_, Option<String>>(19)?
            .map_or_else(Default::default, |text| serde_json::from_str(&text).unwrap_or_default()),
        imports: imports_of(row, 20)?,
        missing: row.get::<_, Option<String>>(21)?.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

/// The imports of a session that were not taken back.
pub(super) fn imports_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Vec<Ulid>> {
    let text: Option<String> = row.get(at)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

fn state_of(word: &str) -> StateName {
    StateName::ALL.into_iter().find(|state| state.as_str() == word).unwrap_or(StateName::Idle)
}

/// The session whose log this is, if it is known.
pub(super) fn find(db: &Connection, log: &LogPath) -> rusqlite::Result<Option<Stored>> {
    let sql = format!(
        "SELECT {SESSION_COLUMNS}, key, next_seq, text_seq, end_seq, end_print, reading \
         FROM sessions WHERE log = ?1"
    );
    db.prepare_cached(&sql)?
        .query_row([log.as_str()], |row| {
            let end_seq: i64 = row.get(SESSION_COLUMNS_LEN + 3)?;
            let print = Print(row.get(SESSION_COLUMNS_LEN + 4)?);
            let is_reading = row.get_ref(SESSION_COLUMNS_LEN + 5)? != rusqlite::types::ValueRef::Null;
            Ok(Stored {
                row: if is_reading { json(row, SESSION_COLUMNS_LEN + 5)? } else { session_row(row)? },
                is_reading,
                key: row.get(SESSION_COLUMNS_LEN)?,
                next_seq: count_of(row.get(SESSION_COLUMNS_LEN + 1)?),
                text_seq: count_of(row.get(SESSION_COLUMNS_LEN + 2)?),
                last: (end_seq >= 0).then_some((count_of(end_seq), print)),
            })
        })
        .optional()
}

/// Adds a session that has just been met. Nothing happens when another log has the same session.
pub(super) fn add(db: &Connection, log: &LogPath, row: Overview) -> rusqlite::Result<Option<Stored>> {
    let meta = &row.meta;
    let added = db
        .prepare_cached(
            "INSERT INTO sessions (id, log, meta, owner, scope, space, agent, project, name, forked_from, state,
               cwd, created_at, updated_at, last_run_over, runs, messages, tokens_in, tokens_out, next_seq, text_seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'idle', ?11, ?12, ?12, 0, 0, 0, 0, 0, 0, 0)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            meta.session_id.to_string(),
            log.as_str(),
            to_json(meta),
            meta.owner,
            word(&meta.scope),
            meta.space.as_ref().map(|name| name.as_str()),
            meta.agent.as_ref().map(|name| name.as_str()),
            meta.project.as_str(),
            meta.name.as_str(),
            meta.forked_from.map(|from| from.session_id.to_string()),
            row.cwd,
            millis(row.created_at),
        ])?;
    let key = db.last_insert_rowid();
    Ok((added == 1).then_some(Stored { key, row, next_seq: 0, text_seq: 0, last: None, is_reading: true }))
}

/// Writes a session's row back. One from the middle of its log is put aside: a list must not show a state that the
/// session only had long ago, nor one that is older than what it showed before.
pub(super) fn save(db: &Connection, stored: &Stored) -> rusqlite::Result<()> {
    let row = &stored.row;
    if stored.is_reading {
        let sql = "UPDATE sessions SET next_seq = ?2, text_seq = ?3, reading = ?4, missing = 0, broken = NULL WHERE key = ?1";
        let (next, text) = (int(stored.next_seq), int(stored.text_seq));
        return db.prepare_cached(sql)?.execute(params![stored.key, next, text, to_json(row)]).map(drop);
    }
    db.prepare_cached(
        "UPDATE sessions SET state = ?2, failure = ?3, title = ?4, cwd = ?5, model_override = ?6, updated_at = ?7,
           ended_at = ?8, posted_at = ?9, last_run = ?10, last_run_over = ?11, runs = ?12, messages = ?13,
           tokens_in = ?14, tokens_out = ?15, preview = ?16, next_seq = ?17, text_seq = ?18, archived = ?19,
           bound_issue = ?20, pause = ?21, imports = ?22, damage = ?23, tokens_cached = ?24, cost_nano = ?25, missing = 0,
           broken = NULL, reading = NULL,
           listed = 1
         WHERE key = ?1",
    )?
    .execute(params![
        stored.key,
        row.state.as_str(),
        row.failure.as_ref().map(to_json),
        row.title,
        row.cwd,
        row.model_override,
        millis(row.updated_at),
        row.ended_at.map(millis),
        row.posted_at.map(millis),
        row.last_run.map(|run| run.id.to_string()),
        row.last_run.is_some_and(|run| run.is_over),
        int(row.runs),
        int(row.messages),
        int(row.usage.input),
        int(row.usage.output),
        row.preview,
        int(stored.next_seq),
        int(stored.text_seq),
        row.archived,
        row.bound_issue.map(|issue| issue.to_string()),
        (row.pause != Pause::default()).then(|| to_json(&row.pause)),
        (!row.imports.is_empty()).then(|| to_json(&row.imports)),
        row.missing.as_ref().map(to_json),
        int(row.usage.cached),
        int(row.usage.cost_nano_usd),
    ])?;
    Ok(())
}

/// Takes a session out of every table but its own row.
pub(super) fn clear(db: &Connection, key: i64) -> rusqlite::Result<()> {
    // The full text has to be told what it forgets, in the form that it was given.
    let mut texts =
        db.prepare_cached("SELECT key, content FROM messages WHERE session = ?1 AND content <> ''")?;
    let mut texts = texts.query([key])?;
    while let Some(row) = texts.next()? {
        let (rowid, content) = (row.get::<_, i64>(0)?, row.get::<_, String>(1)?);
        let sql = "INSERT INTO message_text (message_text, rowid, content) VALUES ('delete', ?1, ?2)";
        db.prepare_cached(sql)?.execute(params![rowid, spaced(&content)])?;
    }
    for table in
        ["messages", "runs", "model_calls", "tool_calls", "subagent_invocations", "run_pty_transcripts"]
            .into_iter()
            .chain(control::TABLES)
    {
        db.execute(&format!("DELETE FROM {table} WHERE session = ?1"), [key])?;
    }
    Ok(())
}

/// Forgets a session and what is known of its log.
pub(super) fn forget(db: &Connection, log: &LogPath) -> rusqlite::Result<()> {
    let key: Option<i64> = db
        .query_row("SELECT key FROM sessions WHERE log = ?1", [log.as_str()], |row| row.get(0))
        .optional()?;
    if let Some(key) = key {
        clear(db, key)?;
        db.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
    }
    db.execute("DELETE FROM damage WHERE log = ?1", [log.as_str()])?;
    Ok(())
}

/// A log has another path. Told twice, the second time changes nothing.
pub(super) fn moved(db: &Connection, from: &LogPath, to: &LogPath) -> rusqlite::Result<()> {
    if find(db, from)?.is_none() {
        return Ok(());
    }
    // Whatever was known of the new place is not there any more.
    forget(db, to)?;
    db.execute(
        "UPDATE sessions SET log = ?2, missing = 0, broken = NULL WHERE log = ?1",
        [from.as_str(), to.as_str()],
    )?;
    db.execute("UPDATE OR REPLACE damage SET log = ?2 WHERE log = ?1", [from.as_str(), to.as_str()])?;
    Ok(())
}

/// What lists need of a record: the session's row, its runs, and what the operator did with it.
pub(super) fn put_list(db: &Connection, stored: &mut Stored, record: &Record) -> rusqlite::Result<()> {
    stored.row.apply(record);
    runs::put(db, stored.key, record)?;
    subagents::put(db, stored.key, record)?;
    put_transcript(db, stored, record)?;
    control::put(db, stored.key, record)
}

/// Where a terminal that is closed has left what it showed.
fn put_transcript(db: &Connection, stored: &Stored, record: &Record) -> rusqlite::Result<()> {
    let Body::Terminal(TerminalBody::Closed(closed)) = &record.body else { return Ok(()) };
    let id = closed.pty_id.to_string();
    let path = format!(".state/hold/{}/{id}/transcript", stored.row.meta.owner);
    db.prepare_cached(
        "INSERT INTO run_pty_transcripts
           (session, id, run_id, pty_id, transcript, line_count, reason, exit_code, created_at)
         VALUES (?1, ?2, ?3, ?2, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        stored.key,
        id,
        closed.turn_id.map(|run| run.to_string()),
        path,
        int(closed.transcript_lines),
        closed.reason.as_str(),
        closed.exit_code,
        millis(record.time),
    ])?;
    Ok(())
}

/// What pages of messages, tool calls and search need of a record.
pub(super) fn put_text(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    for change in conversation::changes(record) {
        match change {
            Change::Said(message) => put_message(db, key, &message)?,
            Change::Superseded { ids, .. } => mark(db, key, record.seq, &ids, standing_after(&record.body))?,
            Change::Restored { ids, .. } => mark(db, key, record.seq, &ids, Standing::Counts)?,
            Change::Pinned { id, pinned, .. } => {
                let sql = "UPDATE messages SET pinned = ?3 WHERE session = ?1 AND id = ?2";
                db.prepare_cached(sql)?.execute(params![key, id.to_string(), pinned])?;
            }
        }
    }
    if let Body::Checkpoint(CheckpointBody::RolledBack(back)) = &record.body {
        take_back_compacted(db, key, back.checkpoint_id)?;
    }
    put_tool_call(db, key, record)
}

/// What messages are that a record supersedes.
fn standing_after(body: &Body) -> Standing {
    let is_compaction = matches!(
        body,
        // An import that brings a compaction back.
        Body::Compaction(CompactionBody::Recorded(_) | CompactionBody::Approved(_))
            | Body::Session(SessionBody::Imported(_))
    );
    if is_compaction { Standing::Compacted } else { Standing::TakenBack }
}

/// What was compacted after the checkpoint that a session went back to was said in the part that is taken back.
fn take_back_compacted(db: &Connection, key: i64, checkpoint: CheckpointId) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE messages SET superseded = ?3 WHERE session = ?1 AND superseded = ?4
           AND seq > (SELECT seq FROM checkpoints WHERE session = ?1 AND id = ?2)",
    )?
    .execute(params![
        key,
        checkpoint.to_string(),
        Standing::TakenBack.number(),
        Standing::Compacted.number()
    ])?;
    Ok(())
}

/// How earlier messages stand from here on.
fn mark(db: &Connection, key: i64, before: u64, ids: &[Ulid], standing: Standing) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE messages SET superseded = ?4
         WHERE session = ?1 AND seq < ?2 AND id IN (SELECT value FROM json_each(?3))",
    )?
    .execute(params![key, int(before), to_json(&ids), standing.number()])?;
    Ok(())
}

fn put_message(db: &Connection, key: i64, message: &Message) -> rusqlite::Result<()> {
    let text = message.text();
    let (content, cut) = match message.role {
        Role::Tool => beginning(&text),
        Role::User | Role::Assistant | Role::Subagent | Role::System => (text.as_str(), false),
    };
    let plain = message.content.iter().all(|part| matches!(part, Part::Text { .. }));
    let parts = (!plain).then(|| parts_json(&message.content));
    // The result of a call that no longer counts does not count either, and a call has one pin with its result.
    db.prepare_cached(
        "INSERT INTO messages (session, seq, id, run_id, role, content, cut, parts, created_at, superseded, pinned)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ifnull(
           (SELECT m.superseded FROM tool_calls AS t JOIN messages AS m ON m.session = t.session AND m.seq = t.seq
            WHERE t.session = ?1 AND t.id = ?3), 0), ifnull(
           (SELECT m.pinned FROM tool_calls AS t JOIN messages AS m ON m.session = t.session AND m.seq = t.seq
            WHERE t.session = ?1 AND t.id = ?3), 0))",
    )?
    .execute(params![
        key,
        int(message.seq),
        message.id.to_string(),
        message.run.to_string(),
        word(&message.role),
        content,
        cut,
        parts,
        millis(message.time),
    ])?;
    if !content.is_empty() {
        let rowid = db.last_insert_rowid();
        db.prepare_cached("INSERT INTO message_text (rowid, content) VALUES (?1, ?2)")?
            .execute(params![rowid, spaced(content)])?;
    }
    Ok(())
}

/// The parts of a message; the text of a tool's result stands in the message already.
fn parts_json(parts: &[Part]) -> String {
    let without_text: Vec<Part> = parts
        .iter()
        .map(|part| match part {
            Part::ToolResult { call_id, status, .. } => {
                Part::ToolResult { call_id: *call_id, status: *status, text: String::new() }
            }
            Part::Text { .. } | Part::Image(_) | Part::ToolCall { .. } => part.clone(),
        })
        .collect();
    to_json(&without_text)
}

fn put_tool_call(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let now = millis(record.time);
    if let Body::Tool(ToolBody::Started(tool)) = &record.body {
        db.prepare_cached(
            "INSERT INTO tool_calls (session, id, seq, run_id, caller, tool_name, input, state, created_at)
             VALUES (?1, ?2, ?3, ?4, ?8, ?5, ?6, 'pending', ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            key,
            tool.call_id.to_string(),
            int(record.seq),
            tool.turn_id.to_string(),
            tool.name,
            tool.input.to_string(),
            now,
            tool.caller.as_ref().map_or("primary", |caller| caller.name.as_str()),
        ])?;
    }
    if let Body::Tool(ToolBody::Finished(tool)) = &record.body {
        let state = match tool.status {
            ToolStatus::Ok => "done",
            ToolStatus::Error => "failed",
            ToolStatus::Interrupted => "interrupted",
            ToolStatus::Skipped => "skipped",
        };
        let (output, cut) = beginning(&tool.output);
        db.prepare_cached(
            "UPDATE tool_calls SET state = ?3, output = ?4, cut = ?5, completed_at = ?6, duration_ms = ?7
             WHERE session = ?1 AND id = ?2 AND completed_at IS NULL",
        )?
        .execute(params![
            key,
            tool.call_id.to_string(),
            state,
            output,
            cut || tool.truncated,
            now,
            int(tool.duration_ms),
        ])?;
    }
    if let Body::Session(SessionBody::Forked(_)) = &record.body {
        db.prepare_cached(
            "UPDATE tool_calls SET state = 'interrupted', completed_at = ?2
             WHERE session = ?1 AND completed_at IS NULL",
        )?
        .execute(params![key, now])?;
    }
    Ok(())
}

/// The beginning of a tool's output, and whether there is more.
fn beginning(text: &str) -> (&str, bool) {
    match text.get(..text.floor_char_boundary(OUTPUT_BYTES)) {
        Some(start) if start.len() < text.len() => (start, true),
        Some(_) | None => (text, false),
    }
}
