//! Shells over HTTP; their MCP server has the same. Each belongs to the user it runs as.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ctx_api::http::{KeepLinesMode, List, NewShell, OutputBudget, Shell, ShellCommand, ShellResult};
use ctx_engine::Caller;
use ctx_host::{CreateRequest, DestinationArgs, ExecRequest, ExecResult};
use ctx_session::{Code, Refusal, Ulid};
use ctx_text::budget::{Budget, Grep, Keep, KeepMode};
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::{Answer, nothing_there};
use super::extract::{Asked, At, Given, Who};
use super::json::Json;
use crate::shells::{Found, LogPiece, refusal};

/// Shells on one page unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;
/// How much of a log is read and sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Seconds as people write them; what is no time at all becomes one that is refused.
fn seconds(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(if secs > 0.0 { Duration::MAX } else { Duration::ZERO })
}

fn budget(asked: OutputBudget) -> Budget {
    let keep = asked.keep.map(|keep| Keep {
        mode: match keep.mode {
            KeepLinesMode::Tail => KeepMode::Tail,
            KeepLinesMode::Head => KeepMode::Head,
            KeepLinesMode::HeadTail => KeepMode::HeadTail,
        },
        n: keep.n,
    });
    let grep = asked.grep.map(|grep| Grep { pattern: grep.pattern, context: grep.context });
    Budget { keep, grep, max_chars: asked.max_chars }
}

fn shown(found: &Found) -> Shell {
    let summary = &found.summary;
    Shell {
        id: summary.log,
        session_id: summary.session_id.clone(),
        owner: found.owner,
        transport: summary.transport.to_owned(),
        cwd: summary.cwd.clone(),
        idle_secs: summary.idle_secs,
        commands: summary.commands,
        created_at: summary.log.timestamp().as_millis(),
    }
}

fn result(result: ExecResult) -> Answer<ShellResult> {
    let broken = |error: serde_json::Error| Refusal::new(Code::Eio, error.to_string());
    let budget = result.budget.map(serde_json::to_value).transpose().map_err(broken)?;
    Ok(ShellResult {
        call: result.call,
        command: result.command,
        stdout: result.stdout,
        stderr: result.stderr,
        exit_code: result.exit_code,
        duration_ms: result.duration_ms,
        cwd: result.cwd,
        truncated: result.truncated,
        timed_out: result.timed_out,
        shell_restarted: result.shell_restarted,
        late_output: result.late_output,
        budget,
        hint: result.hint,
    })
}

fn shell_id(text: &str) -> Answer<Ulid> {
    text.parse().map_err(|_| nothing_there("shell"))
}

/// A live shell that this caller may use: their own alone, whoever they are.
fn own(api: &Api, caller: Caller, id: &str) -> Answer<Found> {
    let id = shell_id(id)?;
    api.shells.find(id, |owner| owner == caller.uid).ok_or_else(|| nothing_there("shell"))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ShellsQuery {
    /// Shells on a page: 50, at most 1000.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The live shells that the caller may see, oldest first
#[utoipa::path(get, path = "/shells", tag = "shells", params(ShellsQuery),
    responses((status = 200, body = List<Shell>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(query): Asked<ShellsQuery>,
) -> Answer<Json<List<Shell>>> {
    let bad = |_| Refusal::invalid("cursor", "a cursor is the `next` of the page before");
    let after = query.cursor.as_deref().map(|cursor| cursor.parse::<Ulid>().map_err(bad)).transpose()?;
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let mut found = api.shells.list(|owner| api.engine.may_see(caller, owner));
    found.retain(|found| after.is_none_or(|after| found.summary.log > after));
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| last.summary.log.to_string());
    Ok(Json(List { items: found.iter().map(shown).collect(), next }))
}

/// Start a shell that runs as the caller
#[utoipa::path(post, path = "/shells", tag = "shells", request_body = NewShell,
    responses((status = 201, body = Shell)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    Given(new): Given<NewShell>,
) -> Answer<(StatusCode, Json<Shell>)> {
    let host = api.shells.host(caller.uid).await?;
    let to = DestinationArgs {
        transport: new.transport,
        host: new.host,
        user: new.user,
        port: new.port,
        key_path: new.key_path,
        password: new.password,
        fingerprint: new.fingerprint,
        container: new.container,
    };
    let request = CreateRequest {
        to: to.try_into().map_err(|error| refusal(&error))?,
        cwd: new.cwd,
        env: new.env.into_iter().collect(),
        allow: new.allow,
        deny: new.deny,
        output_budget: new.output_budget.map(budget),
        timeout: new.timeout_secs.map(seconds),
        ..CreateRequest::default()
    };
    let id = host.create(request).await.map_err(|error| refusal(&error))?;
    let summary = host.list().into_iter().find(|summary| summary.session_id == id);
    let summary =
        summary.ok_or_else(|| Refusal::new(Code::Ehostdown, "the shell ended right after its start"))?;
    Ok((StatusCode::CREATED, Json(shown(&Found { host, owner: caller.uid, summary }))))
}

/// Run a command in a shell, in its turn. Who hangs up stops the command
#[utoipa::path(post, path = "/shells/{sid}/exec", tag = "shells", params(("sid" = String, Path)),
    request_body = ShellCommand, responses((status = 200, body = ShellResult)))]
