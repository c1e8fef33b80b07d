//! The WebSockets' way in: what is refused is refused before the upgrade.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use axum::response::Response;
use ctx_session::Refusal;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Who, session_id};
use super::gate::WithToken;
use crate::ws::{self, Mode, Visitor};

/// Longest frame a client may send.
const FRAME_BYTES_MAX: usize = 1024 * 1024;
const DEVICE_HINT_CHARS_MAX: usize = 120;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct SocketQuery {
    /// `observe` to look on without being the one who is attached.
    mode: Option<String>,
    /// Close the connection that is attached elsewhere.
    takeover: bool,
    /// A ticket of `POST /tickets`, from a browser.
    #[serde(rename = "ticket")]
    _ticket: Option<String>,
}

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

fn upgrade(upgrade: Upgrade) -> Answer<WebSocketUpgrade> {
    let upgrade = upgrade.map_err(|_| Refusal::invalid("Upgrade", "this route needs a WebSocket"))?;
    Ok(upgrade.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX))
}

/// The session's WebSocket: see docs/guides/http.md for its frames
#[utoipa::path(get, path = "/sessions/{id}/socket", tag = "sockets",
    params(("id" = String, Path), SocketQuery), responses((status = 101)))]
pub(super) async fn session(
    State(api): State<Api>,
    Who(caller): Who,
    Extension(WithToken(token)): Extension<WithToken>,
    At(id): At<String>,
    Asked(query): Asked<SocketQuery>,
    headers: HeaderMap,
    asked: Upgrade,
) -> Answer<Response> {
    let id = session_id(&id)?;
    api.engine.find(caller, id)?;
    let upgrade = upgrade(asked)?;
    let mode = match query.mode.as_deref() {
        None | Some("interactive") => Mode::Interactive { takeover: query.takeover },
        Some("observe") => Mode::Observe,
        Some(_) => return Err(Refusal::invalid("mode", "a mode must be interactive or observe").into()),
    };
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let device_hint = agent.map(|agent| agent.chars().take(DEVICE_HINT_CHARS_MAX).collect());
    let visitor = Visitor { caller, token, device_hint };
    let guest = ws::session::enter(&api, id, visitor, mode).await?;
    Ok(upgrade.on_upgrade(move |socket| guest.serve(socket)))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct SystemQuery {
    /// A ticket of `POST /tickets`, from a browser.
    #[serde(rename = "ticket")]
    _ticket: Option<String>,
}

/// The system's WebSocket: running counts, and sessions that come, change and end
#[utoipa::path(get, path = "/system/socket", tag = "sockets", params(SystemQuery), responses((status = 101)))]
pub(super) async fn system(
    State(api): State<Api>,
    Who(caller): Who,
    Extension(WithToken(token)): Extension<WithToken>,
    Asked(_): Asked<SystemQuery>,
    asked: Upgrade,
) -> Answer<Response> {
    let upgrade = upgrade(asked)?;
    let visitor = Visitor { caller, token, device_hint: None };
    Ok(upgrade.on_upgrade(move |socket| ws::system::serve(api, visitor, socket)))
}
