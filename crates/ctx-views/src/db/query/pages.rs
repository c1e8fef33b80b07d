//! Pages of what a session holds: messages, runs and their tool calls.

use std::str::FromStr;

use ctx_session::conversation::{Part, Role};
use ctx_session::record::{Failure, RunFinish, RunKind, Usage};
use ctx_session::{CallId, MessageId, RunId, SessionId, Timestamp, Ulid};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row};

use super::{Page, Queries, one_more, page};
use crate::db::DbError;
use crate::db::column::{count_of, int, of_word, time_of};

/// Which messages of a session, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagesQuery {
    pub session: SessionId,
    /// Only later ones than this.
    pub since: Option<u64>,
    /// Only earlier ones than this; the page then holds those right before it.
    pub before: Option<u64>,
    pub superseded: bool,
    pub limit: usize,
}

/// A message as the index has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageItem {
    pub seq: u64,
    pub id: Ulid,
    pub run: RunId,
    pub role: Role,
    pub content: String,
    /// There is more of it in the log.
    pub is_cut: bool,
    /// Where there is more than text. The text of a tool's result is in `content`.
    pub parts: Option<Vec<Part>>,
    pub time: Timestamp,
    pub is_superseded: bool,
    pub is_pinned: bool,
}

/// A run as the index has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunItem {
    pub id: RunId,
    pub seq: u64,
    pub kind: RunKind,
    /// None where the operator asked for a compaction.
    pub message: Option<MessageId>,
    /// pending, running, done, failed or cancelled.
    pub state: String,
    pub finish_reason: Option<RunFinish>,
    pub model: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub usage: Usage,
    pub error: Option<Failure>,
}

/// A tool call as the index has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallItem {
    pub id: CallId,
    pub seq: u64,
    pub run: RunId,
    pub caller: String,
    pub tool: String,
    /// JSON.
    pub input: String,
    /// The beginning of it.
    pub output: Option<String>,
    pub is_cut: bool,
    /// pending, done, failed or interrupted.
    pub state: String,
    pub created_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
}

impl Queries<'_> {
    /// A page of a session's messages. `next` is the seq to go on from: `since` it, or `before` it where the
    /// page was asked for that way.
    pub fn messages(&self, query: &MessagesQuery) -> Result<Page<MessageItem>, DbError> {
        let Some(key) = self.key(query.session)? else { return Ok(Page { items: Vec::new(), next: None }) };
        let mut conditions = vec!["session = ?"];
        let mut values = vec![Value::from(key)];
        let bounds = [("seq > ?", query.since), ("seq < ?", query.before)];
        for (condition, bound) in bounds {
            if let Some(bound) = bound {
                conditions.push(condition);
                values.push(int(bound).into());
            }
        }
        if !query.superseded {
            conditions.push("superseded = 0");
        }
        let backwards = query.before.is_some() && query.since.is_none();
        let sql = format!(
            "SELECT seq, id, run_id, role, content, cut, parts, created_at, superseded, pinned FROM messages
             WHERE {} ORDER BY seq {} LIMIT {}",
            conditions.join(" AND "),
            if backwards { "DESC" } else { "ASC" },
            one_more(query.limit)
        );
        let items = self.rows(&sql, values, message)?;
        let mut page = page(items, query.limit, |item| item.seq.to_string());
        if backwards {
            page.items.reverse();
        }
        Ok(page)
    }

    /// The seq of a message, for those who know it by its id.
    pub fn message_seq(&self, session: SessionId, id: Ulid) -> Result<Option<u64>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(None) };
        let sql = "SELECT min(seq) FROM messages WHERE session = ?1 AND id = ?2";
        let found = self.db.prepare_cached(sql).and_then(|mut find| {
            find.query_row((key, id.to_string()), |row| row.get::<_, Option<i64>>(0)).optional()
        });
        Ok(found.map_err(|error| self.wrong(error))?.flatten().map(count_of))
    }

    /// A page of a session's runs, the newest first; `next` is the seq to go on before.
    pub fn runs(
        &self,
        session: SessionId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<RunItem>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Page { items: Vec::new(), next: None }) };
        let sql = format!(
            "SELECT {RUN} FROM runs WHERE session = ? AND seq < ? ORDER BY seq DESC LIMIT {}",
            one_more(limit)
        );
        let before = before.map_or(i64::MAX, int);
        let items = self.rows(&sql, vec![key.into(), before.into()], run)?;
        Ok(page(items, limit, |item| item.seq.to_string()))
    }

    pub fn run(&self, session: SessionId, id: RunId) -> Result<Option<RunItem>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(None) };
        let sql = format!("SELECT {RUN} FROM runs WHERE session = ? AND id = ?");
        Ok(self.rows(&sql, vec![key.into(), id.to_string().into()], run)?.pop())
    }

    /// The tool calls of a run, in order.
    pub fn tool_calls(&self, session: SessionId, run: RunId) -> Result<Vec<ToolCallItem>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql =
            "SELECT id, seq, run_id, caller, tool_name, input, output, cut, state, created_at, completed_at,
                     duration_ms
                   FROM tool_calls WHERE session = ? AND run_id = ? ORDER BY seq";
        self.rows(sql, vec![key.into(), run.to_string().into()], tool_call)
    }
}

