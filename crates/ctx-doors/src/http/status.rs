//! How the daemon is.

use axum::Json;
use axum::extract::{ConnectInfo, State};
use ctx_api::http::Status;

use super::{Api, ApiError, Peer};

pub(super) async fn status(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
) -> Result<Json<Status>, ApiError> {
    let caller = peer.caller()?;
    let mine = api.engine.list(caller, |_| true);
    let running = mine.iter().filter(|s| s.state == ctx_session::StateName::Running).count();
    Ok(Json(Status {
        version: api.about.version.clone(),
        pid: std::process::id(),
        root: api.about.root.clone(),
        started_at: api.about.started_at.as_millis(),
        uptime_ms: u64::try_from(api.about.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        sessions: mine.len(),
        loaded: api.engine.loaded_count(),
        running: u32::try_from(running).unwrap_or(u32::MAX),
        limits: api.engine.limits().clone(),
    }))
}

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}
