//! Checkpoints: pausing a session, looking at where it stands, editing its prompts, going on and going back.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{
    Checkpoint, List, NewCheckpoint, PendingToolCall, PromptContent, PromptEdit, PromptSnapshot, Resume,
    Rollback, SubagentSnapshot, WentOn,
};
use ctx_engine::Caller;
use ctx_session::control::{Checkpoint as Kept, Edit};
use ctx_session::record::{self, Body, CheckpointBody, PromptRef, Record, ToolBody};
use ctx_session::{CheckpointId, Refusal, RunId, RunState, Session, SessionId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::calls::{self, PENDING, RUNNING};
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Who, checkpoint_id, session_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::{Api, compactions, files};

/// Checkpoints on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct CheckpointsQuery {
    /// Those that are older than the active list, instead of it.
    archived: bool,
    /// Checkpoints on a page: 100, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The checkpoints of a session, oldest first, without tool calls and texts
#[utoipa::path(get, path = "/sessions/{id}/checkpoints", tag = "checkpoints",
    params(("id" = String, Path), CheckpointsQuery), responses((status = 200, body = List<Checkpoint>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<CheckpointsQuery>,
) -> Answer<Json<List<Checkpoint>>> {
    let session = api.engine.look(caller, session_id(&id)?).await?;
    let all = &session.control.checkpoints;
    let (archived, active) = all.split_at(archived_count(&api, &session));
    let listed = if query.archived { archived } else { active };
    let bad = || Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let skip = match &query.cursor {
        None => 0,
        Some(cursor) => {
            let after: CheckpointId = cursor.parse().map_err(|_| bad())?;
            // By its place, so that a page stays where it is when its last item was archived meanwhile.
            listed.iter().take_while(|one| one.id() <= after).count()
        }
    };
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let page = listed.iter().skip(skip).take(limit);
    let items: Vec<Checkpoint> = page.map(|one| shape(&session, one, query.archived)).collect();
    let more = listed.len() > skip + items.len();
    let next = items.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Json(List { items, next }))
}

/// How many of the oldest checkpoints are archived.
fn archived_count(api: &Api, session: &Session) -> usize {
    let active = api.engine.limits().checkpoints_per_session;
    session.control.checkpoints.len().saturating_sub(active)
}

/// Pause the run that goes on
#[utoipa::path(post, path = "/sessions/{id}/checkpoints", tag = "checkpoints", params(("id" = String, Path)),
    request_body = NewCheckpoint, responses((status = 201, body = Checkpoint)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Keyed(key): Keyed,
    Given(new): Given<NewCheckpoint>,
) -> Answer<(StatusCode, Json<Checkpoint>)> {
    let id = session_id(&id)?;
    if new.files {
        api.engine.find(caller, id)?;
        files::check(&api, id).await?;
    }
    let made = api.engine.checkpoint(caller, id, new.reason, key).await?;
    Ok((StatusCode::CREATED, Json(whole(&api, caller, id, made).await?)))
}

/// A checkpoint with its tool calls, the texts of its prompts and the compaction that it was made for
#[utoipa::path(get, path = "/sessions/{id}/checkpoints/{cid}", tag = "checkpoints",
    params(("id" = String, Path), ("cid" = String, Path)), responses((status = 200, body = Checkpoint)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
) -> Answer<Json<Checkpoint>> {
    let id = session_id(&id)?;
    Ok(Json(whole(&api, caller, id, checkpoint_id(&cid)?).await?))
}

/// Edit a prompt at the checkpoint that the session is paused at
#[utoipa::path(put, path = "/sessions/{id}/checkpoints/{cid}/prompts/{target}", tag = "checkpoints",
    params(("id" = String, Path), ("cid" = String, Path), ("target" = String, Path)),
    request_body = PromptContent, responses((status = 200, body = Checkpoint)))]
pub(super) async fn edit(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid, target)): At<(String, String, String)>,
    Given(new): Given<PromptContent>,
) -> Answer<Json<Checkpoint>> {
    let (id, cid) = (session_id(&id)?, checkpoint_id(&cid)?);
    api.engine.edit_prompt(caller, id, cid, &target, &new.content).await?;
    Ok(Json(whole(&api, caller, id, cid).await?))
}

