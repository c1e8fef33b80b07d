//! Compactions: what was taken out of the model's sight, asking for one, and answering one that is proposed.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{
    Aggregate, Compaction, CompactionApproval, CompactionChange, CompactionRow, List, NewCompaction, WentOn,
};
use ctx_engine::Caller;
use ctx_session::command::CompactionEdits;
use ctx_session::control::{Compacted, CompactionState};
use ctx_session::{CompactionId, Refusal, SessionId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::checkpoints::went_on;
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Nothing, Who, compaction_id, session_id};

/// Compactions on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

/// Why a proposal that the operator did not want came to nothing.
const REJECTED: &str = "operator_rejected";

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct CompactionsQuery {
    /// Compactions on a page: 100, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The compactions of a session, oldest first; the very oldest of many as one row
#[utoipa::path(get, path = "/sessions/{id}/compactions", tag = "compactions",
    params(("id" = String, Path), CompactionsQuery), responses((status = 200, body = List<CompactionRow>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<CompactionsQuery>,
) -> Answer<Json<List<CompactionRow>>> {
    let session = api.engine.look(caller, session_id(&id)?).await?;
    let listed = &session.control.compactions;
    let bad = || Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let skip = match &query.cursor {
        None => 0,
        Some(cursor) => {
            let after: CompactionId = cursor.parse().map_err(|_| bad())?;
            listed.iter().take_while(|one| one.id() <= after).count()
        }
    };
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let page: Vec<&Compacted> = listed.iter().skip(skip).take(limit).collect();
    let more = listed.len() > skip + page.len();
    let next = page.last().filter(|_| more).map(|last| last.id().to_string());
    // They stand before the first page, besides what is counted on it.
    let aggregates = session.control.aggregates.iter().filter(|_| query.cursor.is_none()).map(|aggregate| {
        let (count, before) = (aggregate.count, aggregate.before.as_millis());
        CompactionRow::Aggregate(Aggregate { aggregate: true, count, before })
    });
    let rows = page.iter().map(|one| CompactionRow::Compaction(Box::new(shape(session.id(), one))));
    Ok(Json(List { items: aggregates.chain(rows).collect(), next }))
}

/// Begin a compaction of an idle session: a run of its own
#[utoipa::path(post, path = "/sessions/{id}/compactions", tag = "compactions", params(("id" = String, Path)),
    request_body = NewCompaction, responses((status = 202, body = WentOn)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(new): Given<NewCompaction>,
) -> Answer<(StatusCode, Json<WentOn>)> {
    let run = api.engine.compact(caller, session_id(&id)?, new.strategy).await?;
    let begun = WentOn { run_id: Some(run), state: "running".to_owned() };
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// Read a compaction
#[utoipa::path(get, path = "/sessions/{id}/compactions/{cid}", tag = "compactions",
    params(("id" = String, Path), ("cid" = String, Path)), responses((status = 200, body = Compaction)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
) -> Answer<Json<Compaction>> {
    let id = session_id(&id)?;
    Ok(Json(shown(&api, caller, id, compaction_id(&cid)?).await?))
}

/// Say what you think of a compaction
#[utoipa::path(patch, path = "/sessions/{id}/compactions/{cid}", tag = "compactions",
    params(("id" = String, Path), ("cid" = String, Path)), request_body = CompactionChange,
    responses((status = 200, body = Compaction)))]
pub(super) async fn change(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
    Given(change): Given<CompactionChange>,
) -> Answer<Json<Compaction>> {
    let (id, cid) = (session_id(&id)?, compaction_id(&cid)?);
    let CompactionChange { operator_flag, operator_notes } = change;
    api.engine.flag_compaction(caller, id, cid, operator_flag, operator_notes).await?;
    Ok(Json(shown(&api, caller, id, cid).await?))
}

/// Let a proposed compaction take effect, as it is or edited; the work of the run that proposed it goes on
#[utoipa::path(post, path = "/sessions/{id}/compactions/{cid}/approve", tag = "compactions",
    params(("id" = String, Path), ("cid" = String, Path)), request_body = CompactionApproval,
    responses((status = 200, body = WentOn)))]
pub(super) async fn approve(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
    Given(how): Given<CompactionApproval>,
) -> Answer<Json<WentOn>> {
    let edits = CompactionEdits { superseded: how.superseded_message_ids, summary: how.summary };
    let run = api.engine.approve_compaction(caller, session_id(&id)?, compaction_id(&cid)?, &edits).await?;
    Ok(Json(went_on(run)))
}

/// Turn a proposed compaction down; the session is idle then
#[utoipa::path(post, path = "/sessions/{id}/compactions/{cid}/reject", tag = "compactions",
    params(("id" = String, Path), ("cid" = String, Path)), responses((status = 200, body = Compaction)))]
pub(super) async fn reject(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<Json<Compaction>> {
    let (id, cid) = (session_id(&id)?, compaction_id(&cid)?);
    api.engine.reject_compaction(caller, id, cid).await?;
    Ok(Json(shown(&api, caller, id, cid).await?))
}

async fn shown(api: &Api, caller: Caller, id: SessionId, cid: CompactionId) -> Answer<Compaction> {
    let session = api.engine.look(caller, id).await?;
    let found = session.control.compaction(cid).ok_or_else(|| nothing_there("compaction"))?;
    Ok(shape(id, found))
}

/// A compaction as the API shows it: as it was approved, where it was.
pub(super) fn shape(session_id: SessionId, kept: &Compacted) -> Compaction {
    let made = &kept.made;
    let approved = kept.approved.as_deref();
    let rejected = kept.state == CompactionState::Rejected;
    let superseded = approved.map_or(&made.superseded_message_ids, |done| &done.superseded_message_ids);
    let (summary_message_id, summary) = match approved {
        Some(done) => (done.summary_message_id, done.summary.clone()),
        None => (made.summary_message_id, made.summary.clone()),
    };
    let fallback_reason = if rejected { Some(REJECTED.to_owned()) } else { made.fallback_reason.clone() };
    Compaction {
        id: kept.id(),
        session_id,
        run_id: made.turn_id,
        agent_path: made.agent_path.clone(),
        created_at: kept.created_at.as_millis(),
        trigger: made.trigger,
        strategy: made.strategy,
        state: kept.state.as_str().to_owned(),
        threshold_estimate: made.threshold_estimate,
        after_estimate: made.after_estimate,
        window_upper: made.window_upper,
        window_lower: made.window_lower,
        superseded_message_ids: superseded.clone(),
        summary_message_id,
        summary,
        plugins_fired: made.plugins_fired.clone(),
        plugin_cost: made.plugin_cost.clone(),
        fallback_occurred: made.fallback_occurred || rejected,
        fallback_reason,
        operator_flag: kept.flag,
        operator_notes: kept.notes.clone(),
        checkpoint_id: made.checkpoint_id,
        rolled_back: kept.rolled_back,
    }
}
