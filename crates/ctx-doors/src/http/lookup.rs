//! Full text over the caller's messages, counts, and their audit events.

use axum::extract::State;
use ctx_api::http::{
    AuditEvent, List, SearchHit, SearchSession, SearchSessions, SnippetPiece, Spent, Standing, Stats,
    TokenCount, ToolCount,
};
use ctx_api::model;
use ctx_engine::lookup::{self, AuditLine, AuditWish, Hit, RecordOf, Search, SearchSort, StatsWish};
use ctx_session::conversation::Role;
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::{Name, Refusal, SessionId, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, Who};
use super::json::Json;

/// On one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;
/// Hits that stand for a session unless told otherwise, and at most.
const HITS: usize = 3;
const HITS_MAX: usize = 20;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchAsked {
    /// Words; `"several words"` in a row, `begin*`, `-without`.
    q: String,
    /// In this session alone.
    session: Option<String>,
    /// In sessions with this agent alone.
    agent: Option<String>,
    /// In sessions that were imported from this agent alone: `codex`, `claude`, `opencode`, `goose`, `gemini` or `aider`.
    from: Option<String>,
    /// In sessions of this project alone.
    project: Option<String>,
    /// In sessions that began in this directory or below it, or work there.
    dir: Option<String>,
    /// In imported sessions that were on this branch.
    branch: Option<String>,
    /// In what this tool gave alone.
    tool: Option<String>,
    /// `user`, `assistant`, `subagent`, `system` or `tool`.
    #[param(value_type = Option<String>)]
    role: Option<Role>,
    /// Not before, in milliseconds since 1970.
    since: Option<u64>,
    /// Before, in milliseconds since 1970.
    until: Option<u64>,
    /// Also what a rollback or a discard took back. What was compacted is always found.
    #[serde(default)]
    superseded: bool,
    /// `rank` or `newest`.
    #[serde(default)]
    sort: SortWord,
    /// Hits on a page, or sessions: 50, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before; of `/search` alone.
    cursor: Option<String>,
    /// Hits of a session: 3, at most 20; of `/search/sessions` alone.
    hits: Option<usize>,
}

/// The order, to be asked for.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SortWord {
    #[default]
    Rank,
    Newest,
}

impl SortWord {
    fn sort(self) -> SearchSort {
        match self {
            SortWord::Rank => SearchSort::Rank,
            SortWord::Newest => SearchSort::Newest,
        }
    }
}

/// Who is no agent and what is no project has no sessions; a name that is none is a mistake.
fn name(field: &'static str, text: Option<&str>) -> Result<Option<Name>, Refusal> {
    text.map(|text| Name::new(text).map_err(|rule| Refusal::invalid(field, rule.to_string()))).transpose()
}

fn session(text: Option<&str>) -> Result<Option<SessionId>, Refusal> {
    let bad = |_| Refusal::invalid("session", "not a session's id");
    text.map(|text| text.parse().map_err(bad)).transpose()
}

/// The agent whose sessions are looked through: one here, or one that they were imported from.
fn agent(asked: &SearchAsked) -> Result<Option<Name>, Refusal> {
    match (asked.agent.as_deref(), asked.from.as_deref()) {
        (agent, None) => name("agent", agent),
        (None, Some(from)) if IMPORT_AGENTS.contains(&from) => name("from", Some(from)),
        (None, Some(_)) => {
            Err(Refusal::invalid("from", format!("sessions are imported from {}", IMPORT_AGENTS.join(", "))))
        }
        (Some(_), Some(_)) => Err(Refusal::invalid("from", "`agent` and `from` cannot be combined")),
    }
}

fn search_of(asked: SearchAsked) -> Result<Search, Refusal> {
    if asked.dir.as_deref().is_some_and(|dir| !dir.starts_with('/')) {
        return Err(Refusal::invalid("dir", "a directory is an absolute path"));
    }
    Ok(Search {
        session: session(asked.session.as_deref())?,
        agent: agent(&asked)?,
        project: name("project", asked.project.as_deref())?,
        role: asked.role,
        dir: asked.dir,
        branch: asked.branch,
        tool: asked.tool,
        since: asked.since.map(Timestamp::from_millis),
        until: asked.until.map(Timestamp::from_millis),
        superseded: asked.superseded,
        sort: asked.sort.sort(),
        text: asked.q,
        limit: asked.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
        cursor: asked.cursor,
    })
}

/// Messages that match, best first
///
/// Messages that a compaction left out were said all the same and are found; each hit says how it stands. Two thousand matches, those
/// that came into the index last, are ranked together; the pages behind them rank those before.
#[utoipa::path(get, path = "/search", tag = "lookup", params(SearchAsked),
    responses((status = 200, body = List<SearchHit>)))]
pub(super) async fn search(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<SearchAsked>,
) -> Answer<Json<List<SearchHit>>> {
    if asked.hits.is_some() {
        return Err(Refusal::invalid("hits", "`hits` is for `/search/sessions`").into());
    }
    let page = api.engine.search(caller, search_of(asked)?).await?;
    Ok(Json(List { items: page.items.into_iter().map(hit).collect(), next: page.next }))
}

/// Sessions that match, best first, each with its best messages
#[utoipa::path(get, path = "/search/sessions", tag = "lookup", params(SearchAsked),
    responses((status = 200, body = SearchSessions)))]
pub(super) async fn search_sessions(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<SearchAsked>,
) -> Answer<Json<SearchSessions>> {
    if asked.cursor.is_some() {
        return Err(Refusal::invalid("cursor", "sessions come on one page; ask for more with `limit`").into());
    }
    let hits = asked.hits.unwrap_or(HITS).clamp(1, HITS_MAX);
    let (found, more) = api.engine.search_sessions(caller, search_of(asked)?, hits).await?;
    let session = |found: lookup::SessionHits| {
        let session_id = found.hits.first()?.session;
        let hits = found.hits.into_iter().map(hit).collect();
        Some(SearchSession { session_id, matches: found.matches, hits })
    };
    Ok(Json(SearchSessions { items: found.into_iter().filter_map(session).collect(), more }))
}