/// Go on from the checkpoint that the session is paused at; of one that a compaction waits at, approve it. With
/// `resolve` the bound issue is resolved
#[utoipa::path(post, path = "/sessions/{id}/checkpoints/{cid}/resume", tag = "checkpoints",
    params(("id" = String, Path), ("cid" = String, Path)), request_body = Resume,
    responses((status = 200, body = WentOn)))]
pub(super) async fn resume(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
    Given(how): Given<Resume>,
) -> Answer<Json<WentOn>> {
    let (id, cid) = (session_id(&id)?, checkpoint_id(&cid)?);
    let run = match (how.resolve, how.message) {
        (true, None) => api.engine.resume_and_resolve(caller, id, cid).await?,
        (false, message) => api.engine.resume_with(caller, id, cid, message).await?,
        (true, Some(_)) => {
            return Err(Refusal::invalid("message", "a message is an answer; it resolves no issue").into());
        }
    };
    Ok(Json(went_on(run)))
}

/// Go back to a checkpoint: what came after it does not count any more; of one that a compaction waits at, reject it. With
/// `files`, what the session's runs have changed since goes back too
#[utoipa::path(post, path = "/sessions/{id}/checkpoints/{cid}/rollback", tag = "checkpoints",
    params(("id" = String, Path), ("cid" = String, Path)), request_body = Rollback,
    responses((status = 200, body = Checkpoint)))]
pub(super) async fn rollback(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, cid)): At<(String, String)>,
    Given(how): Given<Rollback>,
) -> Answer<Json<Checkpoint>> {
    let (id, cid) = (session_id(&id)?, checkpoint_id(&cid)?);
    let back = match how.files {
        true => files::rollback(&api, caller, id, cid).await?,
        false => {
            api.engine.rollback(caller, id, cid, None).await?;
            None
        }
    };
    Ok(Json(Checkpoint { files: back, ..whole(&api, caller, id, cid).await? }))
}

/// In the session's words: it runs, or nothing was left to do.
pub(super) fn went_on(run: Option<(RunId, RunState)>) -> WentOn {
    let state = match &run {
        Some((_, RunState::Running | RunState::Pending)) => "running",
        Some((_, RunState::Done | RunState::Failed(_) | RunState::Cancelled)) | None => "idle",
    };
    WentOn { run_id: run.map(|(run, _)| run), state: state.to_owned() }
}

/// A checkpoint as a list shows it.
fn shape(session: &Session, kept: &Kept, archived: bool) -> Checkpoint {
    let created = &kept.created;
    let compaction = created.compaction_id.and_then(|id| session.control.compaction(id));
    Checkpoint {
        id: kept.id(),
        session_id: session.id(),
        run_id: created.turn_id,
        created_at: kept.created_at.as_millis(),
        created_by: created.created_by.as_str().to_owned(),
        reason: created.reason.clone(),
        compaction_id: created.compaction_id,
        message_history_cursor: created.cursor,
        active_subagents: created.active_subagents.iter().map(subagent).collect(),
        pending_tool_calls: None,
        prompts_in_effect: created.prompts.iter().map(snapshot).collect(),
        prompt_edits: kept.edits.iter().map(edited).collect(),
        resumed_at: kept.resumed_at.map(|time| time.as_millis()),
        rolled_back: kept.rolled_back,
        superseded_by: kept.superseded_by,
        archived,
        compaction: compaction.map(|found| compactions::shape(session.id(), found)),
        files: None,
    }
}

fn snapshot(prompt: &PromptRef) -> PromptSnapshot {
    let (target, content_hash) = (prompt.target.clone(), prompt.hash.clone());
    PromptSnapshot { target, content_hash, editable: true, content: None }
}

