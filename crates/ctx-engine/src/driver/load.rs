//! How a driver comes and goes: loading a session, or making a new one, and unloading it when nobody needs it.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ctx_journal::{Journal, JournalError, LogPath, Owner, lock};
use ctx_session::record::{Failure, SessionBody, SessionMeta};
use ctx_session::{Body, Code, Record, Refusal, SessionId, Timestamp};
use ctx_views::identity::{Identity, first};
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Driver, DriverLink, MAILBOX, Mail, Next};
use crate::broken::failure_of;
use crate::core::{Core, journal_refusal};
use crate::live::Live;
use crate::paths::Shelf;
use crate::registry::{Broken, Summary};
use crate::shared::{Inner, take_up_again};

/// What a driver begins with.
pub(crate) enum Begin {
    /// A session that does not exist yet; `made` is told what came of it.
    Create { meta: Arc<SessionMeta>, owner: Owner, time: Timestamp, made: Made },
    /// One whose log is there.
    Open,
    /// One on which drivers have panicked again and again: it is failed.
    Fail { failure: Failure },
    /// One that is over, and whose name is used again: its directory is renamed, and it is loaded only if someone asks for
    /// it meanwhile.
    Rename { done: Made },
}

/// Whoever waits for a new session, or for its directory.
pub(crate) type Made = oneshot::Sender<Result<(), Refusal>>;

/// Starts a driver; what is sent to it waits until the session is loaded.
pub(crate) fn spawn(inner: &Arc<Inner>, id: SessionId, begin: Begin) -> DriverLink {
    let (sender, mailbox) = mpsc::channel(MAILBOX);
    let link = DriverLink { inner: inner.clone(), mailbox: sender, live: Arc::default() };
    let task_link = link.clone();
    let inner = inner.clone();
    tokio::spawn(async move {
        let (made, loaded) = match begin {
            Begin::Create { meta, owner, time, made } => {
                let loaded = match inner.free_directory(&meta).await {
                    Ok(()) => blocking(&inner, id, move |inner| create(inner, &meta, owner, time)).await,
                    Err(refusal) => Err(refusal),
                };
                (Some(made), loaded)
            }
            Begin::Open => (None, blocking(&inner, id, move |inner| open(inner, id)).await),
            Begin::Fail { failure } => {
                let why = failure.clone();
                let failed = blocking(&inner, id, move |inner| fail(inner, id, why)).await;
                let broken = |refusal| {
                    tracing::error!(session = %id, %refusal, "that a session has failed cannot be written");
                    inner.break_down(id, Broken::Driver, failure)
                };
                inner.forget_panics(id);
                (None, failed.map_err(broken))
            }
            Begin::Rename { done } => {
                let renamed = blocking(&inner, id, move |inner| inner.rename_directory(id)).await;
                let _ = done.send(renamed.map(drop));
                if inner.forget_if(id, |link| is_unused(link, &mailbox), || ()) {
                    return;
                }
                (None, blocking(&inner, id, move |inner| open(inner, id)).await)
            }
        };
        match loaded {
            Ok(core) => {
                if made.is_some() {
                    inner.news.created(&core.session.meta);
                }
                // Not the link itself: a driver leaves only when nobody else has it.
                let live = task_link.live.clone();
                let mut driver = Driver::new(inner.clone(), id, task_link, mailbox, core);
                driver.take_up_terminals();
                if let Some(made) = made {
                    let _ = made.send(Ok(()));
                }
                if AssertUnwindSafe(driver.run()).catch_unwind().await.is_err() {
                    tracing::error!(session = %id, "a driver panicked; its session is taken up again");
                    inner.note_panic(id);
                    if let Some(live) = live.get() {
                        live.lose();
                    }
                    inner.slots.broadcast();
                    take_up_again(&inner, id);
                }
            }
            Err(refusal) => {
                match made {
                    Some(made) => {
                        inner.registry.remove(id);
                        let _ = made.send(Err(refusal.clone()));
                    }
                    None => show_failing(&inner, id, &refusal),
                }
                refuse_all(&inner, id, task_link, mailbox, &refusal).await;
            }
        }
    });
    link
}

/// Until it can be loaded, whoever looks at the session is told why it cannot.
fn show_failing(inner: &Inner, id: SessionId, refusal: &Refusal) {
    if inner.registry.get(id).is_some_and(|summary| summary.broken.is_some()) {
        return;
    }
    let reason = if refusal.code == Code::Enospc { "disk_full" } else { "log_unusable" };
    let failure = Failure { code: refusal.code, reason: reason.to_owned(), message: refusal.message.clone() };
    inner.registry.update(id, |summary| summary.failing = Some(failure));
}

