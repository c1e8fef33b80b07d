//! The terminals of a session over HTTP. Whoever sees the session sees them; its owner opens and closes them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ctx_api::http::{List, NewSessionTerminal, Terminal};
use ctx_engine::Caller;
use ctx_engine::port::OperatorsTerminal;
use ctx_session::{Code, Refusal, SessionId, TerminalId};

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Given, Who, session_id};
use super::json::Json;
use super::terminals::{TerminalsQuery, TranscriptQuery, ask, shown_terminal, size_of, transcript_of};

/// Whose a session is that the caller sees.
fn owner_of(api: &Api, caller: Caller, id: SessionId) -> Result<u32, Refusal> {
    api.engine.find(caller, id).map(|summary| summary.meta.owner)
}

/// A terminal of this session, by its id or its name.
async fn find(
    api: &Api,
    caller: Caller,
    owner: u32,
    session: SessionId,
    pid: String,
) -> Answer<ctx_terminal::Terminal> {
    let missing = Refusal::new(Code::Enoent, format!("this session has no terminal `{pid}`"));
    let found = ask(api, caller, move |terminals| terminals.find(owner, &pid)).await?;
    if found.about.session == Some(session) { Ok(found) } else { Err(missing.into()) }
}

/// The terminals of a session, oldest first
#[utoipa::path(get, path = "/sessions/{id}/terminals", tag = "terminals",
    params(("id" = String, Path), TerminalsQuery), responses((status = 200, body = List<Terminal>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<TerminalsQuery>,
) -> Answer<Json<List<Terminal>>> {
    let id = session_id(&id)?;
    let owner = owner_of(&api, caller, id)?;
    let found = ask(&api, caller, move |terminals| terminals.of_session(owner, id)).await?;
    let wanted = found.iter().filter(|one| query.all || one.state != ctx_terminal::State::Closed);
    Ok(Json(List { items: wanted.map(shown_terminal).collect(), next: None }))
}

/// Open a terminal in a session
#[utoipa::path(post, path = "/sessions/{id}/terminals", tag = "terminals", params(("id" = String, Path)),
    request_body = NewSessionTerminal, responses((status = 201, body = Terminal)))]
pub(super) async fn open(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(new): Given<NewSessionTerminal>,
) -> Answer<(StatusCode, Json<Terminal>)> {
    let id = session_id(&id)?;
    let owner = owner_of(&api, caller, id)?;
    let size = size_of(new.cols, new.rows)?;
    let wanted = ctx_terminal::NewTerminal {
        name: new.name.clone(),
        command: new.command.clone(),
        cwd: None,
        env: None,
        size,
        created_at: api.engine.now(),
        of: None,
    };
    // Before anything is written.
    ask(&api, caller, move |terminals| terminals.check(owner, &wanted)).await?;
    let new = OperatorsTerminal {
        name: new.name,
        command: new.command,
        cols: size.cols,
        rows: size.rows,
        caged: new.cage.unwrap_or(true),
    };
    let opened = api.engine.open_terminal(caller, id, new).await?;
    let found = ask(&api, caller, move |terminals| terminals.find(owner, &opened.to_string())).await?;
    Ok((StatusCode::CREATED, Json(shown_terminal(&found))))
}

/// End the program of a session's terminal. Its transcript stays
#[utoipa::path(delete, path = "/sessions/{id}/terminals/{pid}", tag = "terminals",
    params(("id" = String, Path), ("pid" = String, Path)), responses((status = 204)))]
pub(super) async fn close(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, pid)): At<(String, String)>,
) -> Answer<StatusCode> {
    let id = session_id(&id)?;
    let found = find(&api, caller, owner_of(&api, caller, id)?, id, pid).await?;
    api.engine.close_terminal(caller, id, TerminalId(found.about.id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a terminal of a session has shown
#[utoipa::path(get, path = "/sessions/{id}/terminals/{pid}/transcript", tag = "terminals",
    params(("id" = String, Path), ("pid" = String, Path), TranscriptQuery),
    responses((status = 200, content((String = "text/plain"), (String = "application/jsonl"),
        (String = "application/octet-stream"), (String = "application/x-asciicast")))))]
pub(super) async fn transcript(
    State(api): State<Api>,
    Who(caller): Who,
    At((id, pid)): At<(String, String)>,
    Asked(query): Asked<TranscriptQuery>,
) -> Answer<Response> {
    let id = session_id(&id)?;
    let owner = owner_of(&api, caller, id)?;
    let found = find(&api, caller, owner, id, pid).await?;
    transcript_of(&api, caller, owner, found.about.id.to_string(), query).await
}
