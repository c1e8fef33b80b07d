//! How the index itself stands: what it knows of which log, and whether it is sound.

use std::path::Path;

use ctx_journal::LogPath;
use ctx_session::record::SessionMeta;

use super::{Queries, Viewer, Wanted};
use crate::db::column::count_of;
use crate::db::{DbError, schema};

/// What the index knows of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLog {
    pub log: LogPath,
    /// The file that was read, and the end of the last record read in it; 0 when not known.
    pub inode: u64,
    pub end_bytes: u64,
    /// The seq up to which it has been read.
    pub next_seq: u64,
}

/// Has a log read anew from its beginning, after a repair that the index does not know of: by the daemon that is up
/// within seconds, or by the next one. Until then lists and search show what they did.
pub fn mark_unread(path: &Path, log: &LogPath) -> Result<(), DbError> {
    let Some(db) = schema::open_to_change(path)? else { return Ok(()) };
    let sql = "UPDATE sessions SET next_seq = 1, text_seq = 0, inode = 0, end_bytes = 0, end_seq = -1 WHERE log = ?1";
    db.execute(sql, [log.as_str()]).map(drop).map_err(|error| DbError::sqlite(path, error))
}

impl Queries<'_> {
    /// Every log that the index knows, also those that were gone at the last start.
    pub fn known_logs(&self) -> Result<Vec<KnownLog>, DbError> {
        let sql = "SELECT log, inode, end_bytes, next_seq FROM sessions ORDER BY log";
        let rows = self.rows(sql, Vec::new(), |row| {
            let log = LogPath::new(row.get::<_, String>(0)?).ok();
            let (inode, end_bytes) = (count_of(row.get(1)?), count_of(row.get(2)?));
            let next_seq = count_of(row.get(3)?);
            Ok(log.map(|log| KnownLog { log, inode, end_bytes, next_seq }))
        })?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Sessions of which not all text has been read: a search does not see all of them.
    pub fn unread(&self) -> Result<u64, DbError> {
        let sql = "SELECT count(*) FROM sessions WHERE missing = 0 AND text_seq < next_seq";
        Ok(self.rows(sql, Vec::new(), |row| Ok(count_of(row.get(0)?)))?.into_iter().sum())
    }

    /// The same of the sessions that someone may see.
    pub fn unread_of(&self, viewer: &Viewer) -> Result<u64, DbError> {
        let mut wanted = Wanted::there(viewer);
        wanted.and("text_seq < next_seq", []);
        let sql = format!("SELECT count(*) FROM sessions WHERE {}", wanted.condition());
        Ok(self.rows(&sql, wanted.values, |row| Ok(count_of(row.get(0)?)))?.into_iter().sum())
    }

    /// What the log at this place said that its session is, when it was last read.
    pub fn meta_at(&self, log: &LogPath) -> Result<Option<SessionMeta>, DbError> {
        let sql = "SELECT meta FROM sessions WHERE log = ?1";
        let found = self.rows(sql, vec![log.as_str().to_owned().into()], |row| row.get::<_, String>(0))?;
        Ok(found.first().and_then(|meta| serde_json::from_str(meta).ok()))
    }

    /// What is wrong with the file, as SQLite finds it by reading all of it; nothing when it is sound.
    pub fn check(&self) -> Result<Vec<String>, DbError> {
        let said = self.rows("PRAGMA quick_check(20)", Vec::new(), |row| row.get::<_, String>(0))?;
        Ok(said.into_iter().filter(|line| line != "ok").collect())
    }
}
