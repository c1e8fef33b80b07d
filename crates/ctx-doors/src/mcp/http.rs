//! The MCP server of one user as streamable HTTP: what stands behind `/mcp`.
//!
//! Who asks, from where and how often is the gate's business. Each user has a server of their own, so that the id of
//! an MCP session is worth nothing to anyone else.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use ctx_session::{Code, Refusal};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::server::McpServer;

/// MCP sessions of one user at a time. One that is quiet for five minutes ends by itself.
const SESSIONS_MAX: usize = 256;
/// How often a quiet stream is shown to be alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const SESSION: &str = "mcp-session-id";

/// One user's server.
#[derive(Clone)]
pub struct McpHttp {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
}

impl McpHttp {
    /// `stop`: every session ends, and its streams with it.
    pub fn new(server: McpServer, body_bytes_max: usize, stop: CancellationToken) -> McpHttp {
        let sessions = Arc::new(LocalSessionManager::default());
        // The gate has looked at Host and Origin, with the names that the operator gave us.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(body_bytes_max)
            .with_cancellation_token(stop);
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
        McpHttp { service, sessions }
    }

    pub async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        let begins = !request.headers().contains_key(SESSION);
        if begins && self.sessions.sessions.read().await.len() >= SESSIONS_MAX {
            let message = format!("{SESSIONS_MAX} MCP sessions are open; end one, or wait until one ends");
            return Err(Refusal::new(Code::Ebusy, message));
        }
        Ok(self.service.handle(request).await.map(Body::new))
    }
}
