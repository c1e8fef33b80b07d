//! Counts over sessions: what was done, by whom, with which tools, at what cost in tokens.

use ctx_session::record::Usage;
use ctx_session::{Name, Timestamp};
use rusqlite::types::Value;

use super::{Queries, Viewer, Wanted};
use crate::db::DbError;
use crate::db::column::{count_of, millis};

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
                ..Usage::default()
            },
            run_ms: sum("r.duration_ms", of_runs)?,
        })
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
