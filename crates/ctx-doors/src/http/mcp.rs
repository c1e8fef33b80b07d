//! The shells' MCP server over HTTP. It has the gate and the refusals of every other route; the protocol is the SDK's.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::response::Response;
use ctx_session::{Code, Refusal, Ulid};
use futures_util::StreamExt;

use super::Api;
use super::access::Access;
use super::error::{self, Answer};
use super::extract::{Who, whole_body};
use super::gate::WithToken;

/// How often a stream that stays open asks whether its token is still good.
const STILL_GOOD_EVERY: Duration = Duration::from_secs(1);
/// More than any refusal of the SDK has.
const WORDS_BYTES_MAX: usize = 64 * 1024;

/// The shells' MCP server (streamable HTTP): one JSON-RPC message
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 202)))]
pub(super) async fn post(state: State<Api>, who: Who, token: Token, request: Request) -> Answer<Response> {
    mcp(state, who, token, request).await
}

/// The shells' MCP server: what it has to say besides answers, as a stream of events
#[utoipa::path(get, path = "/mcp", tag = "mcp",
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn get(state: State<Api>, who: Who, token: Token, request: Request) -> Answer<Response> {
    mcp(state, who, token, request).await
}

/// The shells' MCP server: end an MCP session; its shells live on
#[utoipa::path(delete, path = "/mcp", tag = "mcp", responses((status = 204)))]
pub(super) async fn delete(state: State<Api>, who: Who, token: Token, request: Request) -> Answer<Response> {
    mcp(state, who, token, request).await
}

type Token = Extension<WithToken>;

async fn mcp(
    State(api): State<Api>,
    Who(caller): Who,
    Extension(WithToken(token)): Token,
    request: Request,
) -> Answer<Response> {
    let server = api.shells.mcp(caller.uid).await?;
    // Read here, so that one that dawdles is not waited for longer than at any other route.
    let (parts, body) = request.into_parts();
    let body = whole_body(body, Duration::from_millis(api.engine.limits().request_ms)).await?;
    let answer = server.handle(parts, body).await?;
    if answer.status().is_client_error() || answer.status().is_server_error() {
        return in_our_shape(answer).await;
    }
    let is_stream = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    match token {
        Some(token) if is_stream => {
            let (parts, body) = answer.into_parts();
            let frames = body.into_data_stream().take_until(revoked(api.access.clone(), token));
            Ok(Response::from_parts(parts, Body::from_stream(frames)))
        }
        Some(_) | None => Ok(answer),
    }
}

/// What the SDK refuses in plain words, as every other route does; an error of JSON-RPC is the protocol's own shape.
async fn in_our_shape(answer: Response) -> Answer<Response> {
    if answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json") {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let read = axum::body::to_bytes(body, WORDS_BYTES_MAX).await;
    let words = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let refusal = match parts.status {
        StatusCode::NOT_FOUND => Refusal::new(Code::Enoent, words),
        StatusCode::PAYLOAD_TOO_LARGE => Refusal::new(Code::Emsgsize, words),
        StatusCode::NOT_ACCEPTABLE => Refusal::invalid("Accept", words),
        // Of two kinds: the header is wrong, or the body is no message.
        StatusCode::UNSUPPORTED_MEDIA_TYPE if words.starts_with("Unsupported") => {
            Refusal::invalid("Content-Type", words)
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => return Err(Refusal::invalid("body", words).into()),
        status if status.is_server_error() => Refusal::new(Code::Eio, words),
        _ => Refusal::invalid("request", words),
    };
    let mut answer = error::answer(parts.status, refusal);
    if let Some(methods) = parts.headers.get(ALLOW) {
        answer.headers_mut().insert(ALLOW, methods.clone());
    }
    Ok(answer)
}

/// Returns when a token is no longer good.
async fn revoked(access: Access, token: Ulid) {
    while access.is_good(token) {
        tokio::time::sleep(STILL_GOOD_EVERY).await;
    }
}
