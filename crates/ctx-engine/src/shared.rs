//! What every driver shares: the parts, the tables, and the one map of loaded sessions.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctx_journal::{Journal, LogPath, Owner, lock};
use ctx_session::command::Interruption;
use ctx_session::record::{Failure, Scope, SessionMeta};
use ctx_session::{Answer, Code, Command, Limits, Refusal, SessionId, TerminalId, Timestamp};
use ctx_views::files::SessionFiles;
use ctx_views::identity::{First, Identity, Place};
use ctx_views::{RootDir, Sources};
use tokio::sync::broadcast;

use crate::admission::Slots;
use crate::broken::{GONE, PANICS_MAX, failed, panicked, refusal};
use crate::clock::Fresh;
use crate::connections::Connections;
use crate::driver::{Ask, Begin, DriverLink, Gone, ReplyTo, spawn};
use crate::followers::Behind;
use crate::index_files::Shelves;
use crate::live::Live;
use crate::notifications::Newsroom;
use crate::paths::Shelf;
use crate::port::Worker;
use crate::projects::Projects;
use crate::registry::{Broken, Registry, Summary};
use crate::request::{Caller, Parts};
use crate::run_lookup::RecentRuns;
use crate::spaces::Spaces;
use crate::spending::Spending;

pub(crate) struct Inner {
    pub journal: Arc<dyn Journal>,
    pub memory: Arc<dyn Journal>,
    pub root: Option<RootDir>,
    pub worker: Arc<dyn Worker>,
    pub limits: Arc<Limits>,
    pub fresh: Fresh,
    pub daemon_uid: u32,
    pub daemon_gid: u32,
    pub app: String,
    pub registry: Registry,
    pub slots: Slots,
    pub shelves: Arc<Shelves>,
    /// The index and the audit log; without a root, neither.
    pub behind: Arc<Behind>,
    pub runs: RecentRuns,
    pub connections: Connections,
    pub news: Newsroom,
    pub projects: Projects,
    pub spaces: Spaces,
    /// Held while a session is bound to an issue, so that no two get the same one.
    pub binding: tokio::sync::Mutex<()>,
    pub started_at: Timestamp,
    pub spending: Spending,
    pub active: Mutex<HashMap<SessionId, DriverLink>>,
    /// The group of each user that has come in: where there are no ACLs, they read their files by it.
    groups: Mutex<HashMap<u32, u32>>,
    /// Temp sessions and how many connections hold each.
    pub holds: Mutex<HashMap<SessionId, usize>>,
    /// How often in a row a driver has panicked on a session.
    pub panics: Mutex<HashMap<SessionId, u32>>,
    /// Sessions whose log failed, until they are taken up again.
    pub lost: Mutex<HashSet<SessionId>>,
    /// Terminals of sessions whose end somebody waits for.
    pub watched: Mutex<HashSet<TerminalId>>,
    pub terminal_news: broadcast::Sender<SessionId>,
    pub closing: AtomicBool,
}

impl Inner {
    pub fn new(parts: Parts) -> Inner {
        let own = Owner::user(parts.uid, parts.gid);
        let now = parts.fresh.now();
        let behind = parts.root.as_ref().map(|root| Behind::open(root, &parts.journal, own, now));
        Inner {
            behind: Arc::new(behind.unwrap_or_default()),
            journal: parts.journal,
            memory: parts.memory,
            root: parts.root,
            worker: parts.worker,
            limits: Arc::new(parts.limits),
            fresh: parts.fresh,
            daemon_uid: parts.uid,
            daemon_gid: parts.gid,
            app: parts.app,
            registry: Registry::default(),
            slots: Slots::default(),
            shelves: Arc::default(),
            runs: RecentRuns::default(),
            connections: Connections::default(),
            news: Newsroom::default(),
            projects: Projects::new(parts.project_files, parts.workspace),
            spaces: Spaces::new(parts.spaces),
            binding: tokio::sync::Mutex::default(),
            started_at: now,
            spending: Spending::since(now),
            active: Mutex::default(),
            groups: Mutex::default(),
            holds: Mutex::default(),
            panics: Mutex::default(),
            lost: Mutex::default(),
            watched: Mutex::default(),
            terminal_news: broadcast::Sender::new(256),
            closing: AtomicBool::new(false),
        }
    }

