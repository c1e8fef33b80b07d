//! Putting the operator's control over a session into the tables: checkpoints, prompt edits, compactions, approvals.
//!
//! Follows records as [`ctx_session::control`] does, and comes to the same; a test holds the two together.

use ctx_session::record::{
    ApprovalBody, ApprovalOutcome, ApprovalRequested, ApprovalSettled, CheckpointBody, CheckpointCreated,
    Compaction, CompactionApproved, CompactionBody, CompactionFlagged, CompactionsAggregated, PromptEdited,
    Rejection, RunBody, SessionBody, StateName,
};
use ctx_session::{Body, CheckpointId, Record, RunId};
use rusqlite::{Connection, OptionalExtension, params};

use super::store::{int, millis, to_json, word};

/// The tables of this module, every row of which belongs to a session.
pub(super) const TABLES: [&str; 5] =
    ["checkpoints", "prompt_edits", "compactions", "compaction_aggregates", "approvals"];

pub(super) fn put(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let now = millis(record.time);
    match &record.body {
        Body::Checkpoint(CheckpointBody::Created(created)) => put_checkpoint(db, key, record, created),
        Body::Checkpoint(CheckpointBody::PromptEdited(edited)) => put_edit(db, key, record, edited),
        Body::Checkpoint(CheckpointBody::Resumed(resumed)) => {
            let sql = "UPDATE checkpoints SET resumed_at = ?3 WHERE session = ?1 AND id = ?2";
            db.prepare_cached(sql)?.execute(params![key, resumed.checkpoint_id.to_string(), now]).map(drop)
        }
        Body::Checkpoint(CheckpointBody::RolledBack(back)) => roll_back(db, key, back.checkpoint_id),
        Body::Compaction(CompactionBody::Recorded(made)) => put_compaction(db, key, record, made),
        Body::Compaction(CompactionBody::Approved(approved)) => approve(db, key, approved),
        Body::Compaction(CompactionBody::Rejected(rejected)) => {
            let sql = "UPDATE compactions SET state = 'rejected', fallback_occurred = 1, fallback_reason = ?3
                       WHERE session = ?1 AND id = ?2";
            db.prepare_cached(sql)?
                .execute(params![key, rejected.compaction_id.to_string(), rejected.reason.as_str()])
                .map(drop)
        }
        Body::Compaction(CompactionBody::Flagged(flagged)) => flag(db, key, flagged),
        Body::Compaction(CompactionBody::Aggregated(aggregated)) => {
            aggregate(db, key, record.seq, aggregated)
        }
        Body::Approval(ApprovalBody::Requested(asked)) => put_approval(db, key, record, asked),
        Body::Approval(ApprovalBody::Settled(settled)) => settle(db, key, settled, now),
        // Damage may have taken the record that settled an approval; its run is over all the same.
        Body::Run(RunBody::Finished(end)) => interrupt(db, key, Some(end.turn_id), now),
        Body::Run(RunBody::Cancelled(end)) => interrupt(db, key, Some(end.turn_id), now),
        Body::Run(RunBody::Failed(end)) => interrupt(db, key, Some(end.turn_id), now),
        // What the source of a fork waits for, the fork does not.
        Body::Session(SessionBody::Forked(_)) => {
            let sql = "UPDATE compactions SET state = 'rejected', fallback_occurred = 1, fallback_reason = ?2
                       WHERE session = ?1 AND state = 'proposed'";
            db.prepare_cached(sql)?.execute(params![key, Rejection::SessionForked.as_str()])?;
            interrupt(db, key, None, now)
        }
        Body::Session(SessionBody::StateChanged(change)) => follow_pause(db, key, change.to, now),
        Body::Message(_) | Body::Tool(_) | Body::Session(_) | Body::Run(_) => Ok(()),
    }
}

fn put_checkpoint(
    db: &Connection,
    key: i64,
    record: &Record,
    created: &CheckpointCreated,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO checkpoints (session, id, seq, run_id, created_at, created_by, user, reason, compaction_id,
           message_cursor, prompts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        key,
        created.checkpoint_id.to_string(),
        int(record.seq),
        created.turn_id.to_string(),
        millis(record.time),
        created.created_by.as_str(),
        created.by,
        created.reason,
        created.compaction_id.map(|id| id.to_string()),
        created.cursor.map(|id| id.to_string()),
        to_json(&created.prompts),
    ])?;
    Ok(())
}

fn put_edit(db: &Connection, key: i64, record: &Record, edited: &PromptEdited) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO prompt_edits (session, seq, checkpoint_id, target, old_hash, new_hash, user, edited_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        key,
        int(record.seq),
        edited.checkpoint_id.to_string(),
        edited.target,
        edited.old_hash,
        edited.new_hash,
        edited.by,
        millis(record.time),
    ])?;
    Ok(())
}

/// Later checkpoints give way to the one that was gone back to, and later compactions are undone.
fn roll_back(db: &Connection, key: i64, id: CheckpointId) -> rusqlite::Result<()> {
    let id = id.to_string();
    let find = "SELECT seq FROM checkpoints WHERE session = ?1 AND id = ?2";
    let seq: Option<i64> =
        db.prepare_cached(find)?.query_row(params![key, id], |row| row.get(0)).optional()?;
    let Some(seq) = seq else { return Ok(()) };
    db.execute("UPDATE checkpoints SET rolled_back = 1 WHERE session = ?1 AND id = ?2", params![key, id])?;
    db.execute(
        "UPDATE checkpoints SET superseded_by = ?2 WHERE session = ?1 AND seq > ?3 AND superseded_by IS NULL",
        params![key, id, seq],
    )?;
    // One that was approved took effect after its own checkpoint.
    db.execute(
        "UPDATE compactions SET rolled_back = 1
         WHERE session = ?1 AND (seq > ?2 OR (checkpoint_id = ?3 AND state = 'applied'))",
        params![key, seq, id],
    )?;
    Ok(())
}