async fn blocking<T: Send + 'static>(
    inner: &Arc<Inner>,
    id: SessionId,
    load: impl FnOnce(&Inner) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let loading = inner.clone();
    let loaded = tokio::task::spawn_blocking(move || load(&loading)).await;
    loaded.unwrap_or_else(|error| {
        inner.note_panic(id);
        tracing::error!(session = %id, %error, "loading a session panicked");
        Err(Refusal::new(Code::Eio, format!("session {id} cannot be loaded: {error}")))
    })
}

/// Whether nobody is about to ask: two senders are the table's and the driver's own.
fn is_unused(link: &DriverLink, mailbox: &mpsc::Receiver<Mail>) -> bool {
    mailbox.is_empty() && link.mailbox.strong_count() <= 2
}

fn create(inner: &Inner, meta: &Arc<SessionMeta>, owner: Owner, time: Timestamp) -> Result<Core, Refusal> {
    let (journal, log, dir) = place(inner, meta, meta.name.as_str())?;
    let open = || dir.and_then(|dir| inner.open_files(&dir, owner));
    let core = Core::create(journal, log, owner, time, meta, open, inner.behind_of(meta))
        .map_err(|error| journal_refusal(&error))?;
    // Otherwise every list would ask for what is shown of it until its first change.
    inner.registry.update(meta.session_id, |summary| summary.follow(&core.session));
    Ok(core)
}

fn open(inner: &Inner, id: SessionId) -> Result<Core, Refusal> {
    let gone = || Refusal::new(Code::Enoent, format!("no session {id}"));
    let summary = inner.registry.get(id).ok_or_else(gone)?;
    let (journal, log, dir) = place(inner, &summary.meta, &summary.dir_name)?;
    let identity = identify(inner, id, &log, &summary)?;
    let owner = inner.owner_of(&summary.meta);
    let files = dir.and_then(|dir| inner.open_files(&dir, owner));
    let now = inner.fresh.now();
    let mut core = Core::open(journal, log, now, &identity.meta, files, inner.behind_of(&summary.meta))
        .map_err(|error| cannot_open(inner, id, &error))?;
    if lock(&inner.lost).contains(&id) {
        // Before anything is written that would be told as the next.
        inner.behind.reopened(core.log());
    }
    if !identity.is_in_log {
        // Before anything else is: a log that says itself what it is keeps its id whatever becomes of the rest.
        let first = Body::Session(SessionBody::Meta(Box::new(identity.meta)));
        core.commit(vec![first], now).map_err(|error| error.refusal().clone())?;
    }
    // One whose log was gone is what the log says, now that it is back.
    let was_over = summary.state.is_over() && summary.broken.is_none();
    let recovered = {
        let mut ids = inner.fresh.ids();
        core.recover(inner.interruption(id), now, &mut ids, &inner.limits, was_over)
    };
    let recovered = recovered.map_err(|error| error.refusal().clone())?;
    close_detached(inner, &recovered);
    inner.registry.update(id, |summary| {
        summary.follow(&core.session);
        summary.failing = None;
    });
    lock(&inner.lost).remove(&id);
    if let Some(behind) = inner.behind_of(&core.session.meta) {
        behind.log_opened(core.log());
    }
    Ok(core)
}

/// What session the log is now. Someone may have put another one in its place: that one is known from here on.
fn identify(inner: &Inner, id: SessionId, log: &LogPath, summary: &Summary) -> Result<Identity, Refusal> {
    let known =
        || Identity { meta: (*summary.meta).clone(), flaws: Vec::new(), is_in_log: true, is_taken: false };
    let Some(place) = ctx_views::identity::Place::of(log) else { return Ok(known()) };
    let head = match inner.journal.head(log) {
        Ok(head) => head,
        // Opening says why.
        Err(_) => return Ok(known()),
    };
    let identity = inner.identify(log, &place, first(&place, head.as_ref()));
    let other = identity.meta.session_id;
    if other == id {
        return Ok(identity);
    }
    tracing::warn!(session = %id, %other, %log, "another session's log was put in the place of this one's");
    inner.registry.remove(id);
    match inner.find_one(log) {
        Ok(seen) => {
            if let Err(refusal) = inner.registry.add(seen.summary) {
                tracing::warn!(%log, %refusal, "this directory is left alone");
            }
        }
        Err(refusal) => tracing::warn!(%log, %refusal, "a session's log cannot be read"),
    }
    let message = format!("session {id} is missing: its directory now holds the log of session {other}");
    Err(Refusal::new(Code::Enoent, message))
}

/// A log that is gone, or that cannot be read at all, fails its session: its name is free again for the next message.
fn cannot_open(inner: &Inner, id: SessionId, error: &JournalError) -> Refusal {
    match failure_of(id, error) {
        Some(failure) => inner.break_down(id, Broken::Log, failure),
        None => journal_refusal(error),
    }
}

