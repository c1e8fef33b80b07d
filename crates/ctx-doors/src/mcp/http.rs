//! The MCP server of one user as streamable HTTP: what stands behind `/mcp`.
//!
//! Who asks, from where and how often is the gate's business. Each user has a server of their own, so that the id of
//! an MCP session is worth nothing to anyone else. One that nobody has used for as long as a shell may be idle is ended
//! here; the SDK's own clock, which also runs during a call, is off.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use ctx_session::{Code, Refusal};
use futures_util::StreamExt;
use rmcp::model::ErrorCode;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
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
const VERSION: &str = "mcp-protocol-version";
/// Longer than any `initialize`.
const HELLO_BYTES_MAX: usize = 64 * 1024;
/// The protocol with an event that has no data, at the beginning of a stream.
const PRIMING_SINCE: &str = "2025-11-25";
/// The protocol without `initialize`.
const NEWEST: &str = "2026-07-28";

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

    /// Answers a request. The session is held from before the SDK sees it until the answer is read, so that no long call counts as quiet.
    pub async fn handle(&self, parts: Parts, body: Bytes) -> Result<Response, Refusal> {
        let speaks = Speaks::of(&parts.headers, &body);
        if speaks.begins && speaks.header.as_deref().is_some_and(|version| version >= NEWEST) {
            return Ok(no_initialize(&speaks));
        }
        let is_delete = parts.method == Method::DELETE;
        let request = Request::from_parts(parts, Body::from(body));
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
        let mut answer = self.service.handle(request).await.map(Body::new);
        if is_delete && answer.status() == StatusCode::ACCEPTED {
            // It is done, not only accepted; some hosts take the other for a failure.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        // What the SDK says when the session has ended meanwhile.
        if named.is_some() && answer.status() == StatusCode::INTERNAL_SERVER_ERROR {
            return Err(no_such_session());
        }
        // Whoever still reads the answer uses the session.
        Ok(answer.map(|body| {
            let is_read = move |piece: &Result<Bytes, _>| {
                let _in_use = &hold;
                speaks.knows_priming || !piece.as_ref().is_ok_and(|piece| is_priming(piece))
            };
            Body::from_stream(body.into_data_stream().filter(move |piece| std::future::ready(is_read(piece))))
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

/// What a request says of the protocol it is written in.
struct Speaks {
    /// Its id, where it is an `initialize`.
    id: Value,
    /// Whether it is an `initialize`.
    begins: bool,
    /// The protocol that a header names.
    header: Option<String>,
    /// Whether its sender takes an event without data for what it is: that came with 2025-11-25, and to others it is a
    /// message that is not JSON.
    knows_priming: bool,
}

impl Speaks {
    fn of(headers: &HeaderMap, body: &[u8]) -> Speaks {
        #[derive(serde::Deserialize)]
        struct Message {
            #[serde(default)]
            id: Value,
            #[serde(default)]
            method: String,
            #[serde(default)]
            params: Value,
        }
        let header = headers.get(VERSION).and_then(|version| version.to_str().ok()).map(str::to_owned);
        // Only that one names a version in its body, and it is short.
        let message =
            (body.len() <= HELLO_BYTES_MAX).then(|| serde_json::from_slice::<Message>(body).ok()).flatten();
        let message = message.filter(|message| message.method == "initialize");
        let asked = message.as_ref().and_then(|message| message.params.get("protocolVersion")?.as_str());
        let knows_priming = asked.or(header.as_deref()).is_some_and(|version| version >= PRIMING_SINCE);
        Speaks {
            begins: message.is_some(),
            knows_priming,
            header,
            id: message.map_or(Value::Null, |message| message.id),
        }
    }
}

/// The newest protocol has no `initialize`.
fn no_initialize(speaks: &Speaks) -> Response {
    let message =
        "no method `initialize` in this protocol: ask with `server/discover`, or name an older protocol";
    let error = json!({ "code": ErrorCode::METHOD_NOT_FOUND.0, "message": message });
    let answer = json!({ "jsonrpc": "2.0", "id": speaks.id, "error": error });
    let mut response = Response::new(Body::from(answer.to_string()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether a piece of a stream is the event that only says where to begin again.
fn is_priming(piece: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(piece) else { return false };
    let is_empty = |line: &str| line.is_empty() || line.starts_with("id:") || line.starts_with("retry:");
    !text.trim().is_empty() && text.lines().all(|line| is_empty(line) || line.trim_end() == "data:")
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
