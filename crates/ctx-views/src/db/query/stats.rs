//! Counts over sessions: what was done, by whom, with which tools, at what cost in tokens.

use std::collections::HashMap;

use ctx_session::record::{Failure, Usage};
use ctx_session::{Name, SessionId, Timestamp};
use rusqlite::types::Value;

use super::{Queries, Viewer, Wanted};
use crate::db::DbError;
use crate::db::column::{count_of, millis};

/// Values of one question; SQLite takes 32,766.
const VALUES_MAX: usize = 10_000;

/// Over which sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsQuery {
    pub viewer: Viewer,
    pub agent: Option<Name>,
    pub project: Option<Name>,
    /// Sessions that changed since.
    pub since: Option<Timestamp>,
}

/// What they come to. Counts by a word are ordered by count, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    pub sessions: u64,
    pub sessions_by_state: Vec<(String, u64)>,
    /// Sessions on a model's socket have no agent and count under `-`.
    pub sessions_by_agent: Vec<(String, u64)>,
    pub sessions_by_project: Vec<(String, u64)>,
    pub runs_by_state: Vec<(String, u64)>,
    pub runs_by_model: Vec<(String, u64)>,
    pub messages_by_role: Vec<(String, u64)>,
    pub tools: Vec<ToolStats>,
    pub usage: Usage,
    /// The time that runs took.
    pub run_ms: u64,
    /// What model calls cost, by the UTC day on which they were over (`2026-11-18`), oldest first.
    pub by_day: Vec<Spent>,
    /// The same by week (`2026-W47`, from Monday), oldest first.
    pub by_week: Vec<Spent>,
    /// What cost most comes first.
    pub by_model: Vec<Spent>,
    pub by_project: Vec<Spent>,
    pub by_agent: Vec<Spent>,
}

/// What the model calls of one day, model, project or agent came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    pub word: String,
    pub calls: u64,
    pub usage: Usage,
    /// Of the calls, those whose price is not known.
    pub unpriced: u64,
}

impl Stats {
    pub fn unpriced(&self) -> u64 {
        self.by_model.iter().map(|row| row.unpriced).sum()
    }
}

/// What one operator has spent in one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub operator: u32,
    pub project: String,
    pub cost_nano_usd: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStats {
    pub tool: String,
    pub calls: u64,
    pub failed: u64,
    pub total_ms: u64,
}

/// The rows of a table with their sessions, without what a fork took over: that is its source's.
fn own(table: &str, alias: &str) -> String {
    format!(
        "{table} JOIN sessions AS s ON s.key = {alias}.session
           AND {alias}.seq > ifnull(json_extract(s.meta, '$.forked_from.seq'), -1)"
    )
}

