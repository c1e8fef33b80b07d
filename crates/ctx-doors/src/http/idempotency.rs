//! `Idempotency-Key`: a write that creates something is done once, however often it is sent.
//!
//! The answer is kept for a while by user, route and key. A second request that comes while the first is being
//! done waits for its answer; the first is finished also when its client has gone. Refusals are not kept: they
//! changed nothing, so asking again is harmless. What is kept is lost with the daemon; messages and sessions hold their
//! key in a record, and so are not made twice after a restart either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ctx_session::{Code, Refusal};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::error::ApiError;
use super::extract::{Who, whole_body};

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Answers that are kept at a time, and the longest that is.
const ANSWERS_MAX: usize = 10_000;
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// More than any answer of ours that is not a stream has.
const WHOLE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A stream, whose messages have ids of their own.
const MCP: &str = "/api/v1/mcp";
const KEY_BYTES_MAX: usize = 256;

const HEADER: &str = "idempotency-key";

/// Whose request, and which.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    uid: u32,
    path: String,
    key: String,
}

#[derive(Debug, Clone)]
struct Kept {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// What has become of a request: None while it is being done.
type Outcome = Option<Option<Kept>>;

struct Entry {
    /// Of the body: the same key for another request is a mistake of the client's.
    hash: [u8; 32],
    outcome: watch::Receiver<Outcome>,
    since: Instant,
}

/// The requests that are remembered.
#[derive(Clone)]
pub(super) struct Memory {
    /// How long a body may take.
    patience: Duration,
    table: Arc<Mutex<HashMap<Name, Entry>>>,
}

enum Turn {
    /// Nobody has asked this before.
    First(watch::Sender<Outcome>),
    /// Someone has: this is what came, or will come, of it.
    Again(watch::Receiver<Outcome>),
    /// With another body.
    Mistaken,
}

impl Memory {
    pub fn new(patience: Duration) -> Memory {
        Memory { patience, table: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, name: &Name, hash: [u8; 32], now: Instant) -> Turn {
        let mut table = self.lock();
        match table.get(name) {
            Some(entry) if now.saturating_duration_since(entry.since) >= KEPT => {}
            Some(entry) if entry.hash != hash => return Turn::Mistaken,
            Some(entry) => return Turn::Again(entry.outcome.clone()),
            None => {}
        }
        if table.len() >= ANSWERS_MAX {
            table.retain(|_, entry| now.saturating_duration_since(entry.since) < KEPT);
            let oldest = table.iter().min_by_key(|(_, entry)| entry.since).map(|(name, _)| name.clone());
            if let (true, Some(oldest)) = (table.len() >= ANSWERS_MAX, oldest) {
                table.remove(&oldest);
            }
        }
        let (done, outcome) = watch::channel(None);
        table.insert(name.clone(), Entry { hash, outcome, since: now });
        Turn::First(done)
    }

    fn forget(&self, name: &Name) {
        self.lock().remove(name);
    }
}

/// The key of a request, if it has one that can be read.
pub(super) fn key(headers: &HeaderMap) -> Option<&str> {
    headers.get(HEADER)?.to_str().ok().filter(|key| !key.is_empty())
}

/// Only POST creates; all else passes by.
pub(super) async fn once(State(memory): State<Memory>, request: Request, next: Next) -> Response {
    if request.uri().path() == MCP {
        return next.run(request).await;
    }
    let key = request.headers().get(HEADER).cloned();
    let who = request.extensions().get::<Who>().copied();
    let (Some(key), Some(Who(caller)), &Method::POST) = (key, who, request.method()) else {
        return next.run(request).await;
    };
    let key = key.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let message = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} visible ASCII characters");
        return ApiError(Refusal::invalid("Idempotency-Key", message)).into_response();
    }
    let name = Name { uid: caller.uid, path: request.uri().path().to_owned(), key: key.to_owned() };
    let (parts, body) = request.into_parts();
    let body = match whole_body(body, memory.patience).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    match memory.turn(&name, Sha256::digest(&body).into(), Instant::now()) {
        Turn::Mistaken => {
            let message = "this Idempotency-Key was used for another request; take a new one";
            ApiError(Refusal::invalid("Idempotency-Key", message)).into_response()
        }
        Turn::Again(outcome) => again(outcome).await,
        Turn::First(done) => {
            let request = Request::from_parts(parts, Body::from(body));
            // In a task of its own, so that a client that goes does not leave it half done.
            let work = tokio::spawn(async move { first(memory, name, done, next.run(request).await).await });
            work.await.unwrap_or_else(|_| lost())
        }
    }
}

fn lost() -> Response {
    ApiError(Refusal::new(Code::Eio, "this request broke; look before you send it again")).into_response()
}

async fn first(memory: Memory, name: Name, done: watch::Sender<Outcome>, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, WHOLE_BYTES_MAX).await else { return lost() };
    let kept = Kept { status: parts.status, headers: parts.headers.clone(), body: bytes.clone() };
    // A long answer goes to whoever waits for it now, and is not kept.
    if parts.status.is_success() && bytes.len() <= ANSWER_BYTES_MAX {
        done.send_replace(Some(Some(kept)));
    } else {
        memory.forget(&name);
        done.send_replace(Some(Some(kept)));
    }
    Response::from_parts(parts, Body::from(bytes))
}

async fn again(mut outcome: watch::Receiver<Outcome>) -> Response {
    let kept = match outcome.wait_for(Option::is_some).await {
        Ok(kept) => kept.clone().flatten(),
        Err(_) => None,
    };
    let Some(Kept { status, headers, body }) = kept else { return lost() };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
