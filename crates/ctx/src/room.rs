//! A message that waits for room among the concurrent runs: whoever waits for its answer starts it when a run has ended.

use std::time::{Duration, Instant};

use ctx_api::http::Posted;
use ctx_session::Code;
use hyper::Method;

use crate::client::{Api, LiveSocket};
use crate::failure::Failure;
use crate::root::Root;
use crate::sessions;

/// How often it is tried all the same: the room may be taken by runs that this user is not told of, such as those of the owner
/// of a session in a space, and the connection may be lost.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Says how many runs there are, while a message waits for one to end.
pub struct Room {
    root: Root,
    counts: Option<LiveSocket>,
    /// When it was tried last.
    tried: Instant,
}

impl Room {
    pub async fn watch(root: &Root) -> Room {
        Room { root: root.clone(), counts: LiveSocket::system(root).await.ok(), tried: Instant::now() }
    }

    /// Returns when it is time to try: when the daemon says how many runs there are (it says so at the beginning, too), or after
    /// a while.
    pub async fn counted(&mut self) {
        let next = (self.tried + TRY_AGAIN).into();
        tokio::select! {
            () = self.told() => {}
            () = tokio::time::sleep_until(next) => {
                if self.counts.is_none() {
                    self.counts = LiveSocket::system(&self.root).await.ok();
                }
            }
        }
        self.tried = Instant::now();
    }

    async fn told(&mut self) {
        while let Some(socket) = &mut self.counts {
            match socket.next().await {
                Some(frame) if frame.kind == "sessions.running_count" => return,
                Some(frame) if frame.kind == "ping" => socket.control("pong", frame.payload).await,
                Some(_) => {}
                None => self.counts = None,
            }
        }
        std::future::pending().await
    }
}

/// The same where nothing may be waiting.
pub async fn counted(room: &mut Option<Room>) {
    match room {
        Some(room) => room.counted().await,
        None => std::future::pending().await,
    }
}

/// Asks for a slot for the message that waits in a session. False: there is no room yet, or another client was faster;
/// either way frames will come.
pub async fn start(root: &Root, session: &str) -> Result<bool, Failure> {
    let path = format!("/sessions/{session}/resume");
    match Api::new(root).ask::<Posted>(Method::POST, &path, None).await {
        Ok(_) => Ok(true),
        Err(Failure::Said { code: Code::Ebusy, .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The place among the user's own queued messages, by time. None: it could not be found out.
pub async fn place(root: &Root, session: &str) -> Option<usize> {
    let root = root.clone();
    let asked = tokio::task::spawn_blocking(move || sessions::in_state(&Api::new(&root), "queued"));
    let mut queued = asked.await.ok()?.ok()?;
    queued.sort_by_key(|session| session.updated_at);
    queued.iter().position(|one| one.id.to_string() == session).map(|at| at + 1)
}
