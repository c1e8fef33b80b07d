//! Full-text search over messages and the beginnings of tool outputs, ranked, with snippets.
//!
//! [`rank`] ranks at most so many matches together, so that a word that is everywhere takes no longer than another; `words` says
//! what was typed, `place` where a page begins.

mod place;
mod rank;
mod words;

use ctx_session::conversation::Role;
use ctx_session::{Name, RunId, SessionId, Timestamp, Ulid};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, params};

use super::pages::role_of;
use super::{Page, Queries, Viewer, Wanted, one_more, snippet};
use crate::db::DbError;
use crate::db::column::{Standing, count_of, millis, time_of};
use crate::db::spaced;

use place::Place;
pub use rank::{RANKED_TOGETHER, SessionHits};
pub(super) use words::match_expression;
use words::plain_words;

/// Texts above this are cut by us.
const LONG_BYTES: usize = 8 * 1024;
/// In this order: the full text knows its rows from the newest to the oldest, and stops where it was read far enough.
const TABLES: &str = "message_text AS f CROSS JOIN messages AS m ON m.key = f.rowid
    CROSS JOIN sessions AS s ON s.key = m.session";
const HIT_BEGINS: char = '\u{1}';
const HIT_ENDS: char = '\u{2}';

/// In what order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchSort {
    /// The best match comes first, among [`RANKED_TOGETHER`] that came into the index last; then those before them.
    #[default]
    Rank,
    Newest,
}

/// What to look for, and where. A word finds itself, `"several words"` find themselves in a row, `begin*`
/// finds what begins so, and `-word` and `-"several words"` leave out what has them.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchQuery {
    pub viewer: Viewer,
    pub text: String,
    pub agent: Option<Name>,
    pub project: Option<Name>,
    pub role: Option<Role>,
    pub session: Option<SessionId>,
    /// In sessions that began in this directory or below it, or work there.
    pub dir: Option<String>,
    /// In sessions whose source says that they were on this branch.
    pub branch: Option<String>,
    /// What this tool gave.
    pub tool: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Also what was taken back. What was compacted was said all the same, and is always found.
    pub superseded: bool,
    pub sort: SearchSort,
    pub limit: usize,
    pub after: Option<String>,
}

impl SearchQuery {
    pub fn new(viewer: Viewer, text: &str, limit: usize) -> SearchQuery {
        SearchQuery {
            viewer,
            text: text.to_owned(),
            agent: None,
            project: None,
            role: None,
            session: None,
            dir: None,
            branch: None,
            tool: None,
            since: None,
            until: None,
            superseded: false,
            sort: SearchSort::Rank,
            limit,
            after: None,
        }
    }

    /// The expression of the full text.
    fn expression(&self) -> Result<String, DbError> {
        match_expression(&self.text).ok_or_else(|| DbError::BadQuery { text: self.text.clone() })
    }
}

/// A message that matches.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub session: SessionId,
    pub session_name: Name,
    pub session_title: Option<String>,
    pub agent: Option<Name>,
    pub project: Name,
    /// Where the session works.
    pub cwd: String,
    pub seq: u64,
    pub message: Ulid,
    pub run: RunId,
    pub role: Role,
    /// The tool, of what one gave.
    pub tool: Option<String>,
    pub time: Timestamp,
    pub standing: Standing,
    /// Higher is better.
    pub score: f64,
    pub snippet: Vec<Piece>,
}

/// A piece of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub is_hit: bool,
}