fn put_compaction(db: &Connection, key: i64, record: &Record, made: &Compaction) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO compactions (session, id, seq, run_id, agent_path, created_at, trigger, strategy, state,
           threshold_estimate, after_estimate, window_upper, window_lower, superseded_message_ids,
           summary_message_id, summary, plugins_fired, plugin_cost, fallback_occurred, fallback_reason,
           checkpoint_id, elided_call_ids)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
           ?22)
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        key,
        made.compaction_id.to_string(),
        int(record.seq),
        made.turn_id.to_string(),
        made.agent_path,
        millis(record.time),
        word(&made.trigger),
        made.strategy.as_str(),
        if made.proposed { "proposed" } else { "applied" },
        made.threshold_estimate,
        made.after_estimate,
        made.window_upper,
        made.window_lower,
        to_json(&made.superseded_message_ids),
        made.summary_message_id.map(|id| id.to_string()),
        made.summary,
        to_json(&made.plugins_fired),
        made.plugin_cost.as_ref().map(to_json),
        made.fallback_occurred,
        made.fallback_reason,
        made.checkpoint_id.map(|id| id.to_string()),
        to_json(&made.elided_call_ids),
    ])?;
    Ok(())
}

fn approve(db: &Connection, key: i64, approved: &CompactionApproved) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE compactions SET state = 'applied', superseded_message_ids = ?3, summary_message_id = ?4, summary = ?5,
           after_estimate = ifnull(?6, after_estimate), elided_call_ids = ?7
         WHERE session = ?1 AND id = ?2",
    )?
    .execute(params![
        key,
        approved.compaction_id.to_string(),
        to_json(&approved.superseded_message_ids),
        approved.summary_message_id.map(|id| id.to_string()),
        approved.summary,
        approved.after_estimate,
        to_json(&approved.elided_call_ids),
    ])?;
    Ok(())
}

fn flag(db: &Connection, key: i64, flagged: &CompactionFlagged) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE compactions SET operator_flag = ?3, operator_notes = ?4 WHERE session = ?1 AND id = ?2",
    )?
    .execute(params![
        key,
        flagged.compaction_id.to_string(),
        flagged.flag.as_ref().map(word),
        flagged.notes
    ])?;
    Ok(())
}

/// The oldest rows become one; the log has them still.
fn aggregate(db: &Connection, key: i64, seq: u64, made: &CompactionsAggregated) -> rusqlite::Result<()> {
    db.execute(
        "DELETE FROM compactions WHERE session = ?1 AND id IN
           (SELECT id FROM compactions WHERE session = ?1 ORDER BY seq LIMIT ?2)",
        params![key, made.count],
    )?;
    db.execute(
        "INSERT INTO compaction_aggregates (session, seq, count, before) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING",
        params![key, int(seq), made.count, millis(made.before)],
    )?;
    Ok(())
}

fn put_approval(
    db: &Connection,
    key: i64,
    record: &Record,
    asked: &ApprovalRequested,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO approvals (session, id, seq, run_id, call_id, tool, subject, created_at, asked_until,
           expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        key,
        asked.approval_id.to_string(),
        int(record.seq),
        asked.turn_id.to_string(),
        asked.call_id.to_string(),
        asked.tool,
        asked.subject,
        millis(record.time),
        millis(asked.expires_at),
    ])?;
    Ok(())
}

/// The time of an approval stands still while its session is paused.
fn follow_pause(db: &Connection, key: i64, to: StateName, now: i64) -> rusqlite::Result<()> {
    let sql = match to {
        StateName::Paused => {
            "UPDATE approvals SET left_ms = max(expires_at - ?2, 0), expires_at = NULL
             WHERE session = ?1 AND outcome IS NULL AND expires_at IS NOT NULL"
        }
        StateName::Running | StateName::Idle | StateName::Queued | StateName::Ended | StateName::Failed => {
            "UPDATE approvals SET expires_at = ?2 + left_ms, left_ms = NULL
             WHERE session = ?1 AND outcome IS NULL AND left_ms IS NOT NULL"
        }
    };
    db.prepare_cached(sql)?.execute(params![key, now])?;
    Ok(())
}

/// The first answer wins.
fn settle(db: &Connection, key: i64, settled: &ApprovalSettled, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE approvals SET outcome = ?3, settled_at = ?4, user = ?5, note = ?6
         WHERE session = ?1 AND id = ?2 AND outcome IS NULL",
    )?
    .execute(params![
        key,
        settled.approval_id.to_string(),
        settled.outcome.as_str(),
        now,
        settled.by,
        settled.note,
    ])?;
    Ok(())
}

/// Nobody waits any more for an answer: of a run that is over, or of any.
fn interrupt(db: &Connection, key: i64, run: Option<RunId>, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE approvals SET outcome = ?3, settled_at = ?4
         WHERE session = ?1 AND outcome IS NULL AND run_id = ifnull(?2, run_id)",
    )?
    .execute(params![
        key,
        run.map(|run| run.to_string()),
        ApprovalOutcome::Interrupted.as_str(),
        now
    ])?;
    Ok(())
}
