//! `ctx mcp`: the server on stdin and stdout, for as long as its host wants it.

use std::sync::Arc;
use std::time::Duration;

use ctx_host::{HostConfig, ShellError, ShellHost, ShellLog};
use rmcp::ServiceExt;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::lines::LineTransport;
use super::outbox::Outbox;
use super::server::{McpServer, ServerName};
use super::streams::{stdio, stdout_is_closed};

/// Why the server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error("the MCP host did not initialize: {message}")]
    Initialize { message: String },
    #[error("stdin, stdout or signals cannot be waited for: {0}")]
    Signal(#[from] std::io::Error),
}

/// What commands that still run get when stdin has ended, for the answers of a host that only wrote.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until stdin closes, stdout cannot be written any more or a signal asks to stop; then every shell is ended. `waits` is called when it is ready.
pub async fn serve_stdio(
    config: HostConfig,
    name: ServerName,
    log: Arc<dyn ShellLog>,
    waits: impl FnOnce(),
) -> Result<(), McpError> {
    let host = ShellHost::tried(config, log).await?;
    let served = serve(McpServer::new(host.clone(), name), waits).await;
    host.shutdown().await;
    served
}

/// Serves until one of the ends. Signals are caught before `waits` is called: one that comes right after must still end the shells.
async fn serve(server: McpServer, waits: impl FnOnce()) -> Result<(), McpError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = CancellationToken::new();
    let (input, output) = stdio(ended.clone())?;
    let (limits, outbox) = (server.line_limits(), server.outbox().clone());
    waits();
    let serving = async {
        let transport = LineTransport::new(input, output, outbox.clone(), limits);
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
        () = host_is_gone(ended, &outbox) => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

/// Ready a moment after the end of stdin or stdout, unless the host still reads what waits for it. The SDK's own wait
/// for answers is longer than hosts are patient.
async fn host_is_gone(ended: CancellationToken, outbox: &Outbox) {
    tokio::select! {
        () = ended.cancelled() => {}
        () = hung_up(outbox) => {}
        () = stdout_is_closed() => {}
    }
    while !is_stuck(outbox).await && !outbox.is_empty() {}
}

/// Ready when the host has closed stdin and reads nothing. Its end is not read then, for the outbox is full.
async fn hung_up(outbox: &Outbox) {
    loop {
        outbox.is_full().await;
        if is_stuck(outbox).await && stdin_is_closed() {
            return;
        }
    }
}

/// Whether nothing was written for a while.
async fn is_stuck(outbox: &Outbox) -> bool {
    let before = outbox.written();
    tokio::time::sleep(LAST_ANSWERS).await;
    outbox.written() == before
}

/// Whether nobody writes to stdin any more; what was written may still be unread.
fn stdin_is_closed() -> bool {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let seen = rustix::event::poll(&mut polled, Some(&at_once));
    seen.is_ok_and(|count| count > 0)
        && polled.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::RDHUP))
}
