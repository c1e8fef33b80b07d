//! The start of the daemon: find every session by the two ends of its log, and settle what was left running.
//!
//! No history is read: the first record says what a session is, and the newest change of state, near the end of
//! the log, says where it stands. Only sessions that were running, or whose files are behind, are loaded.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctx_journal::{Entry, JournalError, LogPath, lock};
use ctx_session::record::{Decoded, RunBody, SessionBody};
use ctx_session::{Body, Code, Refusal, SessionId, StateName, Timestamp};
use ctx_views::files::{Meta, SessionFiles};
use ctx_views::identity::{Fit, Identity, Place, first, original};

use crate::broken::{gone, unreadable};
use crate::core::journal_refusal;
use crate::driver::{Ask, Gone};
use crate::paths::{Shelf, session_logs};
use crate::registry::{Broken, Summary};
use crate::shared::Inner;

/// Sessions whose files are behind that a start waits for; more are caught up behind it.
const BEHIND_AT_ONCE: usize = 64;
/// Sessions that may be loaded while files are caught up, and how long to wait when there are more.
const LOADED_MOST: usize = 256;
const LOADED_PAUSE: Duration = Duration::from_millis(100);
/// Threads that look at logs.
const READERS: usize = 4;
/// Running sessions that are settled at the same time.
const AT_ONCE: usize = 16;

/// What a start came upon.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    pub sessions: usize,
    /// Sessions whose run an earlier daemon left open.
    pub recovered: usize,
    /// Logs that could not be made sense of; each is named in the daemon's log.
    pub unreadable: usize,
    /// Logs that someone else could have written: they are not opened.
    pub foreign: usize,
}

/// Finds the sessions and settles those that were running; also those whose files are left to [`catch_up_later`].
pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(Found, Vec<SessionId>), Refusal> {
    let finding = inner.clone();
    let found = tokio::task::spawn_blocking(move || find_all(&finding)).await;
    let (seen, mut report) = found.map_err(|error| Refusal::new(Code::Eio, error.to_string()))??;
    let (originals, copies) = apart(seen);
    for Seen { summary, .. } in copies {
        let (session, place) = (summary.id(), summary.place_in_root());
        tracing::warn!(%session, place, "two logs have the id of this session: this directory is left alone; move it out of the root");
        report.unreadable += 1;
    }
    let (mut running, mut behind) = (Vec::new(), Vec::new());
    for Seen { summary, agrees, .. } in originals {
        let (id, is_running) = (summary.id(), summary.state == StateName::Running);
        let shelf = Shelf::of(&summary.meta);
        let place = summary.place_in_root();
        if let Err(refusal) = inner.registry.add(summary) {
            tracing::warn!(place, %refusal, "this directory is left alone; move it out of the root, or `ctx purge` the other");
            report.unreadable += 1;
            continue;
        }
        if is_running {
            running.push(id);
        } else if !agrees {
            behind.push(id);
        }
        if let Some(shelf) = shelf {
            inner.shelves.touch(shelf);
        }
    }
    report.recovered = load_all(inner, &running).await;
    tracing::info!(running = running.len(), behind = behind.len(), "sessions were looked after");
    if behind.len() <= BEHIND_AT_ONCE {
        load_all(inner, &behind).await;
        behind.clear();
    }
    Ok((report, behind))
}

impl Summary {
    fn place_in_root(&self) -> String {
        let shelf = Shelf::of(&self.meta).as_ref().map(Shelf::dir);
        format!("{}/{}", shelf.unwrap_or_default(), self.dir_name)
    }
}

