//! Approvals: tool calls that a run waits for an answer to.

use std::collections::HashMap;

use axum::extract::State;
use ctx_api::http::{Approval, ApprovalAnswer, List};
use ctx_engine::Caller;
use ctx_session::control::Approval as Kept;
use ctx_session::record::{ApprovalOutcome, Body, ToolBody};
use ctx_session::{CallId, SessionId};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::Api;
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Who, approval_id, session_id};
use super::json::Json;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ApprovalsQuery {
    /// Also those of the newest run that asked which are settled.
    all: bool,
}

/// The tool calls that wait for an answer, oldest first
#[utoipa::path(get, path = "/sessions/{id}/approvals", tag = "approvals",
    params(("id" = String, Path), ApprovalsQuery), responses((status = 200, body = List<Approval>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<ApprovalsQuery>,
) -> Answer<Json<List<Approval>>> {
    let items = shown(&api, caller, session_id(&id)?, |kept| query.all || kept.settled.is_none()).await?;
    Ok(Json(List { items, next: None }))
}

/// Allow or deny a tool call
#[utoipa::path(post, path = "/sessions/{id}/approvals/{aid}", tag = "approvals",
    params(("id" = String, Path), ("aid" = String, Path)), request_body = ApprovalAnswer,
    responses((status = 200, body = Approval)))]
pub(super) async fn answer(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, aid)): At<(String, String)>,
    Given(answer): Given<ApprovalAnswer>,
) -> Answer<Json<Approval>> {
    let (id, aid) = (session_id(&id)?, approval_id(&aid)?);
    api.engine.answer_approval(caller, id, aid, answer.allowed()?, answer.note.as_deref()).await?;
    let found = shown(&api, caller, id, |kept| kept.asked.approval_id == aid).await?;
    Ok(Json(found.into_iter().next().ok_or_else(|| nothing_there("approval"))?))
}

/// The approvals as the API shows them. The session does not keep the input of a call, so the log is read once, from the first run that has one.
async fn shown(
    api: &Api,
    caller: Caller,
    id: SessionId,
    wanted: impl Fn(&Kept) -> bool,
) -> Answer<Vec<Approval>> {
    let session = api.engine.look(caller, id).await?;
    let found: Vec<&Kept> = session.control.approvals.iter().filter(|kept| wanted(kept)).collect();
    let first =
        found.iter().filter_map(|kept| session.run(kept.asked.turn_id)).map(|run| run.first_seq).min();
    let mut inputs: HashMap<CallId, Value> = HashMap::new();
    if let Some(first) = first {
        for record in api.engine.records(caller, id, first, None).await? {
            if let Body::Tool(ToolBody::Started(tool)) = record.body {
                inputs.insert(tool.call_id, tool.input);
            }
        }
    }
    let shape = |kept: &Kept| {
        let asked = &kept.asked;
        let settled = kept.settled.as_ref();
        Approval {
            id: asked.approval_id,
            session_id: id,
            run_id: asked.turn_id,
            call_id: asked.call_id,
            tool: asked.tool.clone(),
            subject: asked.subject.clone(),
            pattern: asked.pattern.clone(),
            input: inputs.remove(&asked.call_id).unwrap_or_default(),
            diff: asked.diff.clone(),
            state: settled.map_or("pending", |(settled, _)| settled.outcome.as_str()).to_owned(),
            created_at: kept.created_at.as_millis(),
            expires_at: kept.clock.expires_at().map(|time| time.as_millis()),
            settled_at: settled.map(|(_, time)| time.as_millis()),
            scope: settled
                .filter(|(settled, _)| settled.outcome == ApprovalOutcome::Allow)
                .map(|(settled, _)| settled.scope),
            by: settled.and_then(|(settled, _)| settled.by),
            note: settled.and_then(|(settled, _)| settled.note.clone()),
        }
    };
    Ok(found.into_iter().map(shape).collect())
}