impl Queries<'_> {
    /// A page of what matches.
    pub fn search(&self, query: &SearchQuery) -> Result<Page<Hit>, DbError> {
        // All of it is of one moment: a hit may be purged before its snippet is cut.
        let moment = self.db.unchecked_transaction().map_err(|error| self.wrong(error))?;
        let found = self.search_now(query);
        drop(moment);
        found
    }

    /// Whether something matches that was taken back.
    pub fn finds_taken_back(&self, query: &SearchQuery) -> Result<bool, DbError> {
        // Few messages are: they are looked at one by one, however common the word is.
        let wanted = wanted(&SearchQuery { superseded: true, ..query.clone() }, &query.expression()?);
        let sql = format!(
            "SELECT 1 FROM messages AS m INDEXED BY messages_taken_back CROSS JOIN sessions AS s ON s.key = m.session
             CROSS JOIN message_text AS f ON f.rowid = m.key WHERE m.superseded = 1 AND {} LIMIT 1",
            wanted.condition()
        );
        Ok(!self.rows(&sql, wanted.values, |row| row.get::<_, i64>(0))?.is_empty())
    }

    fn search_now(&self, query: &SearchQuery) -> Result<Page<Hit>, DbError> {
        let expression = query.expression()?;
        let place = match &query.after {
            Some(cursor) => Place::parse(query.sort, cursor)?,
            None => self.beginning(query.sort)?,
        };
        match place {
            Place::Best { upto, skipped } => self.best(query, &expression, upto, skipped),
            Place::Newest | Place::Before { .. } => self.newest(query, &expression, &place),
        }
    }

    fn newest(&self, query: &SearchQuery, expression: &str, place: &Place) -> Result<Page<Hit>, DbError> {
        let mut wanted = wanted(query, expression);
        place.wants(&mut wanted);
        let sql = format!(
            "SELECT f.rowid FROM {TABLES} WHERE {} ORDER BY m.created_at DESC, s.id DESC, m.seq DESC LIMIT ?",
            wanted.condition()
        );
        wanted.values.push(one_more(query.limit).into());
        let mut keys = self.rows(&sql, wanted.values, |row| row.get::<_, i64>(0))?;
        let more = keys.len() > query.limit;
        keys.truncate(query.limit);
        let hits = keys.into_iter().map(|key| self.hit(query, expression, key));
        let items = hits.collect::<Result<Vec<_>, _>>()?;
        let next = items.last().filter(|_| more).map(|last| Place::before(last).to_string());
        Ok(Page { items, next })
    }

    fn beginning(&self, sort: SearchSort) -> Result<Place, DbError> {
        match sort {
            SearchSort::Newest => Ok(Place::Newest),
            SearchSort::Rank => {
                let newest = "SELECT ifnull(max(key), 0) FROM messages";
                let newest = self.rows(newest, Vec::new(), |row| row.get(0))?.into_iter().next();
                Ok(Place::Best { upto: newest.unwrap_or(0), skipped: 0 })
            }
        }
    }

    /// A message that is shown, with its snippet: that is the dear part, and what is not shown does without.
    fn hit(&self, query: &SearchQuery, expression: &str, key: i64) -> Result<Hit, DbError> {
        let sql = "SELECT s.id, s.name, s.title, s.agent, s.project, s.cwd, m.seq, m.id, m.run_id, m.role, m.created_at,
              m.superseded, t.tool_name, m.content
            FROM messages AS m JOIN sessions AS s ON s.key = m.session
            LEFT JOIN tool_calls AS t ON t.session = m.session AND t.id = m.id WHERE m.key = ?1";
        let read = |row: &Row<'_>| Ok((hit(row)?, row.get::<_, String>(13)?));
        let found = self.db.prepare_cached(sql).and_then(|mut find| find.query_row([key], read));
        let (mut hit, content) = found.map_err(|error| self.wrong(error))?;
        hit.score = rank::score(&plain_words(&query.text), &content);
        hit.snippet = self.snippet(query, expression, key, &content)?;
        Ok(hit)
    }

    /// SQLite's own snippets take a time that grows with the square of the hits, so long texts are cut by ours; and so are
    /// those whose tokens stand elsewhere in the full text than in the message, and those that have our marks in them.
    fn snippet(
        &self,
        query: &SearchQuery,
        expression: &str,
        key: i64,
        content: &str,
    ) -> Result<Vec<Piece>, DbError> {
        // Marks that are in the text itself would be taken for those of hits.
        let has_marks = content.contains([HIT_BEGINS, HIT_ENDS]);
        if content.len() > LONG_BYTES || has_marks || spaced::differs(content) {
            return Ok(snippet::cut(content, &plain_words(&query.text)));
        }
        let sql = "SELECT snippet(message_text, 0, char(1), char(2), '…', 24) FROM message_text
                   WHERE message_text MATCH ?1 AND rowid = ?2";
        let cut = |row: &Row<'_>| row.get::<_, String>(0);
        let text = self
            .db
            .prepare_cached(sql)
            .and_then(|mut find| find.query_row(params![expression, key], cut).optional());
        let text = text.map_err(|error| self.wrong(error))?;
        Ok(text.map_or_else(|| snippet::cut(content, &plain_words(&query.text)), |text| pieces(&text)))
    }
}

