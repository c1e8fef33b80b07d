//! What can be asked of the index. Every answer is plain data; every list comes in pages.

pub mod control;
mod issues;
pub mod list;
pub mod pages;
pub mod search;
mod snippet;
pub mod standing;
pub mod stats;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ctx_journal::LogPath;
use ctx_session::record::Failure;
use ctx_session::{Name, SessionId, Ulid};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{DbError, schema};
use list::SessionItem;

/// Who asks: sessions of others do not exist for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// The daemon's owner.
    All,
    User {
        uid: u32,
        /// Spaces that let them in.
        spaces: Vec<Name>,
    },
}

/// A part of a list, and where the next one begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// The database, for the time of a question.
pub struct Queries<'a> {
    pub(super) db: &'a Connection,
    pub(super) path: &'a Path,
}

/// The database, open to read without a daemon.
pub struct IndexReader {
    db: Connection,
    path: PathBuf,
}

impl IndexReader {
    pub fn open(path: &Path) -> Result<IndexReader, DbError> {
        Ok(IndexReader { db: schema::open_to_read(path)?, path: path.to_owned() })
    }

    pub fn queries(&self) -> Queries<'_> {
        Queries { db: &self.db, path: &self.path }
    }
}

/// Flawed sessions that are told of at once.
const FLAWED_MAX: usize = 1_000;

/// A session that a list must show as it is not in its own log.
#[derive(Debug, Clone, PartialEq)]
pub struct Flawed {
    pub item: SessionItem,
    /// Its log was not there when it was last looked for.
    pub is_gone: bool,
    /// Why it has failed, where its log does not say it.
    pub broken: Option<Failure>,
}

impl Queries<'_> {
    fn wrong(&self, error: rusqlite::Error) -> DbError {
        DbError::sqlite(self.path, error)
    }

    fn rows<T>(
        &self,
        sql: &str,
        values: Vec<Value>,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, DbError> {
        let run = || -> rusqlite::Result<Vec<T>> {
            self.db.prepare_cached(sql)?.query_map(rusqlite::params_from_iter(values), read)?.collect()
        };
        run().map_err(|error| self.wrong(error))
    }

    /// Every session, for the start of a daemon.
    pub fn sessions(&self) -> Result<Vec<SessionItem>, DbError> {
        let sql =
            format!("SELECT {} FROM sessions WHERE missing = 0 AND listed = 1 ORDER BY id", list::columns());
        self.rows(&sql, Vec::new(), list::item)
    }

    pub fn session(&self, id: SessionId) -> Result<Option<SessionItem>, DbError> {
        let sql =
            format!("SELECT {} FROM sessions WHERE missing = 0 AND listed = 1 AND id = ?1", list::columns());
        Ok(self.rows(&sql, vec![id.to_string().into()], list::item)?.pop())
    }

    /// Sessions whose id begins so, at most `max`.
    pub fn sessions_by_beginning(
        &self,
        viewer: &Viewer,
        beginning: &str,
        max: usize,
    ) -> Result<Vec<SessionItem>, DbError> {
        let mut wanted = Wanted::of(viewer);
        let beginning = beginning.to_ascii_uppercase();
        wanted.and("id >= ?", [beginning.clone().into()]);
        wanted.and("id < ?", [format!("{beginning}~").into()]);
        let sql = format!(
            "SELECT {} FROM sessions WHERE {} ORDER BY id LIMIT {max}",
            list::columns(),
            wanted.condition()
        );
        self.rows(&sql, wanted.values, list::item)
    }

    /// The imports of a user's sessions that were not taken back, oldest first, and up to which seq each was read.
    pub fn imports(&self, owner: u32) -> Result<HashMap<SessionId, (u64, Vec<Ulid>)>, DbError> {
        let sql = "SELECT id, next_seq, imports FROM sessions
             WHERE imports IS NOT NULL AND missing = 0 AND reading IS NULL AND owner = ?1";
        let read = |row: &Row<'_>| {
            let known = (super::column::count_of(row.get(1)?), super::store::imports_of(row, 2)?);
            Ok((row.get::<_, String>(0)?, known))
        };
        let rows = self.rows(sql, vec![i64::from(owner).into()], read)?;
        Ok(rows.into_iter().filter_map(|(id, known)| Some((id.parse().ok()?, known))).collect())
    }

    /// What was found wrong in logs, one line a message.
    pub fn damage(&self) -> Result<Vec<String>, DbError> {
        self.rows("SELECT message FROM damage ORDER BY log, offset", Vec::new(), |row| row.get(0))
    }

    /// Sessions whose directory was not there at the last start.
    pub fn missing(&self) -> Result<Vec<(SessionId, LogPath)>, DbError> {
        let sql = "SELECT id, log FROM sessions WHERE missing = 1 ORDER BY id";
        let rows =
            self.rows(sql, Vec::new(), |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let read = |(id, log): (String, String)| Some((id.parse().ok()?, LogPath::new(log).ok()?));
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// The same with what was known of them.
    pub fn gone(&self) -> Result<Vec<SessionItem>, DbError> {
        let sql = format!("SELECT {} FROM sessions WHERE missing = 1 ORDER BY id", list::columns());
        self.rows(&sql, Vec::new(), list::item)
    }

    /// The sessions that have failed, whether their log says so or not, and those whose log has lost something.
    pub fn flawed(&self, viewer: &Viewer) -> Result<Vec<Flawed>, DbError> {
        let mut wanted = Wanted::any(viewer);
        wanted.and("(state = 'failed' OR missing = 1 OR broken IS NOT NULL OR damage IS NOT NULL)", []);
        let sql = format!(
            "SELECT {}, missing, broken FROM sessions WHERE {} ORDER BY id DESC LIMIT {FLAWED_MAX}",
            list::columns(),
            wanted.condition()
        );
        self.rows(&sql, wanted.values, |row| {
            let at = list::columns_len();
            let broken: Option<String> = row.get(at + 1)?;
            Ok(Flawed {
                item: list::item(row)?,
                is_gone: row.get(at)?,
                broken: broken.and_then(|text| serde_json::from_str(&text).ok()),
            })
        })
    }

    /// Where a session's log was when it was last read; nothing of one that the index does not know.
    pub fn log_of(&self, id: SessionId) -> Result<Option<LogPath>, DbError> {
        let values = vec![Value::Text(id.to_string())];
        let found =
            self.rows("SELECT log FROM sessions WHERE id = ?1", values, |row| row.get::<_, String>(0))?;
        Ok(found.into_iter().find_map(|log| LogPath::new(log).ok()))
    }

    /// The place of a session in this file.
    fn key(&self, id: SessionId) -> Result<Option<i64>, DbError> {
        let key = self
            .db
            .prepare_cached("SELECT key FROM sessions WHERE id = ?1")
            .and_then(|mut find| find.query_row([id.to_string()], |row| row.get(0)).optional());
        key.map_err(|error| self.wrong(error))
    }
}

/// The conditions of a question, with their values.
struct Wanted {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Wanted {
    /// Sessions that are there, that have been read to their end once, and that the viewer may see.
    fn of(viewer: &Viewer) -> Wanted {
        let mut wanted = Wanted::there(viewer);
        wanted.and("listed = 1", []);
        wanted
    }

    /// Also those of which the index has only met the beginning.
    fn there(viewer: &Viewer) -> Wanted {
        let mut wanted = Wanted::any(viewer);
        wanted.and("missing = 0", []);
        wanted
    }

    /// Also those whose log is gone.
    fn any(viewer: &Viewer) -> Wanted {
        let mut wanted = Wanted { conditions: vec!["1".to_owned()], values: Vec::new() };
        match viewer {
            Viewer::All => {}
            Viewer::User { uid, spaces } if spaces.is_empty() => {
                wanted.and("owner = ?", [i64::from(*uid).into()]);
            }
            Viewer::User { uid, spaces } => {
                let marks = vec!["?"; spaces.len()].join(", ");
                let values = spaces.iter().map(|space| Value::from(space.as_str().to_owned()));
                let values: Vec<Value> = std::iter::once(i64::from(*uid).into()).chain(values).collect();
                wanted.and(&format!("(owner = ? OR (scope = 'shared' AND space IN ({marks})))"), values);
            }
        }
        wanted
    }

    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.conditions.push(condition.to_owned());
        self.values.extend(values);
    }

    fn and_is(&mut self, column: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.and(&format!("{column} = ?"), [Value::from(value.into())]);
        }
    }

    fn condition(&self) -> String {
        self.conditions.join(" AND ")
    }
}

