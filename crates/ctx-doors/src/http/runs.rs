//! Runs: what each was asked, said and did, and cancelling one.

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{List, Run, SubagentInvocation, ToolCall, WentOn};
use ctx_api::model;
use ctx_engine::Caller;
use ctx_session::conversation::Role;
use ctx_session::record::{Body, MessageBody, Record, RunKind, ToolBody};
use ctx_session::subagent::Invocation;
use ctx_session::{CallId, Refusal, RunId, RunState, Session, SessionId, Ulid};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Nothing, Who, run_id, session_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::messages;
use super::{Api, calls};

/// Runs on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
/// A page ends with the runs whose texts come to this, however many were asked for.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Runs whose records are read at once.
const AT_ONCE: usize = 8;
/// Who makes a tool call that no subagent makes.
const PRIMARY: &str = "primary";

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// Runs on a page: 100, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The runs of a session with their messages and tool calls, oldest first
///
/// A page may have fewer than were asked for; `next` tells whether there are more.
#[utoipa::path(get, path = "/sessions/{id}/runs", tag = "runs", params(("id" = String, Path), RunsQuery),
    responses((status = 200, body = List<Run>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<RunsQuery>,
) -> Answer<Json<List<Run>>> {
    let id = session_id(&id)?;
    let session = api.engine.look(caller, id).await?;
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let bad = || Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let skip = match &query.cursor {
        None => 0,
        Some(cursor) => {
            let after: RunId = cursor.parse().map_err(|_| bad())?;
            session.runs().position(|run| run.id == after).ok_or_else(bad)? + 1
        }
    };
    let asked: Vec<_> = session.runs().skip(skip).take(limit).collect();
    let left = session.runs().skip(skip).count();
    let mut items: Vec<Run> = Vec::new();
    let mut bytes = 0;
    for some in asked.chunks(AT_ONCE) {
        let shown = filled(&api, caller, &session, some).await?;
        bytes += shown.iter().map(weight).sum::<usize>();
        items.extend(shown);
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    let next = items.last().filter(|_| items.len() < left).map(|run| run.id.to_string());
    Ok(Json(List { items, next }))
}

/// A run with its messages and tool calls
#[utoipa::path(get, path = "/sessions/{id}/runs/{rid}", tag = "runs",
    params(("id" = String, Path), ("rid" = String, Path)), responses((status = 200, body = Run)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, run)): At<(String, String)>,
) -> Answer<Json<Run>> {
    whole(&api, caller, session_id(&id)?, run_id(&run)?).await
}

/// Cancel a run and wait for its end; of one that is over, its final state
#[utoipa::path(post, path = "/sessions/{id}/runs/{rid}/cancel", tag = "runs",
    params(("id" = String, Path), ("rid" = String, Path)), responses((status = 200, body = Run)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, run)): At<(String, String)>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<Json<Run>> {
    let (id, run) = (session_id(&id)?, run_id(&run)?);
    api.engine.cancel(caller, id, run).await?;
    whole(&api, caller, id, run).await
}

async fn whole(api: &Api, caller: Caller, id: SessionId, run: RunId) -> Answer<Json<Run>> {
    let session = api.engine.look(caller, id).await?;
    let found = session.run(run).ok_or_else(|| nothing_there("run"))?;
    let shown = filled(api, caller, &session, &[found]).await?;
    Ok(Json(shown.into_iter().next().ok_or_else(|| nothing_there("run"))?))
}

/// Runs that follow each other, with what their records say of them.
async fn filled(
    api: &Api,
    caller: Caller,
    session: &Session,
    runs: &[&ctx_session::session::Run],
) -> Answer<Vec<Run>> {
    let Some(from) = runs.iter().map(|run| run.first_seq).min() else { return Ok(Vec::new()) };
    // To the log's end while one of them is open.
    let to = runs
        .iter()
        .map(|run| run.end_seq)
        .collect::<Option<Vec<u64>>>()
        .and_then(|ends| ends.into_iter().max());
    let records = api.engine.records(caller, session.id(), from, to).await?;
    let mut shown: Vec<Run> = runs.iter().map(|run| shape(session, run)).collect();
    for (run, known) in shown.iter_mut().zip(runs) {
        records.iter().for_each(|record| add(run, record));
        if let Some(begun_by) = begun_by(session, known) {
            let (id, seq) = (session.id(), begun_by.first_seq);
            let first = api.engine.records(caller, id, seq, Some(seq)).await?;
            run.operator_message = first
                .iter()
                .find(|record| matches!(record.body, Body::Message(MessageBody::User(_))))
                .and_then(messages::shape);
        }
        let started = |call: &&mut ToolCall| call.status.is_none() && call.state != calls::PENDING;
        for call in run.tool_calls.iter_mut().filter(started) {
            call.state = calls::open(session, CallId(call.id)).to_owned();
        }
        // What does not count any more may have been told so long after the run.
        for message in run.operator_message.iter_mut().chain(&mut run.primary_response) {
            message.superseded = !session.ledger.counts(message.id);
            message.pinned = session.ledger.pinned().any(|id| id == message.id);
        }
    }
    Ok(shown)
}

/// About how much of a page it is.
fn weight(run: &Run) -> usize {
    let said = run.operator_message.iter().chain(&run.primary_response).map(|message| message.content.len());
    let texts = run.tool_calls.iter().flat_map(|call| call.output.iter().chain(&call.diff));
    let done = texts.map(String::len);
    said.chain(done).sum()
}

