//! The daemon's shells: one shell host and one MCP server for each user who has asked for one.
//!
//! A shell belongs to the user it runs as; for others it is not there. How a host is made, and where the logs of
//! shells are, is the program's business and comes in as a [`ShellSource`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_host::{ShellError, ShellHost, ShellSummary};
use ctx_session::{Code, Refusal, Ulid};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::mcp::{McpHttp, McpServer, ServerName};

/// Makes hosts, and reads what shells left behind. May read files.
pub trait ShellSource: Send + Sync + 'static {
    /// A host whose shells run as this user, or why there cannot be one.
    fn host(&self, uid: u32) -> Result<ShellHost, Refusal>;

    /// Who the log of a shell belongs to; None: there is no such log.
    fn owner(&self, log: Ulid) -> Option<u32>;

    /// A log from a seq on, about `bytes` of it.
    fn piece(&self, log: Ulid, from: u64, bytes: usize) -> Result<LogPiece, Refusal>;
}

/// Some records of a shell's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// One JSON object a line.
    pub text: String,
    /// The seq to go on with; None: this was the end.
    pub next: Option<u64>,
}

/// Every user's shells. Cloning it is cheap.
#[derive(Clone)]
pub struct Shells {
    inner: Arc<Inner>,
}

struct Inner {
    source: Arc<dyn ShellSource>,
    name: ServerName,
    body_bytes_max: usize,
    stop: CancellationToken,
    users: Mutex<HashMap<u32, User>>,
}

/// What one user has.
#[derive(Clone)]
struct User {
    host: ShellHost,
    mcp: McpHttp,
}

/// A live shell, and how to reach it.
pub struct Found {
    pub host: ShellHost,
    pub owner: u32,
    pub summary: ShellSummary,
}

impl Shells {
    /// `stop`: MCP sessions end.
    pub fn new(
        source: Arc<dyn ShellSource>,
        name: ServerName,
        body_bytes_max: usize,
        stop: CancellationToken,
    ) -> Shells {
        Shells { inner: Arc::new(Inner { source, name, body_bytes_max, stop, users: Mutex::default() }) }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, User>> {
        self.inner.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a user has; made when it is first asked for.
    async fn user(&self, uid: u32) -> Result<User, Refusal> {
        if let Some(user) = self.users().get(&uid) {
            return Ok(user.clone());
        }
        if self.inner.stop.is_cancelled() {
            return Err(Refusal::new(Code::Ehostdown, "the daemon is shutting down"));
        }
        let source = Arc::clone(&self.inner.source);
        let made = tokio::task::spawn_blocking(move || source.host(uid)).await;
        let host =
            made.map_err(|error| Refusal::new(Code::Eio, format!("making shells broke: {error}")))??;
        let server = McpServer::new(host.clone(), self.inner.name.clone());
        let mcp = McpHttp::new(server, self.inner.body_bytes_max, self.inner.stop.child_token());
        // Whoever was first is kept: a host without shells costs nothing.
        Ok(self.users().entry(uid).or_insert(User { host, mcp }).clone())
    }

    /// The host of a user.
    pub async fn host(&self, uid: u32) -> Result<ShellHost, Refusal> {
        Ok(self.user(uid).await?.host)
    }

    /// The MCP server of a user.
    pub async fn mcp(&self, uid: u32) -> Result<McpHttp, Refusal> {
        Ok(self.user(uid).await?.mcp)
    }

    /// The live shells of those users that pass, oldest first.
    pub fn list(&self, keep: impl Fn(u32) -> bool) -> Vec<Found> {
        let hosts: Vec<(u32, ShellHost)> = {
            let users = self.users();
            users.iter().filter(|(uid, _)| keep(**uid)).map(|(uid, user)| (*uid, user.host.clone())).collect()
        };
        let of_host = |(owner, host): (u32, ShellHost)| {
            let summaries = host.list();
            summaries.into_iter().map(move |summary| Found { host: host.clone(), owner, summary })
        };
        let mut found: Vec<Found> = hosts.into_iter().flat_map(of_host).collect();
        found.sort_by_key(|found| found.summary.log);
        found
    }

    /// A live shell by its log.
    pub fn find(&self, log: Ulid, keep: impl Fn(u32) -> bool) -> Option<Found> {
        self.list(keep).into_iter().find(|found| found.summary.log == log)
    }

    pub(crate) fn source(&self) -> Arc<dyn ShellSource> {
        Arc::clone(&self.inner.source)
    }

    /// Ends every shell, and makes no more.
    pub async fn shut_down(&self) {
        let hosts: Vec<ShellHost> = self.users().values().map(|user| user.host.clone()).collect();
        join_all(hosts.iter().map(ShellHost::shutdown)).await;
    }
}

/// What a shell refuses, in the words of every door.
pub(crate) fn refusal(error: &ShellError) -> Refusal {
    let refusal = Refusal::new(error.code(), error.to_string());
    match error {
        ShellError::Invalid { field, .. } => refusal.blaming(*field),
        _ => refusal,
    }
}
