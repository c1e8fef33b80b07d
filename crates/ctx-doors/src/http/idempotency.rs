//! `Idempotency-Key`: a write that creates something is done once, however often it is sent.
//!
//! What must hold also after a restart is in the log: a handler that takes [`Keyed`] writes the key into the record of what
//! it makes, and answers from the log when it meets the key again. Beside that, answers are kept in memory for a while,
//! bounded for each user by number and by bytes, so that also a write that leaves no record is done once. A second request that comes
//! while the first is being done waits for its answer; the first is finished also when its client has gone. Refusals are
//! not kept: they changed nothing, so asking again is harmless. Answers with a secret are not kept either.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ctx_engine::Caller;
use ctx_session::request::{KEY_FIELD, RequestKey};
use ctx_session::{Code, Refusal};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::error::{Answer, ApiError};
use super::extract::{Who, whole_body};

/// How long a request is remembered.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Of each user: requests that are remembered at least and at most, the longest answer that is kept, and all of them
/// together. The bounds are per user so that nobody makes the daemon forget the requests of another.
const REQUESTS_MIN: usize = 10_000;
const REQUESTS_MAX: usize = 11_000;
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWERS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// More than any answer of ours that is not a stream has.
const WHOLE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A stream, whose messages have ids of their own.
const MCP: &str = "/api/v1/mcp";
const KEY_BYTES_MAX: usize = 256;
/// Bytes of a SHA-256 that are kept, as hex: enough to tell requests apart.
const HASH_BYTES: usize = 16;

const HEADER: &str = "idempotency-key";

/// The key of a request. A handler that takes it has it in the log when it is done, and answers from there the next time.
pub(super) struct Keyed(pub Option<RequestKey>);

/// An answer that is given once: it holds a secret.
#[derive(Debug, Clone, Copy)]
pub(super) struct Secret;

/// The key on its way to the handler, and whether the handler took it.
#[derive(Clone)]
struct Carried {
    key: RequestKey,
    taken: Arc<AtomicBool>,
}

impl<S: Send + Sync> FromRequestParts<S> for Keyed {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Keyed> {
        let carried = parts.extensions.get::<Carried>();
        Ok(Keyed(carried.map(|carried| {
            carried.taken.store(true, Ordering::Relaxed);
            carried.key.clone()
        })))
    }
}

#[derive(Debug, Clone)]
struct Kept {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Kept {
    fn response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// What is left of a request that was carried out.
#[derive(Debug, Clone)]
enum Done {
    Kept {
        kept: Kept,
        /// Whether the log has it too.
        in_log: bool,
    },
    /// The answer is not kept; the log has what it takes to give it again.
    InLog,
    /// The answer is not kept, and nothing else has it.
    Gone(&'static str),
}

const SECRET: &str =
    "this request was done; its answer held a secret, which is not stored; use a new key to get another";
const TOO_LONG: &str = "this request was done; its answer was too long to store; read the result instead";
const CROWDED_OUT: &str = "this request was done; its answer is no longer stored; read the result instead";

/// None while it is being done.
type Outcome = Option<Kept>;

enum Progress {
    Doing(watch::Receiver<Outcome>),
    Done(Done),
}

struct Entry {
    asked: String,
    since: Instant,
    progress: Progress,
}

/// The requests that are remembered. Cloning it is cheap.
#[derive(Clone)]
pub(super) struct Memory {
    /// How long a body may take.
    patience: Duration,
    users: Arc<Mutex<HashMap<u32, Table>>>,
}

/// What is remembered of one user.
#[derive(Default)]
struct Table {
    /// Oldest first.
    entries: IndexMap<String, Entry>,
    /// Of all answers that are kept.
    bytes: usize,
}

enum Turn {
    /// Nobody has asked this before.
    First(watch::Sender<Outcome>),
    /// Someone has, and is still being answered.
    Wait(watch::Receiver<Outcome>),
    Again(Done),
}

impl Table {
    /// Forgets requests that are old or too many, and the oldest answers if all together are too long. It walks over everything,
    /// but leaves room for many more requests and answers, so it is seldom called.
    fn trim(&mut self, now: Instant) {
        let mut surplus = self.entries.len().saturating_sub(REQUESTS_MIN);
        self.entries.retain(|_, entry| {
            let goes = entry.is_done() && (surplus > 0 || entry.is_old(now));
            surplus = surplus.saturating_sub(usize::from(goes));
            !goes
        });
        self.bytes = self.entries.values().map(Entry::bytes).sum();
        if self.bytes <= ANSWERS_BYTES_MAX {
            return;
        }
        for entry in self.entries.values_mut() {
            let Progress::Done(Done::Kept { kept, in_log }) = &entry.progress else { continue };
            self.bytes -= kept.body.len();
            entry.progress = Progress::Done(if *in_log { Done::InLog } else { Done::Gone(CROWDED_OUT) });
            if self.bytes <= ANSWERS_BYTES_MAX / 2 {
                break;
            }
        }
    }

