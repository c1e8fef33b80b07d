//! Lists of sessions.

use ctx_journal::LogPath;
use ctx_session::{Name, SessionId, StateName};
use rusqlite::Row;
use rusqlite::types::Value;

use super::search::match_expression;
use super::{Page, Queries, Viewer, Wanted, anywhere, one_more, page};
use crate::db::DbError;
use crate::db::column::{count_of, millis};
use crate::db::store::{SESSION_COLUMNS, SESSION_COLUMNS_LEN, session_row};
use ctx_session::Overview;

/// In what order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// The one that changed last comes first.
    #[default]
    Updated,
    /// The youngest comes first.
    Created,
    /// By name, a to z.
    Name,
}

/// Which sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct ListQuery {
    pub viewer: Viewer,
    /// Any of these; none: all.
    pub states: Vec<StateName>,
    pub agent: Option<Name>,
    pub project: Option<Name>,
    pub cwd: Option<String>,
    /// The host directory that they began in, or one above it.
    pub dir: Option<String>,
    /// Also those that were put away.
    pub archived: bool,
    /// In the title, the name or the first message, or said in it.
    pub text: Option<String>,
    pub sort: Sort,
    pub limit: usize,
    /// Where the last page said that the next one begins.
    pub after: Option<String>,
}

impl ListQuery {
    /// The newest sessions that someone may see.
    pub fn newest(viewer: Viewer, limit: usize) -> ListQuery {
        ListQuery {
            viewer,
            states: Vec::new(),
            agent: None,
            project: None,
            cwd: None,
            dir: None,
            archived: false,
            text: None,
            sort: Sort::Updated,
            limit,
            after: None,
        }
    }
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionItem {
    pub log: LogPath,
    pub row: Overview,
    /// The seq up to which the log has been read.
    pub next_seq: u64,
    /// The byte at which that ends; 0: not known.
    pub end_bytes: u64,
}

impl SessionItem {
    pub fn id(&self) -> SessionId {
        self.row.meta.session_id
    }
}

pub(super) fn columns() -> String {
    // What is shown of a log that is being read is from before.
    format!("{SESSION_COLUMNS}, log, CASE WHEN reading IS NULL THEN next_seq ELSE 0 END, end_bytes")
}

/// How many they are.
pub(super) fn columns_len() -> usize {
    SESSION_COLUMNS_LEN + 3
}

pub(super) fn item(row: &Row<'_>) -> rusqlite::Result<SessionItem> {
    let log: String = row.get(SESSION_COLUMNS_LEN)?;
    let log = LogPath::new(log).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(
            SESSION_COLUMNS_LEN,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    })?;
    let next_seq = count_of(row.get(SESSION_COLUMNS_LEN + 1)?);
    let end_bytes = count_of(row.get(SESSION_COLUMNS_LEN + 2)?);
    Ok(SessionItem { row: session_row(row)?, log, next_seq, end_bytes })
}

impl Queries<'_> {
    /// A page of sessions.
    pub fn list(&self, query: &ListQuery) -> Result<Page<SessionItem>, DbError> {
        let mut wanted = Wanted::of(&query.viewer);
        if !query.states.is_empty() {
            let marks = vec!["?"; query.states.len()].join(", ");
            let states = query.states.iter().map(|state| Value::from(state.as_str().to_owned()));
            wanted.and(&format!("state IN ({marks})"), states);
        }
        wanted.and_is("agent", query.agent.as_ref().map(Name::as_str));
        wanted.and_is("project", query.project.as_ref().map(Name::as_str));
        wanted.and_is("cwd", query.cwd.as_deref());
        if let Some(dir) = &query.dir {
            let below = format!("{}/", dir.trim_end_matches('/'));
            let own = "json_extract(meta, '$.dir')";
            let is_in = format!("({own} = ? OR substr({own}, 1, length(?)) = ?)");
            wanted.and(&is_in, [dir.clone(), below.clone(), below].map(Value::from));
        }
        if !query.archived {
            wanted.and("archived = 0", []);
        }
        if let Some(text) = &query.text {
            wants_text(&mut wanted, text);
        }
        if let Some(cursor) = &query.after {
            wants_after(&mut wanted, query.sort, cursor)?;
        }
        let order = match query.sort {
            Sort::Updated => "updated_at DESC, id DESC",
            Sort::Created => "created_at DESC, id DESC",
            Sort::Name => "name, id",
        };
        let sql = format!(
            "SELECT {} FROM sessions WHERE {} ORDER BY {order} LIMIT {}",
            columns(),
            wanted.condition(),
            one_more(query.limit)
        );
        let items = self.rows(&sql, wanted.values, item)?;
        Ok(page(items, query.limit, |item| place(query.sort, item)))
    }
}

fn wants_text(wanted: &mut Wanted, text: &str) {
    let pattern = Value::from(anywhere(text));
    let mut condition = "title GLOB ? OR name GLOB ? OR preview GLOB ?".to_owned();
    let mut values = vec![pattern.clone(), pattern.clone(), pattern];
    if let Some(expression) = match_expression(text) {
        condition.push_str(
            " OR key IN (SELECT m.session FROM message_text AS f JOIN messages AS m ON m.key = f.rowid
               WHERE f.content MATCH ? AND m.superseded <> 1)",
        );
        values.push(expression.into());
    }
    wanted.and(&format!("({condition})"), values);
}

/// Where an item stands in the order.
fn place(sort: Sort, item: &SessionItem) -> String {
    let id = item.id();
    match sort {
        Sort::Updated => format!("{}:{id}", millis(item.row.updated_at)),
        Sort::Created => format!("{}:{id}", millis(item.row.created_at)),
        Sort::Name => format!("{}:{id}", item.row.meta.name),
    }
}

fn wants_after(wanted: &mut Wanted, sort: Sort, cursor: &str) -> Result<(), DbError> {
    let bad = || DbError::BadCursor { cursor: cursor.chars().take(100).collect() };
    let (value, id) = cursor.rsplit_once(':').ok_or_else(bad)?;
    let id: SessionId = id.parse().map_err(|_| bad())?;
    let number = || value.parse::<i64>().map(Value::from).map_err(|_| bad());
    let (condition, value) = match sort {
        Sort::Updated => ("(updated_at, id) < (?, ?)", number()?),
        Sort::Created => ("(created_at, id) < (?, ?)", number()?),
        Sort::Name => ("(name, id) > (?, ?)", Value::from(value.to_owned())),
    };
    wanted.and(condition, [value, id.to_string().into()]);
    Ok(())
}