fn subagent(kept: &record::SubagentSnapshot) -> SubagentSnapshot {
    SubagentSnapshot {
        id: kept.invocation_id,
        name: kept.name.clone(),
        state: kept.state,
        cage_id: kept.cage_id.clone(),
        last_output: kept.last_output.clone(),
        pty_id: kept.pty_id.clone(),
    }
}

fn edited(edit: &Edit) -> PromptEdit {
    let made = &edit.edited;
    PromptEdit {
        target: made.target.clone(),
        old_hash: made.old_hash.clone(),
        new_hash: made.new_hash.clone(),
        by: made.by,
        at: edit.at.as_millis(),
        content: None,
    }
}

/// A checkpoint with all that is known of it.
async fn whole(api: &Api, caller: Caller, id: SessionId, cid: CheckpointId) -> Answer<Checkpoint> {
    let session = api.engine.look(caller, id).await?;
    let at = session.control.checkpoints.iter().position(|one| one.id() == cid);
    let (at, kept) = at
        .and_then(|at| Some((at, session.control.checkpoints.get(at)?)))
        .ok_or_else(|| nothing_there("checkpoint"))?;
    let mut shown = shape(&session, kept, at < archived_count(api, &session));
    let run = session.run(kept.created.turn_id);
    if let Some(run) = run {
        let records = api.engine.records(caller, id, run.first_seq, run.end_seq).await?;
        let mut calls = in_flight(&records, run.id, kept);
        for call in calls.iter_mut().filter(|call| call.state == RUNNING) {
            call.state = calls::open(&session, call.id).to_owned();
        }
        shown.pending_tool_calls = Some(calls);
    }
    let newest: BTreeMap<&str, &str> =
        kept.edits.iter().map(|edit| (edit.edited.target.as_str(), edit.edited.new_hash.as_str())).collect();
    let hashes: BTreeSet<String> = kept
        .created
        .prompts
        .iter()
        .map(|prompt| prompt.hash.as_str())
        .chain(newest.values().copied())
        .map(str::to_owned)
        .collect();
    let texts = api.engine.prompt_texts(caller, id, hashes).await?;
    for prompt in &mut shown.prompts_in_effect {
        prompt.content = texts.get(&prompt.content_hash).cloned();
    }
    for edit in &mut shown.prompt_edits {
        if newest.get(edit.target.as_str()) == Some(&edit.new_hash.as_str()) {
            edit.content = texts.get(&edit.new_hash).cloned();
        }
    }
    Ok(shown)
}

/// The calls of a run that had no result when it was paused, those that waited behind the one that paused it, and those
/// that it made while it was.
fn in_flight(records: &[Record], run: RunId, kept: &Kept) -> Vec<PendingToolCall> {
    let mut calls: Vec<PendingToolCall> = Vec::new();
    let mut paused = true;
    for record in records {
        let after = record.seq > kept.seq;
        match &record.body {
            Body::Tool(ToolBody::Started(tool)) if tool.turn_id == run => {
                let known = calls.iter_mut().find(|call| call.id == tool.call_id);
                match known {
                    Some(call) => call.state = RUNNING.to_owned(),
                    None if !after => calls.push(PendingToolCall {
                        id: tool.call_id,
                        name: tool.name.clone(),
                        input: tool.input.clone(),
                        state: RUNNING.to_owned(),
                    }),
                    None => {}
                }
            }
            Body::Tool(ToolBody::Pending(tool)) if tool.turn_id == run && paused => {
                calls.push(PendingToolCall {
                    id: tool.call_id,
                    name: tool.name.clone(),
                    input: tool.input.clone(),
                    state: PENDING.to_owned(),
                });
            }
            Body::Tool(ToolBody::Finished(tool)) if !after => calls.retain(|call| call.id != tool.call_id),
            Body::Tool(ToolBody::Finished(tool)) => {
                if let Some(call) = calls.iter_mut().find(|call| call.id == tool.call_id) {
                    call.state = calls::ended(tool.status).to_owned();
                }
            }
            Body::Checkpoint(CheckpointBody::Resumed(resumed)) if resumed.checkpoint_id == kept.id() => {
                paused = false
            }
            _ => {}
        }
    }
    calls
}
