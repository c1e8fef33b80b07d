//! Checkpoints, compactions and approvals in the tables: the items of [`ctx_session::control`], stored as they are.
//!
//! The rules of a session decide what becomes of an item. Here the items that a record may change are read, given to
//! those rules with the record, and written back where they changed.

use std::collections::HashMap;

use ctx_session::control::{Aggregate, Approval, Checkpoint, Compacted, Control};
use ctx_session::record::{CheckpointBody, CompactionBody, RunBody, SessionBody, SubagentBody};
use ctx_session::{Body, Record};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::column::{int, json, millis, to_json};

/// The tables of this module, every row of which belongs to a session.
pub(super) const TABLES: [&str; 4] = ["checkpoints", "compactions", "compaction_aggregates", "approvals"];

/// An item that is a row of a table.
trait Item: Serialize + DeserializeOwned + PartialEq {
    const TABLE: &'static str;

    fn id(&self) -> String;
}

impl Item for Checkpoint {
    const TABLE: &'static str = "checkpoints";

    fn id(&self) -> String {
        self.id().to_string()
    }
}

impl Item for Compacted {
    const TABLE: &'static str = "compactions";

    fn id(&self) -> String {
        self.id().to_string()
    }
}

impl Item for Approval {
    const TABLE: &'static str = "approvals";

    fn id(&self) -> String {
        self.asked.approval_id.to_string()
    }
}

/// Which rows a record can change.
enum Which {
    None,
    All,
    Id(String),
    Oldest(u32),
    Newest,
    /// Of approvals: those that wait.
    Open,
}

/// Which checkpoints, compactions and approvals a record can change; None: no row at all.
fn changed_by(body: &Body) -> Option<[Which; 3]> {
    Some(match body {
        Body::Checkpoint(CheckpointBody::Created(_)) => [Which::None, Which::None, Which::None],
        Body::Checkpoint(CheckpointBody::PromptEdited(edited)) => {
            [Which::Id(edited.checkpoint_id.to_string()), Which::None, Which::None]
        }
        Body::Checkpoint(CheckpointBody::Resumed(resumed)) => {
            [Which::Id(resumed.checkpoint_id.to_string()), Which::None, Which::None]
        }
        Body::Checkpoint(CheckpointBody::RolledBack(_)) => [Which::All, Which::All, Which::None],
        Body::Compaction(body) => {
            let which = match body {
                CompactionBody::Recorded(made) => Which::Id(made.compaction_id.to_string()),
                CompactionBody::Approved(approved) => Which::Id(approved.compaction_id.to_string()),
                CompactionBody::Rejected(rejected) => Which::Id(rejected.compaction_id.to_string()),
                CompactionBody::Flagged(flagged) => Which::Id(flagged.compaction_id.to_string()),
                CompactionBody::Aggregated(all) => Which::Oldest(all.count),
            };
            [Which::None, which, Which::None]
        }
        Body::Session(SessionBody::Forked(_)) => [Which::None, Which::All, Which::Open],
        Body::Approval(_)
        | Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_))
        | Body::Session(SessionBody::StateChanged(_)) => [Which::None, Which::None, Which::Open],
        // One that a pause found at work may end with its daemon.
        Body::Subagent(SubagentBody::Exited(_)) => [Which::Newest, Which::None, Which::None],
        Body::Run(_)
        | Body::Session(_)
        | Body::Message(_)
        | Body::Tool(_)
        | Body::Terminal(_)
        | Body::Subagent(_) => return None,
    })
}

pub(super) fn put(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let Some([checkpoints, compactions, approvals]) = changed_by(&record.body) else { return Ok(()) };
    let before = Control::stored(
        stored(db, key, &checkpoints)?,
        stored(db, key, &compactions)?,
        stored(db, key, &approvals)?,
    );
    let mut after = before.clone();
    after.apply(record);
    save(db, key, record.seq, &before.checkpoints, &after.checkpoints)?;
    save(db, key, record.seq, &before.compactions, &after.compactions)?;
    save(db, key, record.seq, &before.approvals, &after.approvals)?;
    forget_aggregated(db, key, &before.compactions, &after.compactions)?;
    for Aggregate { count, before } in &after.aggregates {
        db.prepare_cached(
            "INSERT INTO compaction_aggregates (session, seq, count, before) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, int(record.seq), count, millis(*before)])?;
    }
    Ok(())
}

fn stored<T: Item>(db: &Connection, key: i64, which: &Which) -> rusqlite::Result<Vec<T>> {
    let (condition, value) = match which {
        Which::None => return Ok(Vec::new()),
        Which::All => ("?2 IS NULL ORDER BY seq", Value::Null),
        Which::Id(id) => ("id = ?2", Value::from(id.clone())),
        Which::Oldest(count) => ("1 ORDER BY seq LIMIT ?2", Value::from(i64::from(*count))),
        Which::Newest => ("?2 IS NULL ORDER BY seq DESC LIMIT 1", Value::Null),
        Which::Open => ("outcome IS NULL AND ?2 IS NULL ORDER BY seq", Value::Null),
    };
    let sql = format!("SELECT item FROM {} WHERE session = ?1 AND {condition}", T::TABLE);
    db.prepare_cached(&sql)?.query_map(params![key, value], |row| json(row, 0))?.collect()
}

/// Writes what is new or other. An item keeps the seq of the record that made it.
fn save<T: Item>(db: &Connection, key: i64, seq: u64, before: &[T], after: &[T]) -> rusqlite::Result<()> {
    let known: HashMap<String, &T> = before.iter().map(|item| (item.id(), item)).collect();
    for item in after {
        let id = item.id();
        if known.get(&id) != Some(&item) {
            let sql = format!(
                "INSERT INTO {} (session, id, seq, item) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET item = excluded.item",
                T::TABLE
            );
            db.prepare_cached(&sql)?.execute(params![key, id, int(seq), to_json(item)])?;
        }
    }
    Ok(())
}

/// The oldest compactions become one row; the log still has them.
fn forget_aggregated(
    db: &Connection,
    key: i64,
    before: &[Compacted],
    after: &[Compacted],
) -> rusqlite::Result<()> {
    let gone = before.len().saturating_sub(after.len());
    for compaction in before.iter().take(gone) {
        let sql = "DELETE FROM compactions WHERE session = ?1 AND id = ?2";
        db.prepare_cached(sql)?.execute(params![key, compaction.id().to_string()])?;
    }
    Ok(())
}
