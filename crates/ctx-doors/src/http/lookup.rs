//! Full text over the caller's messages, and their audit events.

use axum::Json;
use axum::extract::State;
use ctx_api::http::{AuditEvent, List, SearchHit, SnippetPiece};
use ctx_engine::lookup::{AuditLine, AuditWish, Hit, RecordOf, Search};
use ctx_session::{Refusal, SessionId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, Who};

/// On one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchAsked {
    /// Words; `"several words"` in a row, `begin*`, `-without`.
    q: String,
    /// In this session alone.
    session: Option<String>,
    /// Hits on a page: 50, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

fn session(text: Option<&str>) -> Result<Option<SessionId>, Refusal> {
    let bad = |_| Refusal::invalid("session", "a session's id is expected");
    text.map(|text| text.parse().map_err(bad)).transpose()
}

/// Messages that match, best first
#[utoipa::path(get, path = "/search", tag = "lookup", params(SearchAsked),
    responses((status = 200, body = List<SearchHit>)))]
pub(super) async fn search(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<SearchAsked>,
) -> Answer<Json<List<SearchHit>>> {
    let search = Search {
        session: session(asked.session.as_deref())?,
        text: asked.q,
        limit: asked.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
        cursor: asked.cursor,
    };
    let page = api.engine.search(caller, search).await?;
    Ok(Json(List { items: page.items.into_iter().map(hit).collect(), next: page.next }))
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
        message_id: hit.message,
        run_id: hit.run,
        role: hit.role,
        created_at: hit.time.as_millis(),
        score: hit.score,
        snippet: hit.snippet.into_iter().map(piece).collect(),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditAsked {
    /// Of this session alone.
    session: Option<String>,
    /// Of this name alone, such as `session.ended`.
    event: Option<String>,
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
        event: asked.event,
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