pub(super) async fn exec(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(asked): Given<ShellCommand>,
) -> Answer<Json<ShellResult>> {
    let found = own(&api, caller, &id)?;
    let request = ExecRequest {
        command: asked.command,
        budget: asked.budget.map(budget),
        timeout: asked.timeout_secs.map(seconds),
        stdin: asked.stdin.map(String::into_bytes),
        merge: asked.merge,
    };
    let done = found.host.exec(&found.summary.session_id, request, None).await;
    Ok(Json(result(done.map_err(|error| refusal(&error))?)?))
}

/// End a shell and every process it started
#[utoipa::path(delete, path = "/shells/{sid}", tag = "shells", params(("sid" = String, Path)),
    responses((status = 204)))]
pub(super) async fn destroy(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<StatusCode> {
    let id = shell_id(&id)?;
    // The daemon's owner may end what others have started, and no more than that.
    let found = api.shells.find(id, |owner| api.engine.may_see(caller, owner));
    let found = found.ok_or_else(|| nothing_there("shell"))?;
    found.host.destroy(&found.summary.session_id).await.map_err(|error| refusal(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ShellRecordsQuery {
    /// The seq to begin with.
    from: u64,
}

/// A shell's records from a seq on, one JSON object a line; also of one that has ended
#[utoipa::path(get, path = "/shells/{sid}/records", tag = "shells",
    params(("sid" = String, Path), ShellRecordsQuery),
    responses((status = 200, body = String, content_type = "application/jsonl")))]
pub(super) async fn records(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<ShellRecordsQuery>,
) -> Answer<Response> {
    let id = shell_id(&id)?;
    let source = api.shells.source();
    let owner = blocking(move || Ok(source.owner(id))).await?;
    owner.filter(|owner| api.engine.may_see(caller, *owner)).ok_or_else(|| nothing_there("shell"))?;
    // The first piece is read before the answer begins, so that what cannot be read is refused.
    let first = piece(&api, id, query.from).await?;
    let pieces = stream::unfold(Some(Ok(first)), move |state| {
        let api = api.clone();
        async move {
            let piece: Result<LogPiece, Refusal> = state?;
            match piece {
                Err(refusal) => Some((Err(std::io::Error::other(refusal.message)), None)),
                Ok(LogPiece { text, next }) => {
                    let next = match next {
                        Some(from) => Some(self::piece(&api, id, from).await),
                        None => None,
                    };
                    Some((Ok(Bytes::from(text)), next))
                }
            }
        }
    });
    Ok(([(CONTENT_TYPE, "application/jsonl")], Body::from_stream(pieces)).into_response())
}

async fn piece(api: &Api, id: Ulid, from: u64) -> Result<LogPiece, Refusal> {
    let source = api.shells.source();
    blocking(move || source.piece(id, from, PIECE_BYTES)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::new(Code::Eio, format!("reading a log broke: {error}"))))
}
