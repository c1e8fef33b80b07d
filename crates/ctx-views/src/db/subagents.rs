//! Putting the subagents of a session into their table. The rules of their ends are in `ctx_session::subagent`.

use ctx_session::record::{ExitCause, RunBody, SessionBody, SubagentBody, SubagentExited};
use ctx_session::{Body, Record};
use rusqlite::{Connection, params};

use super::column::{int, millis, word};

pub(super) fn put(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let now = millis(record.time);
    match &record.body {
        Body::Subagent(SubagentBody::Spawned(spawned)) => {
            db.prepare_cached(
                "INSERT INTO subagent_invocations
                   (session, id, seq, run_id, call_id, subagent_name, model, state, spawned_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'spawned', ?8) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                key,
                spawned.invocation_id.to_string(),
                int(record.seq),
                spawned.turn_id.to_string(),
                spawned.call_id.to_string(),
                spawned.name,
                spawned.model,
                now,
            ])?;
        }
        Body::Subagent(SubagentBody::Running(running)) => {
            let sql = "UPDATE subagent_invocations SET state = 'running', cage_id = ?3
                       WHERE session = ?1 AND id = ?2 AND exited_at IS NULL";
            let id = running.invocation_id.to_string();
            db.prepare_cached(sql)?.execute(params![key, id, running.cage_id])?;
        }
        Body::Subagent(SubagentBody::Exited(exited)) => exit(db, key, exited, now)?,
        // Where damage took the record of an end, its run is over all the same.
        Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)) => {
            let run = record.body.run().map(|run| run.to_string());
            kill(db, key, ExitCause::RunEnded, now, run)?;
        }
        // What was copied goes on in the source alone.
        Body::Session(SessionBody::Forked(_)) => kill(db, key, ExitCause::DaemonStopped, now, None)?,
        Body::Session(_)
        | Body::Run(_)
        | Body::Message(_)
        | Body::Tool(_)
        | Body::Checkpoint(_)
        | Body::Compaction(_)
        | Body::Terminal(_)
        | Body::Approval(_) => {}
    }
    Ok(())
}

/// The first end wins.
fn exit(db: &Connection, key: i64, exited: &SubagentExited, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE subagent_invocations SET state = ?3, cause = ?4, exit_code = ?5, message = ?6, exited_at = ?7
         WHERE session = ?1 AND id = ?2 AND exited_at IS NULL",
    )?
    .execute(params![
        key,
        exited.invocation_id.to_string(),
        word(&exited.state),
        word(&exited.cause),
        exited.exit_code,
        exited.message,
        now,
    ])?;
    Ok(())
}

/// Ends those of a run, or of the whole session, that no record ended.
fn kill(db: &Connection, key: i64, cause: ExitCause, now: i64, run: Option<String>) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE subagent_invocations SET state = ?3, cause = ?4, exit_code = ?5, exited_at = ?6
         WHERE session = ?1 AND exited_at IS NULL AND (?2 IS NULL OR run_id = ?2)",
    )?
    .execute(params![key, run, word(&cause.state()), word(&cause), cause.exit_code(), now])?;
    Ok(())
}