fn hit(hit: Hit) -> SearchHit {
    let piece =
        |piece: ctx_engine::lookup::SnippetPiece| SnippetPiece { text: piece.text, is_hit: piece.is_hit };
    SearchHit {
        session_id: hit.session,
        session_name: hit.session_name,
        session_title: hit.session_title,
        agent: hit.agent,
        project: hit.project,
        cwd: hit.cwd,
        seq: hit.seq,
        message_id: hit.message,
        run_id: hit.run,
        role: hit.role,
        tool: hit.tool,
        created_at: hit.time.as_millis(),
        standing: match hit.standing {
            lookup::Standing::Counts => Standing::Counts,
            lookup::Standing::Compacted => Standing::Compacted,
            lookup::Standing::TakenBack => Standing::TakenBack,
        },
        score: hit.score,
        snippet: hit.snippet.into_iter().map(piece).collect(),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsAsked {
    /// Sessions with this agent alone.
    agent: Option<String>,
    /// Sessions of this project alone.
    project: Option<String>,
    /// Sessions that changed since, in milliseconds since 1970.
    since: Option<u64>,
}

/// What was done in the caller's sessions, by number
#[utoipa::path(get, path = "/stats", tag = "lookup", params(StatsAsked),
    responses((status = 200, body = Stats)))]
pub(super) async fn stats(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<StatsAsked>,
) -> Answer<Json<Stats>> {
    let wish = StatsWish {
        agent: name("agent", asked.agent.as_deref())?,
        project: name("project", asked.project.as_deref())?,
        since: asked.since.map(Timestamp::from_millis),
    };
    let (stats, unread) = api.engine.stats(caller, wish).await?;
    Ok(Json(counts(stats, unread)))
}

fn spent(rows: Vec<lookup::Spent>) -> Vec<Spent> {
    let one = |row: lookup::Spent| {
        let tokens = TokenCount::new(row.usage, row.unpriced);
        Spent { key: row.word, calls: row.calls, tokens }
    };
    rows.into_iter().map(one).collect()
}

fn counts(stats: lookup::Stats, unread: u64) -> Stats {
    let tool = |tool: lookup::ToolStats| ToolCount {
        tool: tool.tool,
        calls: tool.calls,
        failed: tool.failed,
        total_ms: tool.total_ms,
    };
    let usage = TokenCount::new(stats.usage, stats.unpriced());
    Stats {
        sessions: stats.sessions,
        sessions_by_state: stats.sessions_by_state.into_iter().collect(),
        sessions_by_agent: stats.sessions_by_agent.into_iter().collect(),
        sessions_by_project: stats.sessions_by_project.into_iter().collect(),
        runs_by_state: stats.runs_by_state.into_iter().collect(),
        runs_by_model: stats
            .runs_by_model
            .into_iter()
            .map(|(model, runs)| (model::in_api(&model), runs))
            .collect(),
        messages_by_role: stats.messages_by_role.into_iter().collect(),
        tools: stats.tools.into_iter().map(tool).collect(),
        usage,
        run_ms: stats.run_ms,
        by_day: spent(stats.by_day),
        by_week: spent(stats.by_week),
        by_model: spent(stats.by_model)
            .into_iter()
            .map(|one| Spent { key: model::in_api(&one.key), ..one })
            .collect(),
        by_project: spent(stats.by_project),
        by_agent: spent(stats.by_agent),
        unread,
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditAsked {
    /// Of this session alone.
    session: Option<String>,
    /// Of this name alone, such as `session.ended`; several are parted by commas.
    event: Option<String>,
    /// Done by this user alone.
    user: Option<u32>,
    /// Not before, in milliseconds since 1970.
    since: Option<u64>,
    /// Before, in milliseconds since 1970.
    until: Option<u64>,
    /// Events on a page: 50, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// What was done, by the caller or to what is theirs, newest first
#[utoipa::path(get, path = "/audit", tag = "lookup", params(AuditAsked),
    responses((status = 200, body = List<AuditEvent>)))]
pub(super) async fn audit(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<AuditAsked>,
) -> Answer<Json<List<AuditEvent>>> {
    let bad = |_| Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let wish = AuditWish {
        session: session(asked.session.as_deref())?,
        events: asked.event.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect(),
        user: asked.user,
        since: asked.since.map(Timestamp::from_millis),
        until: asked.until.map(Timestamp::from_millis),
        limit: asked.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
        before: asked.cursor.map(|cursor| cursor.parse().map_err(bad)).transpose()?,
    };
    let (lines, next) = api.engine.audit(caller, wish).await?;
    Ok(Json(List { items: lines.into_iter().map(event).collect(), next: next.map(|next| next.to_string()) }))
}

fn event(line: AuditLine) -> AuditEvent {
    let (session_seq, project_id, project_seq) = match &line.event.record {
        RecordOf::Session { session_seq, .. } => (Some(*session_seq), None, None),
        RecordOf::Project { project, project_seq } => (None, Some(project.to_string()), Some(*project_seq)),
        RecordOf::Root { .. } => (None, None, None),
    };
    AuditEvent {
        number: line.number,
        time: line.time.as_millis(),
        event: line.event.event.as_str().to_owned(),
        user_id: line.event.user,
        session_id: line.event.session(),
        session_seq,
        project_id,
        project_seq,
        data: line.event.data,
    }
}