    /// Whether there is nothing left that anyone could ask for.
    fn is_forgotten(&self, now: Instant) -> bool {
        self.entries.values().all(|entry| entry.is_done() && entry.is_old(now))
    }

    fn finish(&mut self, request: &str, done: Done) {
        let Some(entry) = self.entries.get_mut(request) else { return };
        entry.progress = Progress::Done(done);
        self.bytes += entry.bytes();
        if self.bytes > ANSWERS_BYTES_MAX {
            self.trim(Instant::now());
        }
    }
}

impl Entry {
    fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done(_))
    }

    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= KEPT
    }

    fn bytes(&self) -> usize {
        match &self.progress {
            Progress::Done(Done::Kept { kept, .. }) => kept.body.len(),
            Progress::Doing(_) | Progress::Done(Done::InLog | Done::Gone(_)) => 0,
        }
    }
}

impl Memory {
    pub fn new(patience: Duration) -> Memory {
        Memory { patience, users: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Table>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, caller: Caller, request: &str, done: Done) {
        if let Some(table) = self.lock().get_mut(&caller.uid) {
            table.finish(request, done);
        }
    }

    /// It changed nothing: it may be asked again. It is among the newest, so few others are moved.
    fn forget(&self, caller: Caller, request: &str) {
        if let Some(table) = self.lock().get_mut(&caller.uid) {
            table.entries.shift_remove(request);
        }
    }

    /// Whose turn a request is. Tables of other users are looked through only when a new user comes, and a request in progress is never
    /// forgotten: with `REQUESTS_MAX` of those the next one is refused.
    fn turn(&self, caller: Caller, key: &RequestKey, now: Instant) -> Result<Turn, Refusal> {
        let mut users = self.lock();
        if !users.contains_key(&caller.uid) {
            users.retain(|_, table| !table.is_forgotten(now));
        }
        let table = users.entry(caller.uid).or_default();
        let is_over = |entry: &Entry| entry.is_done() && entry.is_old(now);
        if table.entries.len() >= REQUESTS_MAX || table.entries.get(&key.request).is_some_and(is_over) {
            table.trim(now);
        }
        if let Some(entry) = table.entries.get(&key.request) {
            key.repeats(&RequestKey { request: key.request.clone(), asked: entry.asked.clone() })?;
            return Ok(match &entry.progress {
                Progress::Doing(outcome) => Turn::Wait(outcome.clone()),
                Progress::Done(done) => Turn::Again(done.clone()),
            });
        }
        if table.entries.len() >= REQUESTS_MAX {
            let message = "too many requests with a key are in progress; wait a second";
            return Err(Refusal::new(Code::Eagain, message));
        }
        let (done, outcome) = watch::channel(None);
        let entry = Entry { asked: key.asked.clone(), since: now, progress: Progress::Doing(outcome) };
        table.entries.insert(key.request.clone(), entry);
        Ok(Turn::First(done))
    }
}

/// Who asks, where and with which key; and what.
fn request_key(caller: Caller, request: &Request, key: &str, body: &[u8]) -> RequestKey {
    let hash = |parts: &[&[u8]]| {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
    };
    let query = request.uri().query().unwrap_or_default();
    RequestKey {
        request: hash(&[&caller.uid.to_le_bytes(), request.uri().path().as_bytes(), key.as_bytes()]),
        asked: hash(&[query.as_bytes(), body]),
    }
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
        let message = format!("an {KEY_FIELD} has 1 to {KEY_BYTES_MAX} visible ASCII characters");
        return ApiError(Refusal::invalid(KEY_FIELD, message)).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = match whole_body(body, memory.patience).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    let key = request_key(caller, &request, key, &body);
    *request.body_mut() = Body::from(body);
    let taken = Arc::new(AtomicBool::new(false));
    request.extensions_mut().insert(Carried { key: key.clone(), taken: taken.clone() });
    match memory.turn(caller, &key, Instant::now()) {
        Err(refusal) => ApiError(refusal).into_response(),
        Ok(Turn::Wait(outcome)) => wait(outcome).await,
        Ok(Turn::Again(Done::Kept { kept, .. })) => kept.response(),
        Ok(Turn::Again(Done::InLog)) => next.run(request).await,
        Ok(Turn::Again(Done::Gone(why))) => ApiError(Refusal::new(Code::Eexist, why)).into_response(),
        Ok(Turn::First(done)) => {
            // In a task of its own, so that a client that goes does not leave it half done.
            let work = tokio::spawn(async move {
                let response = next.run(request).await;
                first(&memory, (caller, &key), taken.load(Ordering::Relaxed), &done, response).await
            });
            work.await.unwrap_or_else(|_| lost())
        }
    }
}

fn lost() -> Response {
    ApiError(Refusal::new(
        Code::Eio,
        "this request failed inside the daemon; check its effect before you send it again",
    ))
    .into_response()
}

/// Keeps what is left of an answer. A request that was refused is forgotten, so that it may be sent again; an answer with a secret goes to
/// the first who asked and to nobody who waits.
async fn first(
    memory: &Memory,
    (caller, key): (Caller, &RequestKey),
    in_log: bool,
    done: &watch::Sender<Outcome>,
    response: Response,
) -> Response {
    let is_secret = response.extensions().get::<Secret>().is_some();
    let (parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, WHOLE_BYTES_MAX).await else { return lost() };
    let kept = Kept { status: parts.status, headers: parts.headers.clone(), body: bytes.clone() };
    if !parts.status.is_success() {
        memory.forget(caller, &key.request);
    } else {
        let is_short = bytes.len() <= ANSWER_BYTES_MAX;
        let left = match (in_log, is_secret) {
            (_, false) if is_short => Done::Kept { kept: kept.clone(), in_log },
            (true, _) => Done::InLog,
            (false, true) => Done::Gone(SECRET),
            (false, false) => Done::Gone(TOO_LONG),
        };
        memory.finish(caller, &key.request, left);
    }
    if is_secret {
        let refusal = ApiError(Refusal::new(Code::Eexist, SECRET)).into_response();
        done.send_replace(whole(refusal).await);
    } else {
        done.send_replace(Some(kept));
    }
    Response::from_parts(parts, Body::from(bytes))
}

async fn whole(response: Response) -> Outcome {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, WHOLE_BYTES_MAX).await.ok()?;
    Some(Kept { status: parts.status, headers: parts.headers, body })
}

