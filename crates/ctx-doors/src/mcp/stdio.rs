//! `ctx mcp`: the server on stdin and stdout, for as long as its host wants it.

use std::sync::Arc;
use std::time::Duration;

use ctx_host::shell::{HostConfig, ShellError, ShellHost, ShellLog};
use rmcp::ServiceExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::lines::LineTransport;
use super::server::{McpServer, ServerName};
use super::streams::stdio;

/// Why the server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error("the MCP host did not get as far as initialize: {message}")]
    Initialize { message: String },
    #[error("stdin, stdout or signals cannot be waited for: {0}")]
    Signal(#[from] std::io::Error),
}

/// What commands that still run get when stdin has ended, for the answers of a host that only wrote.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until stdin closes or a signal asks to stop; then every shell is ended.
pub async fn serve_stdio(
    config: HostConfig,
    name: ServerName,
    log: Arc<dyn ShellLog>,
) -> Result<(), McpError> {
    let host = ShellHost::new(config, log)?;
    let served = serve(McpServer::new(host.clone(), name)).await;
    host.shutdown().await;
    served
}

async fn serve(server: McpServer) -> Result<(), McpError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = CancellationToken::new();
    let (input, output) = stdio(ended.clone())?;
    let line_max = server.request_bytes_max();
    let serving = async {
        let transport = LineTransport::new(input, output, line_max);
        let running = server
            .serve(transport)
            .await
            .map_err(|error| McpError::Initialize { message: error.to_string() })?;
        match running.waiting().await {
            Ok(reason) => tracing::debug!(?reason, "the MCP host is gone"),
            Err(error) => tracing::warn!(%error, "the MCP server's task failed"),
        }
        Ok(())
    };
    tokio::select! {
        served = serving => served,
        () = host_is_gone(ended) => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

/// Ready a moment after the end of stdin. The SDK's own wait for answers is longer than hosts are patient.
async fn host_is_gone(ended: CancellationToken) {
    ended.cancelled().await;
    tokio::time::sleep(LAST_ANSWERS).await;
}