/// The run whose message one that goes on with its work was triggered by.
fn begun_by<'a>(
    session: &'a Session,
    run: &ctx_session::session::Run,
) -> Option<&'a ctx_session::session::Run> {
    let message = run.message_id.filter(|_| run.kind == RunKind::Continuation)?;
    session.runs().rev().find(|other| other.kind == RunKind::Message && other.message_id == Some(message))
}

/// Adds what a record says of the run.
fn add(run: &mut Run, record: &Record) {
    match &record.body {
        // One that was held is made now.
        Body::Tool(ToolBody::Started(tool)) if open_call(run, tool.call_id.0).is_some() => {
            if let Some(call) = open_call(run, tool.call_id.0) {
                (call.state, call.created_at) = (calls::RUNNING.to_owned(), record.time.as_millis());
            }
        }
        Body::Tool(ToolBody::Pending(tool)) if tool.turn_id == run.id => {
            let call = new_call(tool.call_id.0, &tool.name, &tool.input, calls::PENDING, record);
            run.tool_calls.push(call);
        }
        Body::Tool(ToolBody::Started(tool)) if tool.turn_id == run.id => {
            let call = new_call(tool.call_id.0, &tool.name, &tool.input, calls::RUNNING, record);
            run.tool_calls.push(call);
        }
        Body::Tool(ToolBody::Finished(tool)) if tool.turn_id == run.id => {
            if let Some(call) = open_call(run, tool.call_id.0) {
                call.state = calls::FINISHED.to_owned();
                call.status = Some(tool.status);
                call.output = Some(tool.output.clone());
                call.diff = tool.diff.clone();
                call.summary = tool.summary.clone();
                call.completed_at = Some(record.time.as_millis());
                call.duration_ms = Some(tool.duration_ms);
            }
        }
        Body::Message(MessageBody::User(_) | MessageBody::AssistantFinished(_)) => {
            let Some(message) = messages::shape(record).filter(|message| message.run_id == run.id) else {
                return;
            };
            match message.role {
                Role::User => run.operator_message = Some(message),
                Role::Assistant => run.primary_response = Some(message),
                Role::Subagent | Role::System | Role::Tool => {}
            }
        }
        _ => {}
    }
}

fn new_call(id: Ulid, name: &str, input: &Value, state: &str, record: &Record) -> ToolCall {
    ToolCall {
        id,
        caller: record.body.caller().map_or(PRIMARY, |caller| caller.name.as_str()).to_owned(),
        name: name.to_owned(),
        input: input.clone(),
        state: state.to_owned(),
        status: None,
        output: None,
        diff: None,
        summary: None,
        created_at: record.time.as_millis(),
        completed_at: None,
        duration_ms: None,
    }
}

fn open_call(run: &mut Run, id: Ulid) -> Option<&mut ToolCall> {
    run.tool_calls.iter_mut().find(|call| call.id == id)
}

fn invocation(session: SessionId, one: &Invocation) -> SubagentInvocation {
    let exited = one.exited.as_ref();
    SubagentInvocation {
        id: one.id(),
        run_id: one.run(),
        session_id: session,
        subagent_name: one.name().to_owned(),
        model: model::in_api(&one.spawned.model).to_owned(),
        cage_id: one.cage_id.clone(),
        memory_bytes: one.spawned.memory_bytes,
        walltime_ms: one.spawned.walltime_ms,
        state: one.state,
        spawned_at: one.spawned_at.as_millis(),
        exited_at: exited.map(|(_, time)| time.as_millis()),
        exit_code: exited.and_then(|(exited, _)| exited.exit_code),
        cause: exited.map(|(exited, _)| exited.cause.as_str().to_owned()),
        message: exited.and_then(|(exited, _)| exited.message.clone()),
    }
}

/// A run without its messages and calls, which `add` fills in from the log. The time before its start is no part of its duration.
fn shape(session: &Session, run: &ctx_session::session::Run) -> Run {
    let session_id = session.id();
    let error = match &run.state {
        RunState::Failed(failure) => Some(failure.clone()),
        RunState::Pending | RunState::Running | RunState::Done | RunState::Cancelled => None,
    };
    let started = run.started_at.unwrap_or(run.created_at);
    Run {
        id: run.id,
        session_id,
        kind: run.kind,
        finish_reason: run.finish_reason,
        continues: run.continues,
        state: run.state.as_str().to_owned(),
        created_at: run.created_at.as_millis(),
        completed_at: run.completed_at.map(|time| time.as_millis()),
        duration_ms: run.completed_at.map(|time| time.millis_since(started)),
        tokens_in: run.usage.input,
        tokens_out: run.usage.output,
        tokens_cached: run.usage.cached,
        cost_usd: run.usage.cost().dollars(),
        error,
        operator_message: None,
        primary_response: None,
        subagent_invocations: session
            .subagents
            .of_run(run.id)
            .map(|one| invocation(session_id, one))
            .collect(),
        tool_calls: Vec::new(),
    }
}

/// Begin a new run from the log after one that failed or was cancelled, without a new message
#[utoipa::path(post, path = "/sessions/{id}/retry", tag = "runs", params(("id" = String, Path)),
    responses((status = 202, body = WentOn)))]
pub(super) async fn retry(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Keyed(key): Keyed,
) -> Answer<(StatusCode, Json<WentOn>)> {
    let run = api.engine.retry(caller, session_id(&id)?, key).await?;
    Ok((StatusCode::ACCEPTED, Json(WentOn { run_id: Some(run), state: "running".to_owned() })))
}