async fn wait(mut outcome: watch::Receiver<Outcome>) -> Response {
    let kept = match outcome.wait_for(Option::is_some).await {
        Ok(kept) => kept.clone(),
        Err(_) => None,
    };
    kept.map_or_else(lost, Kept::response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(request: usize, asked: &str) -> RequestKey {
        RequestKey { request: request.to_string(), asked: asked.to_owned() }
    }

    fn answer(bytes: usize) -> Done {
        let body = Bytes::from(vec![b'x'; bytes]);
        let kept = Kept { status: StatusCode::CREATED, headers: HeaderMap::new(), body };
        Done::Kept { kept, in_log: false }
    }

    const ME: Caller = Caller { uid: 1000, gid: 1000 };

    fn mine<T>(memory: &Memory, look: impl Fn(&Table) -> T) -> T {
        look(&memory.lock()[&ME.uid])
    }

    fn begin(memory: &Memory, request: usize, now: Instant) -> watch::Sender<Outcome> {
        match memory.turn(ME, &key(request, "a"), now) {
            Ok(Turn::First(done)) => done,
            _ => panic!("{request} was asked before"),
        }
    }

    #[test]
    fn answers_are_bounded_together_and_what_was_done_stays_done() {
        let memory = Memory::new(Duration::from_secs(1));
        let now = Instant::now();
        for request in 0..1_000 {
            begin(&memory, request, now);
            memory.finish(ME, &request.to_string(), answer(ANSWER_BYTES_MAX));
            assert!(mine(&memory, |table| table.bytes) <= ANSWERS_BYTES_MAX);
        }
        assert!(matches!(memory.turn(ME, &key(999, "a"), now), Ok(Turn::Again(Done::Kept { .. }))));
        assert!(matches!(memory.turn(ME, &key(0, "a"), now), Ok(Turn::Again(Done::Gone(_)))));
        assert!(memory.turn(ME, &key(0, "b"), now).is_err_and(|refusal| refusal.code == Code::Einval));
    }

    #[test]
    fn what_is_being_done_is_not_forgotten_for_others() {
        let memory = Memory::new(Duration::from_secs(1));
        let now = Instant::now();
        let held = begin(&memory, 0, now);
        for request in 1..2 * REQUESTS_MAX {
            drop(begin(&memory, request, now));
            memory.finish(ME, &request.to_string(), answer(1));
        }
        let held_now = mine(&memory, |table| table.entries.len());
        assert!((REQUESTS_MIN..=REQUESTS_MAX).contains(&held_now), "{held_now}");
        let oldest_kept = 2 * REQUESTS_MAX - REQUESTS_MIN + 1;
        assert!(matches!(memory.turn(ME, &key(oldest_kept, "a"), now), Ok(Turn::Again(_))));
        assert!(matches!(memory.turn(ME, &key(0, "a"), now), Ok(Turn::Wait(_))));
        assert!(
            matches!(memory.turn(ME, &key(0, "a"), now + KEPT), Ok(Turn::Wait(_))),
            "however long it takes"
        );
        drop(held);
        memory.finish(ME, "0", answer(1));
        assert!(matches!(memory.turn(ME, &key(0, "a"), now + KEPT), Ok(Turn::First(_))), "an hour later");
    }

    #[test]
    fn with_as_many_under_way_as_there_is_room_for_more_are_told_to_wait() {
        let memory = Memory::new(Duration::from_secs(1));
        let now = Instant::now();
        let _held: Vec<_> = (0..REQUESTS_MAX).map(|request| begin(&memory, request, now)).collect();
        let more = memory.turn(ME, &key(REQUESTS_MAX, "a"), now);
        assert!(more.is_err_and(|refusal| refusal.code == Code::Eagain));
    }

    #[test]
    fn who_sends_any_number_of_keys_holds_little_and_makes_nothing_of_others_forgotten() {
        let memory = Memory::new(Duration::from_secs(1));
        let now = Instant::now();
        drop(begin(&memory, 0, now));
        memory.finish(ME, "0", answer(ANSWER_BYTES_MAX));
        let other = Caller { uid: ME.uid + 1, gid: 1 };
        for request in 0..3 * REQUESTS_MAX {
            assert!(matches!(memory.turn(other, &key(request, "a"), now), Ok(Turn::First(_))));
            memory.finish(other, &request.to_string(), answer(1 + request % 2 * (ANSWER_BYTES_MAX - 1)));
        }
        let held = memory.lock()[&other.uid].entries.len();
        assert!(held <= REQUESTS_MAX, "{held}");
        assert!(memory.lock()[&other.uid].bytes <= ANSWERS_BYTES_MAX);
        assert!(matches!(memory.turn(ME, &key(0, "a"), now), Ok(Turn::Again(Done::Kept { .. }))));
        // An hour later nothing is held of who asks nothing more.
        let third = Caller { uid: ME.uid + 2, gid: 1 };
        assert!(memory.turn(third, &key(0, "a"), now + KEPT).is_ok());
        assert_eq!(memory.lock().keys().copied().collect::<Vec<_>>(), [third.uid]);
    }
}
