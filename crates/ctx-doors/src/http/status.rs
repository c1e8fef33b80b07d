//! How the daemon is.

use axum::extract::State;
use ctx_api::http::Status;

use super::Api;
use super::error::Answer;
use super::extract::Who;
use super::json::Json;

/// How the daemon is, with every limit
#[utoipa::path(get, path = "/status", tag = "daemon", responses((status = 200, body = Status)))]
pub(super) async fn status(State(api): State<Api>, Who(caller): Who) -> Answer<Json<Status>> {
    let mine = api.engine.list(caller, |_| true);
    let running = mine.iter().filter(|s| s.state == ctx_session::StateName::Running).count();
    Ok(Json(Status {
        version: api.about.version.clone(),
        pid: std::process::id(),
        root: api.about.root.clone(),
        address: api.about.address.clone(),
        started_at: api.about.started_at.as_millis(),
        uptime_ms: u64::try_from(api.about.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        sessions: mine.len(),
        loaded: api.engine.loaded_for(caller),
        running: u32::try_from(running).unwrap_or(u32::MAX),
        cage: api.about.is_uncaged.then(|| "off".to_owned()),
        limits: api.engine.limits().clone(),
    }))
}

/// Whether it lives; needs no token
#[utoipa::path(get, path = "/healthz", tag = "daemon",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}
