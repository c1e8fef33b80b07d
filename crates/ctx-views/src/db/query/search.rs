//! Full-text search over messages and the beginnings of tool outputs, ranked, with snippets.

use ctx_session::conversation::Role;
use ctx_session::{Name, RunId, SessionId, Timestamp, Ulid};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, params};

use super::pages::role_of;
use super::{Page, Queries, Viewer, Wanted, one_more, snippet};
use crate::db::DbError;
use crate::db::column::{Standing, count_of, millis, time_of};
use crate::db::spaced;

/// Texts above this are cut by us.
const LONG_BYTES: usize = 8 * 1024;
const TABLES: &str =
    "message_text AS f JOIN messages AS m ON m.key = f.rowid JOIN sessions AS s ON s.key = m.session";
const HIT_BEGINS: char = '\u{1}';
const HIT_ENDS: char = '\u{2}';

/// In what order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchSort {
    /// The best match comes first.
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
            since: None,
            until: None,
            superseded: false,
            sort: SearchSort::Rank,
            limit,
            after: None,
        }
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
    pub seq: u64,
    pub message: Ulid,
    pub run: RunId,
    pub role: Role,
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
        let expression =
            match_expression(&query.text).ok_or_else(|| DbError::BadQuery { text: query.text.clone() })?;
        let mut wanted = wanted(&SearchQuery { superseded: true, ..query.clone() }, &expression);
        wanted.and("m.superseded = ?", [Standing::TakenBack.number().into()]);
        let sql = format!("SELECT 1 FROM {TABLES} WHERE {} LIMIT 1", wanted.condition());
        Ok(!self.rows(&sql, wanted.values, |row| row.get::<_, i64>(0))?.is_empty())
    }

    fn search_now(&self, query: &SearchQuery) -> Result<Page<Hit>, DbError> {
        let expression =
            match_expression(&query.text).ok_or_else(|| DbError::BadQuery { text: query.text.clone() })?;
        let place = match &query.after {
            Some(cursor) => Place::parse(query.sort, cursor)?,
            None => self.beginning(query.sort)?,
        };
        let mut wanted = wanted(query, &expression);
        place.wants(&mut wanted);
        let order = match query.sort {
            SearchSort::Rank => "score, m.created_at DESC, s.id, m.seq",
            SearchSort::Newest => "m.created_at DESC, s.id DESC, m.seq DESC",
        };
        let sql = format!(
            "SELECT f.rowid, bm25(message_text) AS score, s.id, s.name, s.title, s.agent, s.project, m.seq, m.id,
               m.run_id, m.role, m.created_at, m.superseded
             FROM {TABLES} WHERE {} ORDER BY {order} LIMIT ? OFFSET ?",
            wanted.condition()
        );
        wanted.values.extend([one_more(query.limit), place.skipped()].map(Value::from));
        let mut found = self.rows(&sql, wanted.values, hit)?;
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let mut items = Vec::with_capacity(found.len());
        for (key, mut hit) in found {
            hit.snippet = self.snippet(query, &expression, key)?;
            items.push(hit);
        }
        let next = items.last().filter(|_| more).map(|last| place.behind(last, items.len()).to_string());
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

    /// Only what is shown is cut into pieces: that is the dear part. SQLite's own snippets take a time that grows
    /// with the square of the hits, so long texts are cut by ours; and so are those whose tokens stand elsewhere in the
    /// full text than in the message, and those that have our marks in them.
    fn snippet(&self, query: &SearchQuery, expression: &str, key: i64) -> Result<Vec<Piece>, DbError> {
        let content = "SELECT content FROM messages WHERE key = ?1";
        let content = self
            .db
            .prepare_cached(content)
            .and_then(|mut find| find.query_row(params![key], |row| row.get::<_, String>(0)).optional());
        let content = content.map_err(|error| self.wrong(error))?.unwrap_or_default();
        // Marks that are in the text itself would be taken for those of hits.
        let has_marks = content.contains([HIT_BEGINS, HIT_ENDS]);
        if content.len() > LONG_BYTES || has_marks || spaced::differs(&content) {
            return Ok(snippet::cut(&content, &plain_words(&query.text)));
        }
        let sql = "SELECT snippet(message_text, 0, char(1), char(2), '…', 24) FROM message_text
                   WHERE message_text MATCH ?1 AND rowid = ?2";
        let text = self
            .db
            .prepare_cached(sql)
            .and_then(|mut cut| cut.query_row(params![expression, key], |row| row.get::<_, String>(0)));
        text.map(|text| pieces(&text)).map_err(|error| self.wrong(error))
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
    if let Some(since) = query.since {
        wanted.and("m.created_at >= ?", [millis(since).into()]);
    }
    if let Some(until) = query.until {
        wanted.and("m.created_at < ?", [millis(until).into()]);
    }
    wanted
}

/// Where a page begins, so that what is said meanwhile neither repeats nor hides anything on the pages behind it.
enum Place {
    /// Among what was known when the first page was asked for: keys are given in order, and never twice.
    Best {
        upto: i64,
        skipped: i64,
    },
    Newest,
    Before {
        time: i64,
        session: SessionId,
        seq: i64,
    },
}

impl Place {
    fn parse(sort: SearchSort, cursor: &str) -> Result<Place, DbError> {
        let parts: Vec<&str> = cursor.split(':').collect();
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let place = match (sort, parts.as_slice()) {
            (SearchSort::Rank, [upto, skipped]) => {
                number(upto).zip(number(skipped)).map(|(upto, skipped)| Place::Best { upto, skipped })
            }
            (SearchSort::Newest, [time, session, seq]) => number(time)
                .zip(session.parse().ok())
                .zip(number(seq))
                .map(|((time, session), seq)| Place::Before { time, session, seq }),
            _ => None,
        };
        place.ok_or_else(|| DbError::BadCursor { cursor: cursor.chars().take(100).collect() })
    }

    fn wants(&self, wanted: &mut Wanted) {
        match self {
            Place::Best { upto, .. } => wanted.and("f.rowid <= ?", [Value::from(*upto)]),
            Place::Newest => {}
            Place::Before { time, session, seq } => wanted.and(
                "(m.created_at, s.id, m.seq) < (?, ?, ?)",
                [Value::from(*time), session.to_string().into(), Value::from(*seq)],
            ),
        }
    }

    fn skipped(&self) -> i64 {
        match self {
            Place::Best { skipped, .. } => *skipped,
            Place::Newest | Place::Before { .. } => 0,
        }
    }

    /// Behind a page of so many that ends so.
    fn behind(&self, last: &Hit, shown: usize) -> Place {
        match self {
            Place::Best { upto, skipped } => Place::Best {
                upto: *upto,
                skipped: skipped.saturating_add(i64::try_from(shown).unwrap_or(i64::MAX)),
            },
            Place::Newest | Place::Before { .. } => Place::Before {
                time: millis(last.time),
                session: last.session,
                seq: i64::try_from(last.seq).unwrap_or(i64::MAX),
            },
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Best { upto, skipped } => write!(f, "{upto}:{skipped}"),
            Place::Newest => Ok(()),
            Place::Before { time, session, seq } => write!(f, "{time}:{session}:{seq}"),
        }
    }
}

fn hit(row: &Row<'_>) -> rusqlite::Result<(i64, Hit)> {
    let text = |at: usize| row.get::<_, String>(at);
    let score: f64 = row.get(1)?;
    let hit = Hit {
        session: super::pages::parsed(&text(2)?, 2)?,
        session_name: super::pages::parsed(&text(3)?, 3)?,
        session_title: row.get(4)?,
        agent: row.get::<_, Option<String>>(5)?.and_then(|name| name.parse().ok()),
        project: super::pages::parsed(&text(6)?, 6)?,
        seq: count_of(row.get(7)?),
        message: super::pages::parsed(&text(8)?, 8)?,
        run: super::pages::parsed(&text(9)?, 9)?,
        role: role_of(&text(10)?),
        time: time_of(row.get(11)?),
        standing: Standing::of_number(row.get(12)?),
        score: -score,
        snippet: Vec::new(),
    };
    Ok((row.get(0)?, hit))
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

/// What a person typed as an expression of FTS5; nothing when no word is left. Whatever is typed is a valid
/// expression: every word is quoted.
pub(super) fn match_expression(text: &str) -> Option<String> {
    let mut wanted = Vec::new();
    let mut unwanted = Vec::new();
    for Word { text, is_phrase, minus } in words(text) {
        let (text, star) = match text.strip_suffix('*') {
            Some(rest) if !is_phrase => (rest, "*"),
            Some(_) | None => (text.as_str(), ""),
        };
        // What has no letter or digit is no token, and would match nothing.
        if text.chars().any(char::is_alphanumeric) {
            let quoted = quoted(text, star);
            if minus { unwanted.push(quoted) } else { wanted.push(quoted) }
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let mut expression = wanted.join(" AND ");
    if !unwanted.is_empty() {
        expression = format!("({expression}) NOT ({})", unwanted.join(" OR "));
    }
    Some(expression)
}

/// A word as FTS5 reads it. One of a script without spaces is a row of its characters, wherever it stands.
fn quoted(word: &str, star: &str) -> String {
    let ends_so = word.chars().next_back().is_some_and(spaced::is_token);
    let star = if ends_so { "" } else { star };
    format!("\"{}\"{star}", spaced::spaced(word).trim().replace('"', "\"\""))
}

/// The words that are looked for, as a snippet marks them.
fn plain_words(text: &str) -> Vec<snippet::Wanted> {
    let kept = words(text).into_iter().filter(|word| !word.minus);
    let parts =
        kept.flat_map(|word| snippet::Wanted::of(&word.text, !word.is_phrase && word.text.ends_with('*')));
    parts.collect()
}

/// A word or a quoted phrase.
struct Word {
    text: String,
    is_phrase: bool,
    /// What has it is left out.
    minus: bool,
}

/// Words and phrases, without NULs, which no expression may have.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (at, part) in text.replace('\0', " ").split('"').enumerate() {
        if at % 2 == 1 {
            // A minus that stands alone right before a phrase is the phrase's.
            let minus = words.pop_if(|word| word.minus && word.text.is_empty()).is_some();
            words.push(Word { text: part.to_owned(), is_phrase: true, minus });
            continue;
        }
        words.retain(|word| !word.text.is_empty());
        for word in part.split_whitespace() {
            let (text, minus) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
            words.push(Word { text: text.to_owned(), is_phrase: false, minus });
        }
        if part.ends_with(char::is_whitespace) {
            words.retain(|word| !word.text.is_empty());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_becomes_an_expression() {
        for (typed, expression) in [
            ("disk full", Some(r#""disk" AND "full""#)),
            (r#""no space" left"#, Some(r#""no space" AND "left""#)),
            ("begin* -end", Some(r#"("begin"*) NOT ("end")"#)),
            ("a OR b", Some(r#""a" AND "OR" AND "b""#)),
            ("fs.read(", Some(r#""fs.read(""#)),
            ("\"open", Some(r#""open""#)),
            ("日本", Some(r#""日  本""#)),
            ("東京tow* -語*", Some(r#"("東  京 tow"*) NOT ("語")"#)),
            (r#"fox -"quick brown""#, Some(r#"("fox") NOT ("quick brown")"#)),
            (r#"-"quick brown" fox"#, Some(r#"("fox") NOT ("quick brown")"#)),
            (r#"fox - "quick brown""#, Some(r#""fox" AND "quick brown""#)),
            (r#"well-"known fox""#, Some(r#""well-" AND "known fox""#)),
            (r#"-"only a phrase""#, None),
            ("-only", None),
            ("** - \" \"", None),
            ("", None),
        ] {
            assert_eq!(match_expression(typed).as_deref(), expression, "{typed}");
        }
    }

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