/// The sessions, and the logs that are left alone because another has their id: someone may have copied a directory.
fn apart(seen: Vec<Seen>) -> (Vec<Seen>, Vec<Seen>) {
    let mut claims: HashMap<SessionId, Vec<(Fit, usize)>> = HashMap::new();
    for (at, Seen { summary, fit, .. }) in seen.iter().enumerate() {
        claims.entry(summary.id()).or_default().push((*fit, at));
    }
    let sessions: HashSet<usize> = claims.values().filter_map(|same| original(same)).copied().collect();
    let (mut originals, mut copies) = (Vec::new(), Vec::new());
    for (at, seen) in seen.into_iter().enumerate() {
        if sessions.contains(&at) { originals.push(seen) } else { copies.push(seen) }
    }
    // Of two that have a name, the one that says so itself keeps it.
    originals.sort_by_cached_key(|Seen { summary, fit, .. }| (*fit, summary.id(), summary.dir_name.clone()));
    (originals, copies)
}

/// A crash between a commit and its files leaves them behind.
fn files_agree(inner: &Inner, summary: &Summary) -> bool {
    let (Some(root), Some(shelf)) = (&inner.root, Shelf::of(&summary.meta)) else { return true };
    let dir = format!("{}/{}", shelf.dir(), summary.dir_name);
    SessionFiles::agree(root, Path::new(&dir), summary.state, summary.updated_at)
}

/// Loading a session settles it and brings its files up to its log. How many could be loaded.
async fn load_all(inner: &Arc<Inner>, ids: &[SessionId]) -> usize {
    let mut loaded = 0;
    for batch in ids.chunks(AT_ONCE) {
        let loading = batch.iter().map(|id| load(inner, *id));
        loaded += futures_util::future::join_all(loading).await.into_iter().filter(|ok| *ok).count();
    }
    loaded
}

