//! HTTP under `/api/v1`. Served on `.state/api.sock`, where the peer's uid is the identity.

mod error;
mod sessions;
mod status;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::connect_info::Connected;
use axum::routing::{delete, get, post};
use axum::serve::IncomingStream;
use ctx_engine::{Caller, Engine};
use ctx_session::{Code, Refusal, Timestamp};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

pub use error::ApiError;

/// Longest body of a request.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What every handler needs.
#[derive(Clone)]
pub struct Api {
    pub engine: Engine,
    pub about: Arc<About>,
}

/// What the daemon says of itself.
#[derive(Debug)]
pub struct About {
    pub version: String,
    pub root: String,
    pub started_at: Timestamp,
    pub started: Instant,
}

/// The peer of a Unix socket; None when the kernel does not know it.
#[derive(Debug, Clone, Copy)]
pub struct Peer(Option<Caller>);

impl Peer {
    /// Nobody comes in unknown.
    fn caller(self) -> Result<Caller, ApiError> {
        let unknown = || Refusal::new(Code::Ekeyrejected, "the peer of this socket is not known");
        self.0.ok_or_else(|| ApiError(unknown()))
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer(crate::unix::caller(stream.io()).ok())
    }
}

/// Every route there is.
pub fn router(api: Api) -> Router {
    let v1 = Router::new()
        .route("/status", get(status::status))
        .route("/healthz", get(status::healthz))
        .route("/projects/{project}/sessions", get(sessions::list))
        .route("/sessions/{id}", get(sessions::read).put(sessions::change).delete(sessions::end))
        .route("/sessions/{id}/resume", post(sessions::resume))
        .route("/sessions/{id}/queued-message", delete(sessions::discard))
        .route("/sessions/{id}/runs", get(sessions::runs))
        .route("/sessions/{id}/runs/{run}/cancel", post(sessions::cancel))
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
        .with_state(api);
    Router::new().nest("/api/v1", v1).fallback(error::no_route).layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Serves the API until `stop`.
pub async fn serve_unix(listener: UnixListener, api: Api, stop: CancellationToken) -> std::io::Result<()> {
    let service = router(api).into_make_service_with_connect_info::<Peer>();
    axum::serve(listener, service).with_graceful_shutdown(async move { stop.cancelled().await }).await
}
