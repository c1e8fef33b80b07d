//! `session_exec`: a command that runs for as long as its caller waits, with progress where that was asked for.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ctx_host::{ExecRequest, ExecResult, Progress, ShellHost};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::failure::Failure;
use super::server::McpServer;

/// How often a caller that asked for progress hears of it.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

impl McpServer {
    /// Runs a command; tells of its progress where asked to, and stops it when the request is cancelled.
    pub(super) async fn exec(
        &self,
        id: &str,
        request: ExecRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ExecResult, Failure> {
        let Some(token) = context.meta.get_progress_token() else {
            return tokio::select! {
                result = self.host.exec(id, request, None) => Ok(result?),
                () = context.ct.cancelled() => Err(Failure::Cancelled),
            };
        };
        let (sender, seen) = watch::channel(Progress::default());
        let teller =
            Teller { peer: context.peer, token, started: Instant::now(), seen, host: &self.host, id };
        let command = self.host.exec(id, request, Some(sender));
        tokio::select! {
            result = command => Ok(result?),
            never = teller.tell_on() => match never {},
            () = context.ct.cancelled() => Err(Failure::Cancelled),
        }
    }
}

/// Sends progress notifications for one command.
struct Teller<'a> {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    started: Instant,
    seen: watch::Receiver<Progress>,
    host: &'a ShellHost,
    /// The shell.
    id: &'a str,
}

impl Teller<'_> {
    /// Tells again and again; while a notification is stuck there is no other.
    async fn tell_on(&self) -> Infallible {
        let mut ticks = tokio::time::interval_at((self.started + PROGRESS_EVERY).into(), PROGRESS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell().await;
        }
    }

    /// Sends one notification. For a command that has not begun it names the one that it waits for, which the caller may interrupt.
    async fn tell(&self) {
        let Progress { stdout_bytes, stderr_bytes, has_begun } = *self.seen.borrow();
        let secs = self.started.elapsed().as_secs();
        let message = match self.host.running(self.id).filter(|_| !has_begun) {
            _ if has_begun => format!("{secs} s, {stdout_bytes} bytes of stdout, {stderr_bytes} of stderr"),
            Some(running) => {
                format!("{secs} s, waiting for command {} (`{}`)", running.call, running.command)
            }
            None => format!("{secs} s, waiting for its turn"),
        };
        let note = ProgressNotificationParam::new(self.token.clone(), secs as f64).with_message(message);
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}