/// Reads for the views behind the lists what they miss: the audit log, and files. These are so many that someone must
/// have deleted them: nobody waits for it, and only so many are loaded at a time.
pub(crate) fn catch_up_later(inner: &Arc<Inner>, files_behind: Vec<SessionId>) {
    let (views, inner) = (inner.behind.clone(), Arc::downgrade(inner));
    tokio::spawn(async move {
        let weak = inner.clone();
        let follow = move || {
            views.follow();
            // What was purged is forgotten by now, and what is gone is known.
            if let Some(inner) = weak.upgrade() {
                inner.take_in_gone();
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(follow).await {
            tracing::error!(%error, "waiting for the lists panicked");
        }
        for batch in files_behind.chunks(AT_ONCE) {
            loop {
                let Some(inner) = inner.upgrade() else { return };
                if lock(&inner.active).len() < LOADED_MOST {
                    load_all(&inner, batch).await;
                    batch.iter().for_each(|id| inner.let_go(*id));
                    break;
                }
                drop(inner);
                tokio::time::sleep(LOADED_PAUSE).await;
            }
        }
    });
}

async fn load(inner: &Arc<Inner>, id: SessionId) -> bool {
    match inner.link(id).ask(|reply| Ask::Look { reply }).await {
        Ok(_) => true,
        Err(Gone::Refused(refusal)) => {
            tracing::error!(session = %id, %refusal, "a session that the last daemon left open cannot be loaded");
            false
        }
        Err(Gone::Unloaded | Gone::Dropped { .. }) => false,
    }
}

/// A session that was found.
pub(crate) struct Seen {
    pub summary: Summary,
    /// Its log says what its path says of its state, and its files show what its log has.
    agrees: bool,
    /// How well its first record says what it is.
    fit: Fit,
}

/// Looks at every log, a few threads side by side: most of the time goes into opening files.
fn find_all(inner: &Inner) -> Result<(Vec<Seen>, Found), Refusal> {
    if let Err(error) = inner.journal.sweep() {
        tracing::warn!(%error, "what a crash left of a fork or a purge is still there");
    }
    let logs = session_logs(&*inner.journal).map_err(|error| journal_refusal(&error))?;
    let share = logs.len().div_ceil(READERS).max(1);
    let found: Vec<Result<Seen, NotSeen>> = std::thread::scope(|scope| {
        let look = |part: &[LogPath]| part.iter().map(|log| look_at(inner, log)).collect::<Vec<_>>();
        let readers: Vec<_> = logs.chunks(share).map(|part| scope.spawn(move || look(part))).collect();
        // A reader that panicked has found nothing; what it was to read counts as unreadable below.
        readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default()).collect()
    });
    let foreign = found.iter().filter(|found| matches!(found, Err(NotSeen::Foreign))).count();
    let seen: Vec<Seen> = found.into_iter().flatten().collect();
    let unreadable = logs.len() - seen.len() - foreign;
    Ok((seen, Found { sessions: logs.len() - unreadable - foreign, recovered: 0, unreadable, foreign }))
}

/// Why a log is no session.
enum NotSeen {
    Unreadable,
    Foreign,
}

fn look_at(inner: &Inner, log: &LogPath) -> Result<Seen, NotSeen> {
    match inner.find_one(log) {
        Ok(seen) => {
            let mut seen = Seen { agrees: seen.agrees && files_agree(inner, &seen.summary), ..seen };
            if !seen.agrees {
                stay_over(inner, log, &mut seen.summary);
            }
            Ok(seen)
        }
        Err(refusal) if refusal.code == Code::Eacces => {
            tracing::warn!(%log, why = refusal.message, "this log is foreign and is left alone");
            Err(NotSeen::Foreign)
        }
        Err(refusal) => {
            tracing::warn!(%log, why = refusal.message, "a session's log cannot be read; `ctx doctor` says more");
            inner.unreadable(log, &refusal.message).ok_or(NotSeen::Unreadable)
        }
    }
}

impl Inner {
    /// Takes in what the index knows of and the start did not find: their logs are gone. Blocking.
    pub(crate) fn take_in_gone(&self) {
        let Some(index) = self.behind.index() else { return };
        // What the plan found to be gone is written by now.
        index.flush();
        let gone_ones = match index.ask(|queries| queries.gone()) {
            Ok(gone_ones) => gone_ones,
            Err(error) => return tracing::warn!(%error, "sessions whose logs are gone are not listed"),
        };
        for item in gone_ones {
            let (id, overview) = (item.id(), item.row);
            let is_there = !matches!(self.journal.head(&item.log), Err(JournalError::NotThere { .. }));
            if is_there || self.registry.get(id).is_some() {
                continue;
            }
            let mut summary = Summary::new(Arc::new(overview.meta), overview.created_at);
            summary.updated_at = overview.updated_at;
            summary.cwd = overview.cwd;
            summary.archived = overview.archived;
            summary.dir_name = item.log.dir().rsplit('/').next().unwrap_or_default().to_owned();
            summary.break_down(Broken::Log, gone(id, &item.log));
            self.behind.broken(&item.log, gone(id, &item.log));
            if let Err(refusal) = self.registry.add(summary) {
                tracing::warn!(session = %id, %refusal, "a session whose log is gone is not listed");
            }
        }
    }

    /// A session whose log cannot be read: what it is, its other files and the index say.
    fn unreadable(&self, log: &LogPath, why: &str) -> Option<Seen> {
        let place = Place::of(log)?;
        let Identity { meta, flaws, .. } = self.identify(log, &place, first(&place, None));
        let created_at = meta.session_id.0.timestamp();
        let mut summary = Summary::new(Arc::new(meta), created_at);
        summary.dir_name = place.dir_name;
        summary.break_down(Broken::Log, unreadable(summary.id(), why));
        self.behind.broken(log, unreadable(summary.id(), why));
        Some(Seen { summary, agrees: true, fit: Fit::of(&flaws) })
    }

    /// What the two ends of a log, and its path, say of its session; and whether they say the same.
    pub(crate) fn find_one(&self, log: &LogPath) -> Result<Seen, Refusal> {
        let no_place = || Refusal::new(Code::Eio, "its path is not that of a session");
        let place = Place::of(log).ok_or_else(no_place)?;
        let mut end = End::default();
        let head = self
            .journal
            .ends(log, &mut |_, entry| end.take(&entry))
            .map_err(|error| journal_refusal(&error))?;
        let Identity { meta, flaws, .. } = self.identify(log, &place, first(&place, head.as_ref()));
        for flaw in &flaws {
            tracing::warn!(%log, %flaw, "a session's first record is damaged; the session opens anyway; `ctx repair` can fix it");
        }
        let created_at = head.map(|entry| entry.time).or(end.newest).unwrap_or_else(|| self.fresh.now());
        let mut summary = Summary::new(Arc::new(meta), created_at);
        summary.state = end.state.unwrap_or(StateName::Idle);
        // Its name is another's by now: it must not come back to life with it.
        let lost_its_end = place.is_freed() && !summary.state.is_over();
        summary.dir_name = place.dir_name;
        summary.archived = end.archived.unwrap_or(false);
        summary.updated_at = end.newest.unwrap_or(created_at);
        summary.posted_at = end.posted_at;
        summary.next_seq = end.next_seq;
        if let Some(cwd) = end.cwd {
            summary.cwd = cwd;
        }
        Ok(Seen { summary, agrees: !lost_its_end, fit: Fit::of(&flaws) })
    }
}

/// What the end of a log tells, from its last record back: the newest state, the time of the last record, and of
/// the last message.
#[derive(Default)]
struct End {
    newest: Option<Timestamp>,
    next_seq: Option<u64>,
    state: Option<StateName>,
    cwd: Option<String>,
    archived: Option<bool>,
    posted_at: Option<Timestamp>,
    /// What stands before it was copied from the source of a fork.
    forked: bool,
    imported: bool,
}

impl End {
    fn take(&mut self, entry: &Entry) -> ControlFlow<()> {
        self.newest = self.newest.max(Some(entry.time));
        self.next_seq.get_or_insert(entry.seq + 1);
        let body = || match Body::decode(&entry.kind, &entry.text) {
            Decoded::Known(body) => Some(body),
            Decoded::Unknown | Decoded::Malformed(_) => None,
        };
        match entry.kind.as_str() {
            "state_changed" if self.state.is_none() => {
                if let Some(Body::Session(SessionBody::StateChanged(change))) = body() {
                    self.state = Some(change.to);
                }
            }
            "cwd_changed" if self.cwd.is_none() => {
                if let Some(Body::Session(SessionBody::CwdChanged(change))) = body() {
                    self.cwd = Some(change.cwd);
                }
            }
            // A message brings an archived session back, so the newest one is as far as this is looked for.
            "archived" if self.archived.is_none() => {
                if let Some(Body::Session(SessionBody::Archived(found))) = body() {
                    self.archived = Some(found.archived);
                }
            }
            "forked" => {
                self.forked = true;
                self.state.get_or_insert(StateName::Idle);
                self.archived.get_or_insert(false);
            }
            // Records are brought in while the session is idle, and it works where it did.
            "imported" => {
                self.state.get_or_insert(StateName::Idle);
                self.imported = true;
            }
            "user" if !self.forked && self.posted_at.is_none() => self.posted_at = Some(entry.time),
            "context" if self.cwd.is_none() => {
                if let Some(Body::Run(RunBody::Context(context))) = body() {
                    self.cwd = Some(context.cwd);
                }
            }
            _ => {}
        }
        let known = self.state.is_some()
            && (self.forked || self.posted_at.is_some())
            && (self.cwd.is_some() || self.imported);
        if known { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A session that was over stays over, also where damage took the record of its end: its directory was given up to another
/// session, or its `meta.json`, which is written after the record, says so.
fn stay_over(inner: &Inner, log: &LogPath, summary: &mut Summary) {
    if summary.state.is_over() {
        return;
    }
    let is_freed = Place::of(log).is_some_and(|place| place.is_freed());
    let was_over = |root| {
        Meta::read(root, Path::new(log.dir()))
            .is_some_and(|meta| meta.id == summary.id() && meta.state.is_over())
    };
    if is_freed || inner.root.as_ref().is_some_and(was_over) {
        tracing::warn!(%log, "the record that ended this session is lost; it stays ended, as its directory says");
        summary.state = StateName::Ended;
    }
}