impl Queries<'_> {
    pub fn stats(&self, query: &StatsQuery) -> Result<Stats, DbError> {
        // All counts are of one moment; nothing is written, so its end may be a roll-back.
        let _moment = self.db.unchecked_transaction().map_err(|error| self.wrong(error))?;
        let mut wanted = Wanted::of(&query.viewer);
        wanted.and_is("s.agent", query.agent.as_ref().map(Name::as_str));
        wanted.and_is("s.project", query.project.as_ref().map(Name::as_str));
        if let Some(since) = query.since {
            wanted.and("s.updated_at >= ?", [millis(since).into()]);
        }
        let condition = wanted.condition();
        let count = |what: &str, from: &str| -> Result<Vec<(String, u64)>, DbError> {
            let sql = format!(
                "SELECT ifnull({what}, '-') AS word, count(*) AS n FROM {from} WHERE {condition}
                 GROUP BY 1 ORDER BY n DESC, word"
            );
            self.rows(&sql, wanted.values.clone(), |row| Ok((row.get(0)?, count_of(row.get(1)?))))
        };
        let of_sessions = "sessions AS s";
        let of_runs = &own("runs AS r", "r");
        let of_messages = &own("messages AS m", "m");
        let sessions_by_state = count("s.state", of_sessions)?;
        let sum = |what: &str, from: &str| self.sum(what, from, &condition, &wanted.values);
        let spent =
            |what: &str, order: &str| self.spent(what, order, query.since, &condition, &wanted.values);
        let (first, most) = ("word", "cost DESC, input DESC, word");
        Ok(Stats {
            sessions: sessions_by_state.iter().map(|(_, n)| n).sum(),
            sessions_by_state,
            sessions_by_agent: count("s.agent", of_sessions)?,
            sessions_by_project: count("s.project", of_sessions)?,
            runs_by_state: count("r.state", of_runs)?,
            runs_by_model: count("r.model", of_runs)?,
            messages_by_role: count("m.role", of_messages)?,
            tools: self.tool_stats(&condition, &wanted.values)?,
            usage: Usage {
                input: sum("r.tokens_in", of_runs)?,
                output: sum("r.tokens_out", of_runs)?,
                cached: sum("r.tokens_cached", of_runs)?,
                cost_nano_usd: sum("r.cost_nano", of_runs)?,
            },
            run_ms: sum("r.duration_ms", of_runs)?,
            by_day: spent("strftime('%Y-%m-%d', c.created_at / 1000, 'unixepoch')", first)?,
            by_week: spent("strftime('%G-W%V', c.created_at / 1000, 'unixepoch')", first)?,
            by_model: spent("c.model", most)?,
            by_project: spent("s.project", most)?,
            by_agent: spent("s.agent", most)?,
        })
    }

    fn spent(
        &self,
        what: &str,
        order: &str,
        since: Option<Timestamp>,
        condition: &str,
        values: &[Value],
    ) -> Result<Vec<Spent>, DbError> {
        // What an earlier call of a session cost is not of this time, though the session is.
        let since = since.map_or(0, millis);
        let sql = format!(
            "SELECT ifnull({what}, '-') AS word, count(*), sum(c.tokens_in) AS input, sum(c.tokens_out),
               sum(c.tokens_cached), sum(c.cost_nano) AS cost,
               sum(c.cost_nano = 0 AND c.tokens_in + c.tokens_out > 0
                 AND substr(ifnull(c.model, ''), 1, 6) NOT IN ('debug:', 'debug/'))
             FROM {} WHERE {condition} AND c.created_at >= {since} GROUP BY 1 ORDER BY {order}",
            own("model_calls AS c", "c")
        );
        self.rows(&sql, values.to_vec(), |row| {
            let count = |at: usize| -> rusqlite::Result<u64> { Ok(count_of(row.get(at)?)) };
            let usage =
                Usage { input: count(2)?, output: count(3)?, cached: count(4)?, cost_nano_usd: count(5)? };
            Ok(Spent { word: row.get(0)?, calls: count(1)?, usage, unpriced: count(6)? })
        })
    }

    /// What was paid for model calls that were over in `from..until`, by operator and project.
    pub fn paid(&self, from: Timestamp, until: Timestamp) -> Result<Vec<Share>, DbError> {
        let sql = format!(
            "SELECT s.owner, s.project, sum(c.cost_nano) FROM {}
             WHERE c.cost_nano > 0 AND c.created_at >= ?1 AND c.created_at < ?2 GROUP BY 1, 2",
            own("model_calls AS c", "c")
        );
        self.rows(&sql, vec![millis(from).into(), millis(until).into()], |row| {
            Ok(Share { operator: row.get(0)?, project: row.get(1)?, cost_nano_usd: count_of(row.get(2)?) })
        })
    }

    /// What sessions have cost so far; those that are not known are left out.
    pub fn usage_of(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Usage>, DbError> {
        let marks = vec!["?"; sessions.len()].join(", ");
        let sql = format!(
            "SELECT id, tokens_in, tokens_out, tokens_cached, cost_nano FROM sessions WHERE id IN ({marks})"
        );
        let ids = sessions.iter().map(|id| id.to_string().into()).collect();
        let found = self.rows(&sql, ids, |row| {
            let count = |at: usize| -> rusqlite::Result<u64> { Ok(count_of(row.get(at)?)) };
            let usage =
                Usage { input: count(1)?, output: count(2)?, cached: count(3)?, cost_nano_usd: count(4)? };
            Ok((row.get::<_, String>(0)?, usage))
        })?;
        Ok(found.into_iter().filter_map(|(id, usage)| Some((id.parse().ok()?, usage))).collect())
    }

    /// When these sessions changed last, as far as their logs have been read.
    pub fn updates_of(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Timestamp>, DbError> {
        let mut updates = HashMap::new();
        for some in sessions.chunks(VALUES_MAX) {
            let marks = vec!["?"; some.len()].join(", ");
            let sql = format!("SELECT id, updated_at FROM sessions WHERE id IN ({marks})");
            let ids = some.iter().map(|id| id.to_string().into()).collect();
            let found = self.rows(&sql, ids, |row| Ok((row.get::<_, String>(0)?, count_of(row.get(1)?))))?;
            updates.extend(
                found.into_iter().filter_map(|(id, at)| Some((id.parse().ok()?, Timestamp::from_millis(at)))),
            );
        }
        Ok(updates)
    }

    /// Why the newest run of these sessions failed, for those where it did. What a fork took over is not its own.
    pub fn failed_runs(&self, sessions: &[SessionId]) -> Result<HashMap<SessionId, Failure>, DbError> {
        let mut failed = HashMap::new();
        for some in sessions.chunks(VALUES_MAX) {
            let sql = format!(
                "SELECT s.id, r.error FROM {}
                 WHERE s.id IN ({}) AND r.state = 'failed'
                   AND r.seq = (SELECT max(seq) FROM runs WHERE session = s.key)",
                own("runs AS r", "r"),
                vec!["?"; some.len()].join(", ")
            );
            let ids = some.iter().map(|id| id.to_string().into()).collect();
            let found = self.rows(&sql, ids, |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default()))
            })?;
            failed.extend(
                found
                    .into_iter()
                    .filter_map(|(id, error)| Some((id.parse().ok()?, serde_json::from_str(&error).ok()?))),
            );
        }
        Ok(failed)
    }

    fn sum(&self, what: &str, from: &str, condition: &str, values: &[Value]) -> Result<u64, DbError> {
        let sql = format!("SELECT ifnull(sum({what}), 0) FROM {from} WHERE {condition}");
        let sums = self.rows(&sql, values.to_vec(), |row| Ok(count_of(row.get(0)?)))?;
        Ok(sums.into_iter().sum())
    }

    fn tool_stats(&self, condition: &str, values: &[Value]) -> Result<Vec<ToolStats>, DbError> {
        let sql = format!(
            "SELECT t.tool_name, count(*) AS n, sum(t.state IN ('failed', 'interrupted')),
               ifnull(sum(t.duration_ms), 0)
             FROM {} WHERE {condition} GROUP BY 1 ORDER BY n DESC, 1",
            own("tool_calls AS t", "t")
        );
        self.rows(&sql, values.to_vec(), |row| {
            Ok(ToolStats {
                tool: row.get(0)?,
                calls: count_of(row.get(1)?),
                failed: count_of(row.get(2)?),
                total_ms: count_of(row.get(3)?),
            })
        })
    }
}