/// Loads a session and writes down that it has failed.
fn fail(inner: &Inner, id: SessionId, failure: Failure) -> Result<Core, Refusal> {
    let mut core = open(inner, id)?;
    {
        let mut ids = inner.fresh.ids();
        core.fail(failure, inner.fresh.now(), &mut ids, &inner.limits)
            .map_err(|error| error.refusal().clone())?;
    }
    inner.registry.update(id, |summary| summary.follow(&core.session));
    inner.news.ended(&core.session.meta);
    Ok(core)
}

/// A connection that recovery let go of, in case it is still there: it comes again.
fn close_detached(inner: &Inner, records: &[Record]) {
    for record in records {
        if let Body::Session(SessionBody::Detached(gone)) = &record.body {
            inner.connections.close(gone.connection, gone.reason);
        }
    }
}

type Place = (Arc<dyn Journal>, LogPath, Option<String>);

/// Which journal a session is kept in, where its log is, and the directory of its files.
fn place(inner: &Inner, meta: &SessionMeta, dir_name: &str) -> Result<Place, Refusal> {
    let bad = |error: ctx_journal::BadLogPath| Refusal::invalid("name", error.to_string());
    match Shelf::of(meta) {
        Some(shelf) => {
            let log = shelf.log(dir_name).map_err(bad)?;
            Ok((inner.journal.clone(), log, Some(format!("{}/{dir_name}", shelf.dir()))))
        }
        None => {
            let log = LogPath::new(format!("temp/{}/events.jsonl", meta.session_id)).map_err(bad)?;
            Ok((inner.memory.clone(), log, None))
        }
    }
}

/// A session that cannot be loaded answers everyone who waits with the reason, and leaves.
async fn refuse_all(
    inner: &Arc<Inner>,
    id: SessionId,
    link: DriverLink,
    mut mailbox: mpsc::Receiver<Mail>,
    refusal: &Refusal,
) {
    inner.forget(id, &link);
    drop(link);
    mailbox.close();
    while let Some(mail) = mailbox.recv().await {
        if let Mail::Ask(ask) = mail {
            ask.refuse(refusal.clone());
        }
    }
}

impl Driver {
    fn new(
        inner: Arc<Inner>,
        id: SessionId,
        link: DriverLink,
        mailbox: mpsc::Receiver<Mail>,
        core: Core,
    ) -> Driver {
        let newest = core.session.next_seq.saturating_sub(1);
        let live = Live::new(newest, inner.limits.live_ring_bytes, core.session.bound_issue);
        // Nobody else sets it: a driver is made once.
        let _ = link.live.set(live.clone());
        if let Some(shelf) = Shelf::of(&core.session.meta) {
            inner.shelves.touch(shelf);
        }
        Driver {
            id,
            inner,
            link,
            mailbox,
            core: Some(core),
            live,
            work: None,
            closing: None,
            idle_since: Instant::now(),
            files_tried: Instant::now(),
            imported: None,
            strays: HashSet::new(),
            lost: false,
        }
    }

    /// Leaves only when nobody watches and nobody is about to ask.
    pub(super) fn try_unload(&mut self) -> Next {
        let is_temp = self.core_ref().is_some_and(|core| core.session.is_temp());
        // A temp session lives in memory alone: it goes with its last connection, not with time.
        if is_temp || self.live.is_watched() || self.core_ref().is_some_and(Core::is_stale) {
            self.idle_since = Instant::now();
            return Next::Continue;
        }
        let Driver { inner, mailbox, core, .. } = self;
        if inner.forget_if(self.id, |link| is_unused(link, mailbox), || drop(core.take())) {
            inner.forget_panics(self.id);
            return Next::Exit;
        }
        self.idle_since = Instant::now();
        Next::Continue
    }

    /// The last thing a driver does.
    pub(super) fn leave(mut self) {
        if let Some(work) = self.work.take() {
            work.kill();
        }
        // The core goes first: its lock on the log must be free for the successor.
        drop(self.core.take());
        if self.lost {
            // Before a successor can be started, which must know it.
            lock(&self.inner.lost).insert(self.id);
        }
        self.mailbox.close();
        self.refuse_what_waits();
        self.inner.forget(self.id, &self.link);
        if self.lost {
            self.live.lose();
            self.inner.slots.broadcast();
            take_up_again(&self.inner, self.id);
        } else {
            self.live.close();
        }
    }

    /// What was not begun is refused where it must not be asked twice; the rest is asked again of the successor.
    fn refuse_what_waits(&mut self) {
        while let Ok(mail) = self.mailbox.try_recv() {
            if let Mail::Ask(ask) = mail
                && !ask.may_repeat()
            {
                let refusal = self.inner.refuse_when_closing().err().unwrap_or_else(|| self.lost_refusal());
                ask.refuse(refusal);
            }
        }
    }
}