fn wanted(query: &SearchQuery, expression: &str) -> Wanted {
    let mut wanted = Wanted::of(&query.viewer);
    wanted.conditions.insert(0, "message_text MATCH ?".to_owned());
    wanted.values.insert(0, expression.to_owned().into());
    if !query.superseded {
        wanted.and("m.superseded <> ?", [Standing::TakenBack.number().into()]);
    }
    wanted.and_is("s.agent", query.agent.as_ref().map(Name::as_str));
    wanted.and_is("s.project", query.project.as_ref().map(Name::as_str));
    wanted.and_is("s.id", query.session.map(|id| id.to_string()));
    wanted.and_is("m.role", query.role.map(Role::as_str));
    if let Some(dir) = &query.dir {
        let below = format!("{}/", dir.trim_end_matches('/'));
        let is_in = |column: &str| format!("{column} = ? OR substr({column}, 1, length(?)) = ?");
        let either = format!("({} OR {})", is_in("json_extract(s.meta, '$.dir')"), is_in("s.cwd"));
        let values = [dir.clone(), below.clone(), below].map(Value::from);
        wanted.and(&either, [values.clone(), values].into_iter().flatten());
    }
    wanted.and_is("json_extract(s.meta, '$.origin.branch')", query.branch.as_deref());
    if let Some(tool) = &query.tool {
        let of_tool = "EXISTS (SELECT 1 FROM tool_calls AS t WHERE t.session = m.session AND t.id = m.id AND t.tool_name = ?)";
        wanted.and(of_tool, [Value::from(tool.clone())]);
    }
    if let Some(since) = query.since {
        wanted.and("m.created_at >= ?", [millis(since).into()]);
    }
    if let Some(until) = query.until {
        wanted.and("m.created_at < ?", [millis(until).into()]);
    }
    wanted
}

fn hit(row: &Row<'_>) -> rusqlite::Result<Hit> {
    let text = |at: usize| row.get::<_, String>(at);
    Ok(Hit {
        session: super::pages::parsed(&text(0)?, 0)?,
        session_name: super::pages::parsed(&text(1)?, 1)?,
        session_title: row.get(2)?,
        agent: row.get::<_, Option<String>>(3)?.and_then(|name| name.parse().ok()),
        project: super::pages::parsed(&text(4)?, 4)?,
        cwd: row.get(5)?,
        seq: count_of(row.get(6)?),
        message: super::pages::parsed(&text(7)?, 7)?,
        run: super::pages::parsed(&text(8)?, 8)?,
        role: role_of(&text(9)?),
        time: time_of(row.get(10)?),
        standing: Standing::of_number(row.get(11)?),
        tool: row.get(12)?,
        score: 0.0,
        snippet: Vec::new(),
    })
}

fn pieces(snippet: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut is_hit = false;
    for part in snippet.split_inclusive([HIT_BEGINS, HIT_ENDS]) {
        let text = part.trim_end_matches([HIT_BEGINS, HIT_ENDS]);
        if !text.is_empty() {
            pieces.push(Piece { text: text.to_owned(), is_hit });
        }
        is_hit = part.ends_with(HIT_BEGINS);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_cut_where_its_hits_are() {
        let hit = |text: &str| Piece { text: text.to_owned(), is_hit: true };
        let plain = |text: &str| Piece { text: text.to_owned(), is_hit: false };
        assert_eq!(pieces("a \u{1}b\u{2} c\u{1}d\u{2}"), [plain("a "), hit("b"), plain(" c"), hit("d")]);
        assert_eq!(pieces("plain"), [plain("plain")]);
    }

    const SESSION: &str =
        "INSERT INTO sessions (id, log, meta, owner, scope, project, name, state, cwd, created_at,
        updated_at, last_run_over, runs, messages, tokens_in, tokens_out, next_seq, text_seq, listed)
        VALUES (?1, 'l', '{}', 0, 'private', 'p', 'n', 'idle', '/', 0, 0, 1, 0, 0, 0, 0, 0, 0, 1)";
    const MESSAGE: &str = "INSERT INTO messages (key, session, seq, id, run_id, role, content, created_at)
        VALUES (?1, 1, ?1, ?2, ?2, 'user', 'a quokka', 0)";
    const PURGE: &str =
        "BEGIN; INSERT INTO message_text (message_text, rowid, content) SELECT 'delete', key, content
        FROM messages; DELETE FROM messages; COMMIT";

    #[test]
    fn what_is_purged_while_it_is_looked_for_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.db");
        let writer = crate::db::schema::make(&path).unwrap();
        let reader = super::super::IndexReader::open(&path).unwrap();
        writer.execute(SESSION, [format!("{:026}", 1)]).unwrap();
        let searches = std::thread::spawn(move || {
            let query = SearchQuery::new(Viewer::All, "quokka", 100);
            let search = |_| reader.queries().search(&query).map(|page| page.items.len());
            (0..200).map(search).collect::<Vec<_>>()
        });
        while !searches.is_finished() {
            writer.execute_batch("BEGIN").unwrap();
            for key in 1..=40 {
                writer.execute(MESSAGE, params![key, format!("{key:026}")]).unwrap();
            }
            let full_text = "INSERT INTO message_text (rowid, content) SELECT key, content FROM messages";
            writer.execute_batch(&format!("{full_text}; COMMIT")).unwrap();
            writer.execute_batch(PURGE).unwrap();
        }
        for found in searches.join().unwrap() {
            assert!(matches!(found, Ok(0 | 40)), "{found:?}");
        }
    }
}
