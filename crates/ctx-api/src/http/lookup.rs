//! What a search, the counts and the audit log give back.

use std::collections::BTreeMap;

use ctx_session::conversation::Role;
use ctx_session::record::Usage;
use ctx_session::{Name, RunId, SessionId, Ulid, Usd};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A message that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    #[schema(value_type = String)]
    pub session_id: SessionId,
    #[schema(value_type = String)]
    pub session_name: Name,
    pub session_title: Option<String>,
    #[schema(value_type = Option<String>)]
    pub agent: Option<Name>,
    #[schema(value_type = String)]
    pub project: Name,
    /// Where the session works.
    pub cwd: String,
    /// The record that it is in.
    pub seq: u64,
    #[schema(value_type = String)]
    pub message_id: Ulid,
    #[schema(value_type = String)]
    pub run_id: RunId,
    #[schema(schema_with = super::words::role)]
    pub role: Role,
    /// The tool, of what one gave.
    pub tool: Option<String>,
    pub created_at: u64,
    pub standing: Standing,
    /// Higher is better.
    pub score: f64,
    pub snippet: Vec<SnippetPiece>,
}

/// Sessions that have what was looked for, best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchSessions {
    pub items: Vec<SearchSession>,
    /// There are more than were asked for, or more matches than were ranked together.
    pub more: bool,
}

/// A session that has what was looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchSession {
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Matches in it, among those that were ranked.
    pub matches: u64,
    /// The best of them.
    pub hits: Vec<SearchHit>,
}

/// How a message stands in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Counts,
    /// A compaction left it out of what the model reads.
    Compacted,
    /// A rollback or a discard took it back.
    TakenBack,
}

/// What was done in the caller's sessions, by number. A session without an agent and a run without a model count
/// under `-`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    pub sessions: u64,
    pub sessions_by_state: BTreeMap<String, u64>,
    pub sessions_by_agent: BTreeMap<String, u64>,
    pub sessions_by_project: BTreeMap<String, u64>,
    pub runs_by_state: BTreeMap<String, u64>,
    pub runs_by_model: BTreeMap<String, u64>,
    pub messages_by_role: BTreeMap<String, u64>,
    /// The one that was called most comes first.
    pub tools: Vec<ToolCount>,
    pub usage: TokenCount,
    /// The time that runs took.
    pub run_ms: u64,
    /// Model calls by the UTC day on which they were over, `2026-11-18`, oldest first.
    #[serde(default)]
    pub by_day: Vec<Spent>,
    /// The same by week, `2026-W47`, oldest first.
    #[serde(default)]
    pub by_week: Vec<Spent>,
    /// By model; what cost most comes first, here and below.
    #[serde(default)]
    pub by_model: Vec<Spent>,
    #[serde(default)]
    pub by_project: Vec<Spent>,
    #[serde(default)]
    pub by_agent: Vec<Spent>,
    /// Sessions that the index has not read to their end yet: search does not see all of them.
    #[serde(default)]
    pub unread: u64,
}

/// How a tool was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCount {
    pub tool: String,
    pub calls: u64,
    pub failed: u64,
    pub total_ms: u64,
}

/// Tokens of the models.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCount {
    pub input: u64,
    pub output: u64,
    /// Of the input, what came from the provider's cache.
    #[serde(default)]
    pub cached: u64,
    /// What they cost, in US dollars, as far as prices are known; null where none is.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// Model calls whose price is not known; left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_calls: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl TokenCount {
    pub fn new(usage: Usage, unpriced_calls: u64) -> TokenCount {
        let Usage { input, output, cached, cost_nano_usd } = usage;
        let is_known = cost_nano_usd > 0 || unpriced_calls == 0;
        let cost_usd = is_known.then(|| usage.cost().dollars());
        TokenCount { input, output, cached, cost_usd, unpriced_calls }
    }
}

impl From<TokenCount> for Usage {
    fn from(count: TokenCount) -> Usage {
        let TokenCount { input, output, cached, cost_usd, .. } = count;
        let cost_nano_usd = cost_usd.and_then(Usd::of_dollars).unwrap_or_default().nano;
        Usage { input, output, cached, cost_nano_usd }
    }
}

/// What the model calls of one day, week, model, project or agent came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Spent {
    pub key: String,
    pub calls: u64,
    #[serde(flatten)]
    pub tokens: TokenCount,
}

/// A piece of a snippet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnippetPiece {
    pub text: String,
    /// What was looked for.
    pub is_hit: bool,
}

/// Something that someone did, or that happened to what is theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its place in the audit log; for another user than the daemon's, among their own events.
    pub number: u64,
    pub time: u64,
    pub event: String,
    pub user_id: u32,
    /// Where it happened; for an issue or a todo, whose run did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// The record that says so, in the session's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_seq: Option<u64>,
    /// Of which project's log the record is, where it is no session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_seq: Option<u64>,
    #[schema(value_type = Object)]
    pub data: Value,
}