    pub fn refuse_when_closing(&self) -> Result<(), Refusal> {
        if self.closing.load(Ordering::SeqCst) {
            let message =
                "the daemon is stopping; start it again with `ctx serve`, then send the message again";
            return Err(Refusal::new(Code::Ehostdown, message));
        }
        Ok(())
    }

    /// A daemon that is not root can keep files for its own user alone.
    pub fn serve_user(&self, caller: Caller) -> Result<(), Refusal> {
        if self.daemon_uid != 0 && caller.uid != self.daemon_uid {
            let message =
                format!("this daemon serves only uid {}; start your own with `ctx serve`", self.daemon_uid);
            return Err(Refusal::new(Code::Eacces, message));
        }
        lock(&self.groups).insert(caller.uid, caller.gid);
        Ok(())
    }

    /// Whom the files of a user are kept for. A user not seen yet is given the group of the same number.
    pub fn owner_of_uid(&self, uid: u32) -> Owner {
        let gid = if uid == self.daemon_uid { Some(self.daemon_gid) } else { None };
        let gid = gid.or_else(|| lock(&self.groups).get(&uid).copied());
        Owner::user(uid, gid.unwrap_or(uid))
    }

    /// Whom the files of a session are kept for.
    pub fn owner_of(&self, meta: &SessionMeta) -> Owner {
        self.readers_of(meta.scope, meta.space.as_ref(), meta.owner)
    }

    /// What session a log is, by its first record, or by whoever else knows.
    pub fn identify(&self, log: &LogPath, place: &Place, first: First) -> Identity {
        let index = |log: &LogPath| self.behind.index()?.ask(|queries| queries.meta_at(log)).ok().flatten();
        let sources = Sources { journal: &*self.journal, root: self.root.as_ref(), index: &index };
        sources.identify_by(log, place, first)
    }

    /// The views behind a session, if it is one that they show.
    pub fn behind_of(&self, meta: &SessionMeta) -> Option<Arc<Behind>> {
        Shelf::of(meta).map(|_| self.behind.clone())
    }

    pub fn open_files(&self, dir: &str, owner: Owner) -> Option<SessionFiles> {
        let opened = SessionFiles::open(self.root.as_ref()?, Path::new(dir), owner);
        opened.inspect_err(|error| tracing::warn!(dir, %error, "session files cannot be shown")).ok()
    }

    /// The journal and the log of a session. Who does not stand for its driver asks [`Inner::with_log`], which keeps the
    /// directory where it is.
    pub fn log_of(&self, id: SessionId) -> Result<(Arc<dyn Journal>, LogPath), Refusal> {
        let gone = || Refusal::new(Code::Enoent, format!("no session {id}"));
        let summary = self.registry.get(id).ok_or_else(gone)?;
        let bad = |error: ctx_journal::BadLogPath| Refusal::new(Code::Eio, error.to_string());
        match Shelf::of(&summary.meta) {
            Some(shelf) => Ok((self.journal.clone(), shelf.log(&summary.dir_name).map_err(bad)?)),
            None => Ok((self.memory.clone(), LogPath::new(format!("temp/{id}/events.jsonl")).map_err(bad)?)),
        }
    }

