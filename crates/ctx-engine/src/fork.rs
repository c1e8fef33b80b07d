//! Forks: a session that begins as a copy of another. The source is only read, whatever it is doing.
//!
//! The copy is the journal's; nothing of it is parsed here, so that a long history costs what copying its bytes
//! costs. The session's files and the index follow behind, when it is loaded.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ctx_journal::{Fork as JournalFork, ForkEnds, LogPath};
use ctx_session::record::{Scope, SessionBody, SessionMeta};
use ctx_session::request::RequestKey;
use ctx_session::rules::Fork;
use ctx_session::{Body, Code, Name, Record, Refusal, Session, SessionId, Timestamp};

use crate::core::journal_refusal;
use crate::driver::Ask;
use crate::engine::Engine;
use crate::paths::Shelf;
use crate::registry::Summary;
use crate::request::Caller;
use crate::shared::Inner;

/// What follows behind a fork reads all of it. It begins when the answer is out, which it would get in the way of.
const FOLLOW_AFTER: Duration = Duration::from_millis(50);

/// A fork to be made.
#[derive(Debug, Clone, Default)]
pub struct NewFork {
    /// None: called by its id.
    pub name: Option<Name>,
    /// None: as the source is.
    pub scope: Option<Scope>,
    pub space: Option<Name>,
    /// The last record to take over, which must end a command. None: all that is committed now.
    pub at: Option<u64>,
    pub client: Option<String>,
    /// Kept with it, so that it is known again.
    pub key: Option<RequestKey>,
}

impl Engine {
    /// Makes a fork. It exists, whole and on disk, when this returns.
    pub async fn fork(&self, caller: Caller, source: SessionId, new: NewFork) -> Result<SessionId, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        let source = self.find(caller, source)?;
        let scope = new.scope.unwrap_or(source.meta.scope);
        let as_source = || source.meta.space.clone().filter(|_| scope == Scope::Shared);
        let fork = Fork {
            id: SessionId(self.inner.fresh.id()),
            name: new.name,
            scope,
            space: new.space.or_else(as_source),
            owner: caller.uid,
            client: new.client,
            requested: new.key,
            app: self.inner.app.clone(),
        };
        fork.check(&source.meta)?;
        self.inner.check_space(caller, fork.scope, fork.space.as_ref())?;
        let inner = self.inner.clone();
        // A task of its own: a client that goes must not leave half of this done.
        let made = tokio::spawn(async move { make(&inner, &source, &fork, new.at).await }).await;
        made.map_err(|error| Refusal::new(Code::Eio, format!("making the fork broke: {error}")))?
    }
}

async fn make(
    inner: &Arc<Inner>,
    source: &Summary,
    fork: &Fork,
    at: Option<u64>,
) -> Result<SessionId, Refusal> {
    let time = inner.fresh.now();
    let (reserved, _) = fork.records(&source.meta, 0);
    inner.registry.reserve(&reserved)?;
    let copied = copy(inner, source, fork, at, time).await;
    let Copied { meta, last, log } = copied.inspect_err(|_| inner.registry.release(&reserved))?;
    let meta = Arc::new(meta);
    let mut summary = Summary::new(meta.clone(), time);
    summary.cwd.clone_from(&source.cwd);
    inner.registry.add(summary)?;
    inner.news.created(&meta);
    let first = Record { seq: 0, time, body: Body::Session(SessionBody::Meta(Box::new((*meta).clone()))) };
    inner.behind.forked(&log, &Session::new((*meta).clone(), 0, time), &[first, last]);
    if let Some(shelf) = Shelf::of(&meta) {
        inner.shelves.touch(shelf);
    }
    show(inner, meta.session_id, log);
    Ok(meta.session_id)
}

/// Has a fork's files written and the index read it, behind everyone's back. A daemon that stops before that leaves
/// it to the next start, which finds what the index misses.
fn show(inner: &Arc<Inner>, id: SessionId, log: LogPath) {
    let inner = inner.clone();
    tokio::spawn(async move {
        tokio::time::sleep(FOLLOW_AFTER).await;
        if let Err(refusal) = inner.ask(id, |reply| Ask::Look { reply }).await {
            tracing::warn!(session = %id, %refusal, "a fork cannot be loaded yet");
        }
        let read = tokio::task::spawn_blocking(move || inner.behind.read_whole(&log)).await;
        if let Err(error) = read {
            tracing::error!(session = %id, %error, "reading a fork into the index panicked");
        }
    });
}

/// A log that was made.
struct Copied {
    meta: SessionMeta,
    /// Its last record.
    last: Record,
    log: LogPath,
}

/// Copies the log to where an ended session of that name may still be.
async fn copy(
    inner: &Arc<Inner>,
    source: &Summary,
    fork: &Fork,
    at: Option<u64>,
    time: Timestamp,
) -> Result<Copied, Refusal> {
    let bad = |error: ctx_journal::BadLogPath| Refusal::invalid("name", error.to_string());
    let (meta, _) = fork.records(&source.meta, 0);
    let shelf =
        Shelf::of(&meta).ok_or_else(|| Refusal::invalid("scope", "a fork needs a place to be kept"))?;
    let to = shelf.log(meta.name.as_str()).map_err(bad)?;
    let owner = inner.owner_of(&meta);
    inner.free_directory(&meta).await?;
    let (inner, fork, source) = (inner.clone(), fork.clone(), source.meta.clone());
    let copying = tokio::task::spawn_blocking(move || {
        // The journal finds the place; the records say which it is.
        let place = Cell::new(0);
        let seq = inner.with_log(source.session_id, |journal, from| {
            let wish = JournalFork { from, at, to: &to, owner, time };
            let made = journal.fork(&wish, &|seq| {
                place.set(seq);
                let (meta, last) = fork.records(&source, seq);
                ForkEnds {
                    first: Body::Session(SessionBody::Meta(Box::new(meta))).to_json(),
                    last: last.to_json(),
                }
            });
            made.map_err(|error| journal_refusal(&error))
        })?;
        let (meta, body) = fork.records(&source, place.get());
        Ok(Copied { meta, last: Record { seq, time, body }, log: to })
    });
    let broke = |error| Refusal::new(Code::Eio, format!("copying a log broke: {error}"));
    copying.await.map_err(broke)?
}
