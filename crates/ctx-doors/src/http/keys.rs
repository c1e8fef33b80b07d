//! Tokens of the caller, codes that are traded for one, and tickets for WebSockets.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{Code, List, Login, NewCode, NewToken, Ticket, Token, TokenMade};
use ctx_engine::Caller;
use ctx_session::{Refusal, Ulid};

use super::Api;
use super::access::Key;
use super::error::{Answer, ApiError, nothing_there};
use super::extract::{At, Given, Nothing, Who};
use super::gate::WithToken;
use super::idempotency::{Keyed, Secret};
use super::json::Json;

/// Whether this caller may see what belongs to everyone.
fn sees_all(api: &Api, caller: Caller) -> bool {
    api.engine.may_see(caller, caller.uid.wrapping_add(1))
}

/// The caller's tokens, without their secrets
#[utoipa::path(get, path = "/tokens", tag = "access", responses((status = 200, body = List<Token>)))]
pub(super) async fn list(State(api): State<Api>, Who(caller): Who) -> Json<List<Token>> {
    let items = api.access.tokens_of(caller, sees_all(&api, caller));
    Json(List { items, next: None })
}

/// Make a token; its secret is in this answer and nowhere else
#[utoipa::path(post, path = "/tokens", tag = "access", request_body = NewToken,
    responses((status = 201, body = TokenMade)))]
pub(super) async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    Keyed(key): Keyed,
    Given(new): Given<NewToken>,
) -> Answer<(StatusCode, Extension<Secret>, Json<TokenMade>)> {
    let stands_for = match new.uid {
        None => caller,
        Some(uid) if uid == caller.uid => caller,
        Some(uid) if sees_all(&api, caller) => {
            let catalog = api.catalog.clone();
            let found = tokio::task::spawn_blocking(move || catalog.group_of(uid)).await;
            // One that is no user of this machine has a group of its own number, as files in containers do.
            Caller { uid, gid: found.ok().flatten().unwrap_or(uid) }
        }
        Some(_) => {
            let message = "only the daemon's owner can create tokens for other users";
            return Err(Refusal::new(ctx_session::Code::Eacces, message).into());
        }
    };
    let named = (api.engine.new_id(), key);
    let made = api.access.make_token(stands_for, new.label, new.expires_at, named).await?;
    Ok((StatusCode::CREATED, Extension(Secret), Json(made)))
}

/// Revoke a token
#[utoipa::path(delete, path = "/tokens/{tid}", tag = "access", params(("tid" = String, Path)),
    responses((status = 204)))]
pub(super) async fn revoke(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<StatusCode> {
    let id: Ulid = id.parse().map_err(|_| nothing_there("token"))?;
    match api.access.revoke(caller, sees_all(&api, caller), id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(nothing_there("token")),
    }
}

/// Make a single-use code, good for 60 s, that can be traded for a token
#[utoipa::path(post, path = "/codes", tag = "access", request_body = NewCode,
    responses((status = 201, body = Code)))]
pub(super) async fn code(
    State(api): State<Api>,
    Who(caller): Who,
    Extension(WithToken(token)): Extension<WithToken>,
    Given(NewCode {}): Given<NewCode>,
) -> Answer<(StatusCode, Extension<Secret>, Json<Code>)> {
    let made = api.access.make_code(caller, token.map(|id| Key { caller, id }))?;
    Ok((StatusCode::CREATED, Extension(Secret), Json(made)))
}

/// Trade a code for a token; needs no token
#[utoipa::path(post, path = "/login", tag = "access", request_body = Login,
    responses((status = 201, body = TokenMade)))]
pub(super) async fn login(
    State(api): State<Api>,
    given: Result<Given<Login>, ApiError>,
) -> Answer<(StatusCode, Json<TokenMade>)> {
    // What was wrong with it is not repeated: it may be a code.
    let wrong = |ApiError(refusal)| match refusal.code {
        ctx_session::Code::Emsgsize => refusal,
        _ => Refusal::invalid("code", "send {\"code\": \"…\"} to log in"),
    };
    let Given(login) = given.map_err(wrong)?;
    let made = api.access.login(&login.code, api.engine.new_id()).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Make a single-use ticket, good for 60 s, that opens one WebSocket as `?ticket=`
#[utoipa::path(post, path = "/tickets", tag = "access", responses((status = 201, body = Ticket)))]
pub(super) async fn ticket(
    State(api): State<Api>,
    Who(caller): Who,
    Extension(WithToken(token)): Extension<WithToken>,
    Given(Nothing {}): Given<Nothing>,
) -> Answer<(StatusCode, Extension<Secret>, Json<Ticket>)> {
    let ticket = api.access.make_ticket(caller, token.map(|id| Key { caller, id }))?;
    Ok((StatusCode::CREATED, Extension(Secret), Json(ticket)))
}