/// How many rows tell whether there is another page.
fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Takes a page off a list that was asked for with one item more than fits.
fn page<T>(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(place);
    Page { items, next }
}

/// A text as the pattern of GLOB that finds it anywhere, in upper and in lower case. LIKE knows the case of ASCII alone.
fn anywhere(text: &str) -> String {
    let mut pattern = "*".to_owned();
    for c in text.chars() {
        let other = |mut cases: Vec<char>| cases.pop().filter(|case| cases.is_empty() && *case != c);
        let lower = other(c.to_lowercase().collect());
        let upper = other(c.to_uppercase().collect());
        match (lower, upper) {
            (None, None) if !"*?[".contains(c) => pattern.push(c),
            (lower, upper) => {
                pattern.push('[');
                pattern.extend([Some(c), lower, upper].into_iter().flatten());
                pattern.push(']');
            }
        }
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_any_case_and_means_itself() {
        let db = Connection::open_in_memory().unwrap();
        for (text, title, found) in [
            ("äö", "Über ÄÖ", true),
            ("ÜBER", "Über ÄÖ", true),
            ("flaky", "A Flaky build", true),
            ("straße", "Große Straße", true),
            ("a*c", "abc", false),
            ("a*c", "xA*Cx", true),
            ("[ab]", "a", false),
            ("[ab]", "is [AB] it", true),
            ("^a]", "^A]", true),
            ("100%_", "of 100%_ it", true),
            ("100%_", "of 1000 it", false),
        ] {
            let sql = "SELECT ?1 GLOB ?2";
            let is: bool = db.query_row(sql, [title, &anywhere(text)], |row| row.get(0)).unwrap();
            assert_eq!(is, found, "{text} in {title}: {}", anywhere(text));
        }
    }
}
