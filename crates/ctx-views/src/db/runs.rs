//! Putting the runs of a session into their table.

use ctx_session::record::{
    CompactionBody, Failed, Failure, MessageBody, RunBody, RunCreated, RunKind, SessionBody, ToolBody, Usage,
};
use ctx_session::{Body, Record, RunId};
use rusqlite::{Connection, OptionalExtension, params};

use super::column::{int, millis, to_json, word};

pub(super) fn put(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let now = millis(record.time);
    match &record.body {
        Body::Message(MessageBody::User(user)) => {
            let message = Some(user.message_id.to_string());
            begin(db, key, record, (user.turn_id, RunKind::Message, message))?;
        }
        Body::Run(RunBody::Created(created)) => begin_without_message(db, key, record, created)?,
        Body::Run(RunBody::Context(context)) => start(db, key, context.turn_id, Some(&context.model), now)?,
        // A run that calls tools has begun, also where its `context` is damaged.
        Body::Tool(ToolBody::Started(tool)) => start(db, key, tool.turn_id, None, now)?,
        Body::Message(MessageBody::AssistantStarted(began)) => {
            add_call(db, key, record, &began.message_id.to_string(), (Some(&began.model), Usage::default()))?;
        }
        Body::Message(MessageBody::AssistantFinished(message)) => {
            if let Some(usage) = message.usage {
                add_usage(db, key, message.turn_id, usage)?;
                add_call(db, key, record, &message.message_id.to_string(), (None, usage))?;
            }
        }
        // What making the conversation shorter cost is part of what the run cost.
        Body::Compaction(CompactionBody::Recorded(made)) => {
            if let Some(cost) = &made.plugin_cost {
                add_usage(db, key, made.turn_id, cost.usage())?;
                let model = format!("{}/{}", cost.provider, cost.model);
                let id = made.compaction_id.to_string();
                add_call(db, key, record, &id, (Some(&model), cost.usage()))?;
            }
        }
        Body::Run(RunBody::Finished(done)) => {
            let finish_reason = done.finish_reason.as_ref().map(word);
            let how = End { state: "done", error: None, finish_reason, duration_ms: done.duration_ms };
            end(db, key, done.turn_id, how, now)?;
        }
        Body::Run(RunBody::Cancelled(gone)) => {
            let duration_ms = gone.duration_ms;
            let how = End { state: "cancelled", error: None, finish_reason: None, duration_ms };
            end(db, key, gone.turn_id, how, now)?;
        }
        Body::Run(RunBody::Failed(failed)) => {
            let (error, duration_ms) = (Some(failure_json(failed)), failed.duration_ms);
            let how = End { state: "failed", error, finish_reason: None, duration_ms };
            end(db, key, failed.turn_id, how, now)?;
        }
        Body::Session(SessionBody::Forked(_)) => {
            db.prepare_cached(
                "UPDATE runs SET state = 'cancelled', completed_at = ?2 WHERE session = ?1 AND completed_at IS NULL",
            )?
            .execute(params![key, now])?;
        }
        Body::Checkpoint(_)
        | Body::Subagent(_)
        | Body::Terminal(_)
        | Body::Approval(_)
        | Body::Session(_)
        | Body::Message(_)
        | Body::Tool(_)
        | Body::Run(_)
        | Body::Compaction(_) => {}
    }
    Ok(())
}

/// The run with an id, where more may come of it: an open one, or any of an imported session, whose source may go on with it.
const GROWING_RUN: &str = "session = ?1 AND id = ?2 AND (completed_at IS NULL
    OR (SELECT json_extract(meta, '$.origin') IS NOT NULL FROM sessions WHERE key = ?1))";

fn add_usage(db: &Connection, key: i64, run: RunId, usage: Usage) -> rusqlite::Result<()> {
    db.prepare_cached(&format!(
        "UPDATE runs SET tokens_in = tokens_in + ?3, tokens_out = tokens_out + ?4,
           tokens_cached = tokens_cached + ?5, cost_nano = cost_nano + ?6 WHERE {GROWING_RUN}"
    ))?
    .execute(params![
        key,
        run.to_string(),
        int(usage.input),
        int(usage.output),
        int(usage.cached),
        int(usage.cost_nano_usd)
    ])?;
    Ok(())
}

/// A model call: which model, when it begins, and what it cost, when it is over. What is said of it later comes on top.
fn add_call(
    db: &Connection,
    key: i64,
    record: &Record,
    id: &str,
    (model, usage): (Option<&str>, Usage),
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO model_calls (session, id, seq, model, created_at, tokens_in, tokens_out, tokens_cached, cost_nano)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (session, id) DO UPDATE SET created_at = excluded.created_at,
           tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
           tokens_cached = tokens_cached + excluded.tokens_cached, cost_nano = cost_nano + excluded.cost_nano",
    )?
    .execute(params![
        key,
        id,
        int(record.seq),
        model,
        millis(record.time),
        int(usage.input),
        int(usage.output),
        int(usage.cached),
        int(usage.cost_nano_usd)
    ])?;
    Ok(())
}

/// A repeated line does not bring a run back.
fn begin(
    db: &Connection,
    key: i64,
    record: &Record,
    (run, kind, message): (RunId, RunKind, Option<String>),
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO runs (session, id, seq, kind, message_id, state, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'pending', ?6) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        key,
        run.to_string(),
        int(record.seq),
        word(&kind),
        message,
        millis(record.time)
    ])?;
    Ok(())
}

fn begin_without_message(
    db: &Connection,
    key: i64,
    record: &Record,
    created: &RunCreated,
) -> rusqlite::Result<()> {
    let message = match (created.kind, created.continues) {
        // Its message has begun it. Where damage took that, there is nothing to work on.
        (RunKind::Message, _) => return Ok(()),
        (RunKind::Compaction, _) | (RunKind::Continuation, None) => None,
        (RunKind::Continuation, Some(run)) => {
            let sql = "SELECT message_id FROM runs WHERE session = ?1 AND id = ?2";
            let found = db.prepare_cached(sql)?.query_row(params![key, run.to_string()], |row| row.get(0));
            found.optional()?.flatten()
        }
    };
    begin(db, key, record, (created.turn_id, created.kind, message))
}

fn failure_json(failed: &Failed) -> String {
    let Failed { code, reason, message, .. } = failed;
    to_json(&Failure { code: *code, reason: reason.clone(), message: message.clone() })
}

fn start(db: &Connection, key: i64, run: RunId, model: Option<&str>, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE runs SET state = 'running', started_at = ifnull(started_at, ?3), model = ifnull(?4, model)
         WHERE session = ?1 AND id = ?2 AND completed_at IS NULL",
    )?
    .execute(params![key, run.to_string(), now, model])?;
    Ok(())
}

/// How a run came to its end.
struct End {
    state: &'static str,
    error: Option<String>,
    finish_reason: Option<String>,
    duration_ms: u64,
}

/// The first end wins; in an imported session the last, which its source came to know later.
fn end(db: &Connection, key: i64, run: RunId, how: End, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(&format!(
        "UPDATE runs SET state = ?3, error = ?4, duration_ms = ?5, completed_at = ?6, finish_reason = ?7
         WHERE {GROWING_RUN}"
    ))?
    .execute(params![
        key,
        run.to_string(),
        how.state,
        how.error,
        int(how.duration_ms),
        now,
        how.finish_reason
    ])?;
    Ok(())
}