const RUN: &str = "id, seq, message_id, state, model, created_at, started_at, completed_at, duration_ms, tokens_in, \
     tokens_out, error, kind, finish_reason, tokens_cached, cost_nano";

fn message(row: &Row<'_>) -> rusqlite::Result<MessageItem> {
    Ok(MessageItem {
        seq: count_of(row.get(0)?),
        id: parsed(&row.get::<_, String>(1)?, 1)?,
        run: parsed(&row.get::<_, String>(2)?, 2)?,
        role: role_of(&row.get::<_, String>(3)?),
        content: row.get(4)?,
        is_cut: row.get(5)?,
        parts: row.get::<_, Option<String>>(6)?.and_then(|text| serde_json::from_str(&text).ok()),
        time: time_of(row.get(7)?),
        is_superseded: row.get(8)?,
        is_pinned: row.get(9)?,
    })
}

fn run(row: &Row<'_>) -> rusqlite::Result<RunItem> {
    let time = |at: usize| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(time_of))
    };
    Ok(RunItem {
        id: parsed(&row.get::<_, String>(0)?, 0)?,
        seq: count_of(row.get(1)?),
        kind: of_word(&row.get::<_, String>(12)?).unwrap_or_default(),
        message: row.get::<_, Option<String>>(2)?.map(|id| parsed(&id, 2)).transpose()?,
        finish_reason: row.get::<_, Option<String>>(13)?.and_then(|word| of_word(&word)),
        state: row.get(3)?,
        model: row.get(4)?,
        created_at: time_of(row.get(5)?),
        started_at: time(6)?,
        completed_at: time(7)?,
        duration_ms: row.get::<_, Option<i64>>(8)?.map(count_of),
        usage: Usage {
            input: count_of(row.get(9)?),
            output: count_of(row.get(10)?),
            cached: count_of(row.get(14)?),
            cost_nano_usd: count_of(row.get(15)?),
        },
        error: row.get::<_, Option<String>>(11)?.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

fn tool_call(row: &Row<'_>) -> rusqlite::Result<ToolCallItem> {
    Ok(ToolCallItem {
        id: parsed(&row.get::<_, String>(0)?, 0)?,
        seq: count_of(row.get(1)?),
        run: parsed(&row.get::<_, String>(2)?, 2)?,
        caller: row.get(3)?,
        tool: row.get(4)?,
        input: row.get(5)?,
        output: row.get(6)?,
        is_cut: row.get(7)?,
        state: row.get(8)?,
        created_at: time_of(row.get(9)?),
        completed_at: row.get::<_, Option<i64>>(10)?.map(time_of),
        duration_ms: row.get::<_, Option<i64>>(11)?.map(count_of),
    })
}

/// A column that holds an id or a name.
pub(super) fn parsed<T>(text: &str, at: usize) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
    })
}

pub(super) fn role_of(word: &str) -> Role {
    Role::ALL.into_iter().find(|role| role.as_str() == word).unwrap_or(Role::System)
}
