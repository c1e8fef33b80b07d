//! `session_exec`: a command that runs for as long as its caller waits, with progress where that was asked for.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ctx_host::shell::{ExecRequest, ExecResult, Progress};
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
        let teller = Teller { peer: context.peer, token, started: Instant::now(), seen };
        let command = self.host.exec(id, request, Some(sender));
        let result = tokio::select! {
            result = command => result,
            never = teller.tell_on() => match never {},
            () = context.ct.cancelled() => return Err(Failure::Cancelled),
        };
        // A host that does not read is not waited for; what was handed over still comes before the answer.
        drop(tokio::time::timeout(PROGRESS_EVERY, teller.tell()).await);
        Ok(result?)
    }
}

/// Sends progress notifications for one command.
struct Teller {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    started: Instant,
    seen: watch::Receiver<Progress>,
}

impl Teller {
    /// Tells again and again; while a notification is stuck there is no other.
    async fn tell_on(&self) -> Infallible {
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell().await;
        }
    }

    async fn tell(&self) {
        let Progress { stdout_bytes, stderr_bytes } = *self.seen.borrow();
        let elapsed = self.started.elapsed().as_secs_f64();
        let message = format!("{elapsed:.1} s, {stdout_bytes} bytes of stdout, {stderr_bytes} of stderr");
        let note = ProgressNotificationParam::new(self.token.clone(), elapsed).with_message(message);
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}
