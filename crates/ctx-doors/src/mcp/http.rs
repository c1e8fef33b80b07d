//! The MCP server of one user as streamable HTTP: what stands behind `/mcp`.
//!
//! Who asks, from where and how often is the gate's business. Each user has a server of their own, so that the id of
//! an MCP session is worth nothing to anyone else. One that nobody has used for as long as a shell may be idle is ended
//! here; the SDK's own clock, which also runs during a call, is off.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use ctx_session::{Code, Refusal};
use futures_util::StreamExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::server::McpServer;
use super::uses::{Hold, SessionId, Uses};

/// MCP sessions of one user at a time.
const SESSIONS_MAX: usize = 256;
/// How often a quiet stream is shown to be alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often quiet sessions are looked for, at most and at least.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(30);

pub(super) const SESSION: &str = "mcp-session-id";

/// One user's server.
#[derive(Clone)]
pub struct McpHttp {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    uses: Uses,
}

impl McpHttp {
    /// `stop`: every session ends, and its streams with it. Needs a runtime: it looks for quiet sessions.
    pub fn new(server: McpServer, body_bytes_max: usize, stop: CancellationToken) -> McpHttp {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = None;
        let sessions = Arc::new(sessions);
        let uses = server.uses().clone();
        tokio::spawn(end_quiet(Arc::downgrade(&sessions), uses.clone(), server.idle_max(), stop.clone()));
        // The gate has looked at Host and Origin, with the names that the operator gave us.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(body_bytes_max)
            .with_cancellation_token(stop);
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
        McpHttp { service, sessions, uses }
    }

    pub async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        let named = request.headers().get(SESSION).cloned();
        let hold = match &named {
            Some(named) => Some(self.hold(named.to_str().unwrap_or_default()).await?),
            None if self.sessions.sessions.read().await.len() >= SESSIONS_MAX => {
                let message =
                    format!("{SESSIONS_MAX} MCP sessions are open; end one, or wait until one ends");
                return Err(Refusal::new(Code::Ebusy, message));
            }
            None => None,
        };
        let answer = self.service.handle(request).await.map(Body::new);
        // What the SDK says when the session has ended meanwhile.
        if named.is_some() && answer.status() == StatusCode::INTERNAL_SERVER_ERROR {
            return Err(no_such_session());
        }
        // Whoever still reads the answer uses the session.
        Ok(answer.map(|body| {
            Body::from_stream(body.into_data_stream().map(move |piece| {
                let _in_use = &hold;
                piece
            }))
        }))
    }

    /// A session that is there, and stays as long as it is held.
    async fn hold(&self, session: &str) -> Result<Hold, Refusal> {
        // Under the lock that ends need, so that none comes between.
        let sessions = self.sessions.sessions.read().await;
        let (id, _) = sessions.get_key_value(session).ok_or_else(no_such_session)?;
        Ok(self.uses.hold(SessionId::clone(id)))
    }
}

fn no_such_session() -> Refusal {
    Refusal::new(Code::Enoent, "no such MCP session, or it has ended; start a new one with `initialize`")
}

/// Ends the sessions that nobody has used for so long, until the server is gone.
async fn end_quiet(sessions: Weak<LocalSessionManager>, uses: Uses, long: Duration, stop: CancellationToken) {
    let every = (long / 4).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let Some(sessions) = sessions.upgrade() else { return };
        let ended: Vec<_> = {
            let mut there = sessions.sessions.write().await;
            let ids: Vec<SessionId> = there.keys().cloned().collect();
            uses.quiet_for(&ids, long, Instant::now()).iter().filter_map(|id| there.remove(id)).collect()
        };
        for session in ended {
            // One that has ended by itself is as good.
            if let Err(error) = session.close().await {
                tracing::debug!(%error, "a quiet MCP session was over already");
            }
        }
    }
}
