//! Compactions: what was taken out of the model's sight, asking for one, and answering one that is proposed.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{
    Aggregate, Compaction, CompactionApproval, CompactionChange, CompactionRow, List, NewCompaction,
    ProposedCompaction, WentOn,
};
use ctx_engine::Caller;
use ctx_session::command::CompactionEdits;
use ctx_session::control::{Aggregate as Gathered, Compacted, Control};
use ctx_session::{CompactionId, Refusal, SessionId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::checkpoints::went_on;
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Nothing, Who, compaction_id, session_id};
use super::idempotency::Keyed;
use super::json::Json;

/// Compactions on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

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
    let after = query.cursor.as_deref().map(|text| Place::parse(&session.control, text)).transpose()?;
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let mut rows = rows(&session.control).filter(|row| after.is_none_or(|after| row.place() > after));
    let page: Vec<Row<'_>> = rows.by_ref().take(limit).collect();
    let next = page.last().filter(|_| rows.next().is_some()).map(Row::cursor);
    let items = page.into_iter().map(|row| row.shape(session.id())).collect();
    Ok(Json(List { items, next }))
}

/// A row of the list.
enum Row<'a> {
    /// The n-th of those that stand for the very oldest.
    Aggregate(u64, &'a Gathered),
    One(&'a Compacted),
}

/// Where a row stands: those for the very oldest first, then each by its place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Aggregate(u64),
    One(u64),
}

impl Place {
    /// The place that a cursor names: a compaction's id, or the number of a row for the very oldest. A page after one that
    /// was gathered into such a row meanwhile begins with the oldest that is still there.
    fn parse(control: &Control, text: &str) -> Result<Place, Refusal> {
        if let Ok(id) = text.parse() {
            let known = control.compaction(id).map(|one| Place::One(one.seq));
            return Ok(known.unwrap_or(Place::Aggregate(u64::MAX)));
        }
        let number = text.strip_prefix('a').and_then(|number| number.parse().ok());
        let bad = || Refusal::invalid("cursor", "a cursor is the `next` of the page before");
        number.map(Place::Aggregate).ok_or_else(bad)
    }
}

fn rows(control: &Control) -> impl Iterator<Item = Row<'_>> {
    let aggregates = (0..).zip(&control.aggregates).map(|(at, one)| Row::Aggregate(at, one));
    aggregates.chain(control.compactions.iter().map(Row::One))
}

impl Row<'_> {
    fn place(&self) -> Place {
        match self {
            Row::Aggregate(at, _) => Place::Aggregate(*at),
            Row::One(one) => Place::One(one.seq),
        }
    }

    fn cursor(&self) -> String {
        match self {
            Row::Aggregate(at, _) => format!("a{at}"),
            Row::One(one) => one.id().to_string(),
        }
    }

    fn shape(&self, session: SessionId) -> CompactionRow {
        match self {
            Row::Aggregate(_, one) => {
                let (count, before) = (one.count, one.before.as_millis());
                CompactionRow::Aggregate(Aggregate { aggregate: true, count, before })
            }
            Row::One(one) => CompactionRow::Compaction(Box::new(shape(session, one))),
        }
    }
}

/// Begin a compaction of an idle session: a run of its own
#[utoipa::path(post, path = "/sessions/{id}/compactions", tag = "compactions", params(("id" = String, Path)),
    request_body = NewCompaction, responses((status = 202, body = WentOn)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Keyed(key): Keyed,
    Given(new): Given<NewCompaction>,
) -> Answer<(StatusCode, Json<WentOn>)> {
    let run = api.engine.compact(caller, session_id(&id)?, new.strategy, key).await?;
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
        after_estimate: kept.after_estimate(),
        window_upper: made.window_upper,
        window_lower: made.window_lower,
        superseded_message_ids: kept.superseded().to_vec(),
        elided_call_ids: kept.elided().to_vec(),
        summary_message_id: kept.summary_message(),
        summary: kept.summary().map(str::to_owned),
        plugins_fired: made.plugins_fired.clone(),
        plugin_cost: made.plugin_cost.clone(),
        fallback_occurred: kept.fallback_occurred(),
        fallback_reason: kept.fallback_reason().map(str::to_owned),
        operator_flag: kept.flag,
        operator_notes: kept.notes.clone(),
        checkpoint_id: made.checkpoint_id,
        rolled_back: kept.rolled_back,
        proposed: made.proposed.then(|| ProposedCompaction {
            superseded_message_ids: made.superseded_message_ids.clone(),
            elided_call_ids: made.elided_call_ids.clone(),
            summary: made.summary.clone(),
        }),
    }
}
