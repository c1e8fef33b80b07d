//! Checkpoints, compactions and approvals in the tables: the items of [`ctx_session::control`], stored as they are.
//!
//! The rules of a session decide what becomes of an item. Here the items that a record may change are read, given to
//! those rules with the record, and written back where they changed.

use std::collections::HashMap;

use ctx_session::control::{Aggregate, Approval, Checkpoint, Compacted, Control};
use ctx_session::record::{RunBody, SessionBody};
use ctx_session::{Body, Record};
use rusqlite::{Connection, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::column::{int, json, millis, to_json};

/// The tables of this module, every row of which belongs to a session.
pub(super) const TABLES: [&str; 4] = ["checkpoints", "compactions", "compaction_aggregates", "approvals"];

/// An item that is a row of a table.
trait Item: Serialize + DeserializeOwned + PartialEq {
    const TABLE: &'static str;
    /// Which rows a record can still change.
    const CHANGING: &'static str;

    fn id(&self) -> String;
}

impl Item for Checkpoint {
    const TABLE: &'static str = "checkpoints";
    const CHANGING: &'static str = "1";

    fn id(&self) -> String {
        self.id().to_string()
    }
}

impl Item for Compacted {
    const TABLE: &'static str = "compactions";
    const CHANGING: &'static str = "1";

    fn id(&self) -> String {
        self.id().to_string()
    }
}

impl Item for Approval {
    const TABLE: &'static str = "approvals";
    const CHANGING: &'static str = "outcome IS NULL";

    fn id(&self) -> String {
        self.asked.approval_id.to_string()
    }
}

pub(super) fn put(db: &Connection, key: i64, record: &Record) -> rusqlite::Result<()> {
    let all = match &record.body {
        Body::Checkpoint(_) | Body::Compaction(_) | Body::Session(SessionBody::Forked(_)) => true,
        // These concern approvals that wait, and nothing else.
        Body::Approval(_)
        | Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_))
        | Body::Session(SessionBody::StateChanged(_)) => false,
        Body::Run(_) | Body::Session(_) | Body::Message(_) | Body::Tool(_) => return Ok(()),
    };
    let checkpoints = if all { changing(db, key)? } else { Vec::new() };
    let compactions = if all { changing(db, key)? } else { Vec::new() };
    let before = Control::stored(checkpoints, compactions, changing(db, key)?);
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

fn changing<T: Item>(db: &Connection, key: i64) -> rusqlite::Result<Vec<T>> {
    let sql = format!("SELECT item FROM {} WHERE session = ?1 AND {} ORDER BY seq", T::TABLE, T::CHANGING);
    db.prepare_cached(&sql)?.query_map([key], |row| json(row, 0))?.collect()
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