    /// Asks a session's driver, loading it first; a driver that left meanwhile has a successor.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        id: SessionId,
        ask: impl Fn(ReplyTo<T>) -> Ask,
    ) -> Result<T, Refusal> {
        const TRIES: usize = 3;
        self.refuse_broken(id)?;
        self.room_to_load(id)?;
        for _ in 0..TRIES {
            match self.link(id).ask(&ask).await {
                Ok(reply) => return Ok(reply),
                Err(Gone::Refused(refusal)) => return Err(refusal),
                Err(Gone::Dropped { may_repeat: false }) => {
                    let message =
                        "the session was closed during this request; check its state before you send again";
                    return Err(Refusal::new(Code::Eio, message));
                }
                Err(Gone::Unloaded | Gone::Dropped { may_repeat: true }) => {}
            }
        }
        Err(Refusal::new(
            Code::Eio,
            format!("session {id} cannot be loaded; the daemon's log has the reason"),
        ))
    }

    /// Refuses to load one more session for a user who has as many loaded as they may.
    fn room_to_load(&self, id: SessionId) -> Result<(), Refusal> {
        let active = lock(&self.active);
        if active.contains_key(&id) {
            return Ok(());
        }
        let owner = self.registry.get(id).map(|summary| summary.meta.owner);
        self.room_for_one_more(&active, owner)
    }

    fn room_for_one_more(
        &self,
        active: &HashMap<SessionId, DriverLink>,
        whose: Option<u32>,
    ) -> Result<(), Refusal> {
        let max = self.limits.loaded_per_operator;
        let owner = |id: &SessionId| self.registry.get(*id).map(|summary| summary.meta.owner);
        if active.len() < max || active.keys().filter(|loaded| owner(loaded) == whose).count() < max {
            return Ok(());
        }
        let message =
            format!("{max} sessions of this user are in use; close some, or wait until they are idle");
        Err(Refusal::new(Code::Eagain, message))
    }

    /// Refuses a temp session to a user who has as many as they may.
    fn room_for_temp(
        &self,
        active: &HashMap<SessionId, DriverLink>,
        meta: &SessionMeta,
    ) -> Result<(), Refusal> {
        let max = self.limits.temp_per_operator;
        let is_one = |id: &SessionId| {
            let found = self.registry.get(*id);
            found.is_some_and(|found| found.meta.scope == Scope::Temp && found.meta.owner == meta.owner)
        };
        if meta.scope != Scope::Temp || active.keys().filter(|id| is_one(id)).count() < max {
            return Ok(());
        }
        let message = format!("you have {max} temp sessions; close a connection that holds one");
        Err(Refusal::new(Code::Eagain, message))
    }

    /// Has a command carried out.
    pub(crate) async fn command(
        self: &Arc<Self>,
        id: SessionId,
        command: Command,
    ) -> Result<Answer, Refusal> {
        self.ask(id, |reply| Ask::Do { command: command.clone(), reply }).await
    }

    /// The live events of a session.
    pub(crate) async fn live(self: &Arc<Self>, id: SessionId) -> Result<Arc<Live>, Refusal> {
        self.ask(id, |reply| Ask::Live { reply }).await
    }

    /// The live events of a session, if it is loaded now.
    pub(crate) fn live_now(&self, id: SessionId) -> Option<Arc<Live>> {
        lock(&self.active).get(&id)?.live()
    }

    /// What must have interrupted a session that is found running when it is loaded.
    pub fn interruption(&self, id: SessionId) -> Interruption {
        if lock(&self.lost).contains(&id) { Interruption::StorageFailure } else { Interruption::DaemonCrash }
    }

    /// The driver of a session, started if need be.
    pub(crate) fn link(self: &Arc<Self>, id: SessionId) -> DriverLink {
        let mut active = lock(&self.active);
        match active.get(&id) {
            Some(link) if !link.is_closed() => link.clone(),
            Some(_) | None => {
                let link = spawn(self, id, self.begin_of(id));
                active.insert(id, link.clone());
                link
            }
        }
    }

    /// Has a session unloaded that nobody else needs. Asked from the table, so that no way to it is held meanwhile.
    pub(crate) fn let_go(&self, id: SessionId) {
        if let Some(link) = lock(&self.active).get(&id) {
            link.let_go();
        }
    }

    /// Takes a new session in and starts its driver, in one step: who finds the name finds the driver. What came of it is
    /// told once the session is there, or is not.
    pub fn begin(
        self: &Arc<Self>,
        meta: Arc<SessionMeta>,
        owner: Owner,
        time: Timestamp,
    ) -> Result<tokio::sync::oneshot::Receiver<Result<(), Refusal>>, Refusal> {
        let id = meta.session_id;
        let mut active = lock(&self.active);
        self.room_for_temp(&active, &meta)?;
        self.room_for_one_more(&active, Some(meta.owner))?;
        self.registry.add(Summary::new(meta.clone(), time))?;
        let (made, told) = tokio::sync::oneshot::channel();
        active.insert(id, spawn(self, id, Begin::Create { meta, owner, time, made }));
        Ok(told)
    }

    /// Takes a driver out of the table; whoever asks next starts a new one. A successor's place is left alone.
    pub fn forget(&self, id: SessionId, link: &DriverLink) {
        let mut active = lock(&self.active);
        if active.get(&id).is_some_and(|found| found.is_same(link)) {
            active.remove(&id);
        }
    }

    /// The same, if nobody is about to ask. `let_go` is called while the table is locked, so that a successor finds
    /// the log free.
    pub fn forget_if(
        &self,
        id: SessionId,
        unused: impl Fn(&DriverLink) -> bool,
        let_go: impl FnOnce(),
    ) -> bool {
        let mut active = lock(&self.active);
        if !active.get(&id).is_some_and(unused) {
            return false;
        }
        let_go();
        active.remove(&id).is_some()
    }
}

