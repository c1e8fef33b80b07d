//! What the operator did with a session: its checkpoints, compactions and approvals, oldest first.

use ctx_session::SessionId;
use ctx_session::control::{Aggregate, Approval, Checkpoint, Compacted};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::de::DeserializeOwned;

use super::pages::parsed;
use super::{Queries, Viewer, Wanted};
use crate::db::DbError;
use crate::db::column::{json, of_word, time_of};

impl Queries<'_> {
    /// The checkpoints of a session with the edits made at them.
    pub fn checkpoints(&self, session: SessionId) -> Result<Vec<Checkpoint>, DbError> {
        self.items(session, "checkpoints")
    }

    pub fn compactions(&self, session: SessionId) -> Result<Vec<Compacted>, DbError> {
        self.items(session, "compactions")
    }

    pub fn approvals(&self, session: SessionId) -> Result<Vec<Approval>, DbError> {
        self.items(session, "approvals")
    }

    fn items<T: DeserializeOwned>(&self, session: SessionId, table: &str) -> Result<Vec<T>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = format!("SELECT item FROM {table} WHERE session = ? ORDER BY seq");
        self.rows(&sql, vec![key.into()], |row| json(row, 0))
    }

    /// What stands for compactions that are not listed any more.
    pub fn compaction_aggregates(&self, session: SessionId) -> Result<Vec<Aggregate>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = "SELECT count, before FROM compaction_aggregates WHERE session = ? ORDER BY seq";
        self.rows(sql, vec![key.into()], |row| {
            Ok(Aggregate { count: row.get(0)?, before: time_of(row.get(1)?) })
        })
    }

    /// Every approval that waits for an answer in a session that the viewer may see, the oldest first.
    pub fn open_approvals(&self, viewer: &Viewer) -> Result<Vec<(SessionId, Approval)>, DbError> {
        let mut wanted = Wanted::of(viewer);
        wanted.and("a.outcome IS NULL", []);
        let sql = format!(
            "SELECT s.id, a.item FROM approvals AS a JOIN sessions AS s ON s.key = a.session
             WHERE {} ORDER BY a.created_at, s.id, a.seq",
            wanted.condition()
        );
        self.rows(&sql, wanted.values, |row| Ok((id(row, 0)?, json(row, 1)?)))
    }
}

pub(super) fn id<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    parsed(&row.get::<_, String>(at)?, at)
}

pub(super) fn maybe_id<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get::<_, Option<String>>(at)?.map(|text| parsed(&text, at)).transpose()
}

/// A column that holds one of a closed set of words.
pub(super) fn closed<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let word: String = row.get(at)?;
    of_word(&word).ok_or_else(|| strange(at, &word))
}

fn strange(at: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, Type::Text, format!("`{word}` is no word of ours").into())
}