/// Sessions that cannot be brought back: see [`crate::broken`].
impl Inner {
    /// A driver panicked, or loading its session did.
    pub(crate) fn note_panic(&self, id: SessionId) {
        *lock(&self.panics).entry(id).or_default() += 1;
    }

    /// Work on a session came to its end: what broke before did not break in a row.
    pub(crate) fn forget_panics(&self, id: SessionId) {
        lock(&self.panics).remove(&id);
    }

    /// How a session is to be taken up.
    pub(crate) fn begin_of(&self, id: SessionId) -> Begin {
        let panics = lock(&self.panics).get(&id).copied().unwrap_or(0);
        if panics < PANICS_MAX { Begin::Open } else { Begin::Fail { failure: panicked(id) } }
    }

    /// Refuses what is asked of a session on which ctx breaks.
    pub(crate) fn refuse_broken(&self, id: SessionId) -> Result<(), Refusal> {
        match self.registry.get(id) {
            Some(summary) if summary.broken == Some(Broken::Driver) => Err(refusal(id, &summary)),
            Some(_) | None => Ok(()),
        }
    }

    /// Shows a session as failed that its log does not know to be.
    pub(crate) fn break_down(&self, id: SessionId, broken: Broken, failure: Failure) -> Refusal {
        tracing::error!(session = %id, reason = failure.reason, message = failure.message, "a session has failed");
        let refusal = Refusal::new(Code::Eshutdown, failed(id, &failure.message));
        let log = self.log_of(id).ok().map(|(_, log)| log);
        self.registry.update(id, |summary| summary.break_down(broken, failure.clone()));
        let Some(summary) = self.registry.get(id) else { return refusal };
        if let Some(shelf) = Shelf::of(&summary.meta) {
            self.shelves.ended(self, &shelf, summary.meta.name.as_str());
            self.shelves.touch(shelf);
        }
        if let Some(log) = log {
            self.tell_broken(&log, failure);
        }
        self.news.ended(&summary.meta);
        refusal
    }

    /// Has the lists show a session as failed that its log does not know to be.
    pub(crate) fn tell_broken(&self, log: &LogPath, failure: Failure) {
        if failure.reason == GONE {
            self.behind.gone(log);
        }
        self.behind.broken(log, failure);
    }
}

/// A log that was lost is taken up through recovery, again and again until the disk lets it.
pub(crate) fn take_up_again(inner: &Arc<Inner>, id: SessionId) {
    const PAUSES_MS: [u64; 5] = [10, 1_000, 5_000, 30_000, 120_000];
    const LATER_MS: u64 = 600_000;
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        for pause in PAUSES_MS.into_iter().chain(std::iter::repeat(LATER_MS)) {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let Some(inner) = inner.upgrade() else { return };
            if inner.registry.get(id).is_none_or(|summary| summary.broken.is_some()) {
                return;
            }
            match inner.link(id).ask(|reply| Ask::Look { reply }).await {
                Ok(_) => return,
                // It has failed: whoever asks for it next tries again.
                Err(_) if inner.registry.get(id).is_none_or(|summary| summary.broken.is_some()) => return,
                Err(Gone::Refused(refusal)) => {
                    tracing::error!(session = %id, %refusal, "a lost log cannot be taken up yet");
                }
                Err(Gone::Unloaded | Gone::Dropped { .. }) => {}
            }
        }
    });
}
