//! What every driver shares: the parts, the tables, and the one map of loaded sessions.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctx_journal::{Journal, LogPath, Owner};
use ctx_session::command::Interruption;
use ctx_session::record::{DetachReason, SessionMeta};
use ctx_session::{Code, Limits, Refusal, SessionId, Ulid};
use ctx_views::RootDir;
use ctx_views::files::SessionFiles;

use crate::admission::Slots;
use crate::clock::Fresh;
use crate::driver::{Ask, Begin, DriverLink, Gone, spawn};
use crate::engine::{Caller, Parts};
use crate::place::Shelf;
use crate::port::Worker;
use crate::recent::RecentRuns;
use crate::registry::Registry;
use crate::shelves::Shelves;

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
    pub runs: RecentRuns,
    pub active: Mutex<HashMap<SessionId, DriverLink>>,
    /// The group of each user that has come in: their files belong to it.
    groups: Mutex<HashMap<u32, u32>>,
    /// Temp sessions and how many connections hold each.
    pub holds: Mutex<HashMap<SessionId, usize>>,
    pub closing: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is a single insert or remove: a panic cannot leave them half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub fn new(parts: Parts) -> Inner {
        Inner {
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
            active: Mutex::default(),
            groups: Mutex::default(),
            holds: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    pub fn refuse_when_closing(&self) -> Result<(), Refusal> {
        if self.closing.load(Ordering::SeqCst) {
            let message = "the daemon is stopping; start it again with `ctx serve` and send once more";
            return Err(Refusal::new(Code::Ehostdown, message));
        }
        Ok(())
    }

    /// A daemon that is not root can keep files for its own user alone.
    pub fn serve_user(&self, caller: Caller) -> Result<(), Refusal> {
        if self.daemon_uid != 0 && caller.uid != self.daemon_uid {
            let message = format!("this daemon serves uid {} alone; run one of your own", self.daemon_uid);
            return Err(Refusal::new(Code::Eacces, message));
        }
        lock(&self.groups).insert(caller.uid, caller.gid);
        Ok(())
    }

    /// Whom the files of a user belong to. A user not seen yet is given the group of the same number.
    pub fn owner_of_uid(&self, uid: u32) -> Owner {
        let gid = if uid == self.daemon_uid { Some(self.daemon_gid) } else { None };
        let gid = gid.or_else(|| lock(&self.groups).get(&uid).copied());
        Owner { uid, gid: gid.unwrap_or(uid) }
    }

    pub fn owner_of(&self, meta: &SessionMeta) -> Owner {
        self.owner_of_uid(meta.owner)
    }

    pub fn open_files(&self, dir: &str, owner: Owner) -> Option<SessionFiles> {
        let opened = SessionFiles::open(self.root.as_ref()?, Path::new(dir), owner);
        opened.inspect_err(|error| tracing::warn!(dir, %error, "session files cannot be shown")).ok()
    }

    /// The journal and the log of a session, wherever its directory is now.
    pub fn log_of(&self, id: SessionId) -> Result<(Arc<dyn Journal>, LogPath), Refusal> {
        let gone = || Refusal::new(Code::Enoent, format!("there is no session {id}"));
        let summary = self.registry.get(id).ok_or_else(gone)?;
        let bad = |error: ctx_journal::BadLogPath| Refusal::new(Code::Eio, error.to_string());
        match Shelf::of(&summary.meta) {
            Some(shelf) => Ok((self.journal.clone(), shelf.log(&summary.dir_name).map_err(bad)?)),
            None => Ok((self.memory.clone(), LogPath::new(format!("temp/{id}/events.jsonl")).map_err(bad)?)),
        }
    }

    /// The driver of a session, started if need be.
    pub(crate) fn link(self: &Arc<Self>, id: SessionId) -> DriverLink {
        self.link_after(id, Interruption::DaemonCrash)
    }

    fn link_after(self: &Arc<Self>, id: SessionId, cause: Interruption) -> DriverLink {
        let mut active = lock(&self.active);
        match active.get(&id) {
            Some(link) if !link.is_closed() => link.clone(),
            Some(_) | None => {
                let link = spawn(self, id, Begin::Open { cause });
                active.insert(id, link.clone());
                link
            }
        }
    }

    pub fn begin(self: &Arc<Self>, id: SessionId, begin: Begin) -> DriverLink {
        let link = spawn(self, id, begin);
        lock(&self.active).insert(id, link.clone());
        link
    }

    /// Takes a driver out of the table; whoever asks next starts a new one.
    pub fn forget(&self, id: SessionId) {
        lock(&self.active).remove(&id);
    }

    /// The same, if nobody is about to ask. The table is locked, so nobody can begin to.
    pub fn forget_if(&self, id: SessionId, unused: impl Fn(&DriverLink) -> bool) -> bool {
        let mut active = lock(&self.active);
        match active.get(&id) {
            Some(link) if unused(link) => active.remove(&id).is_some(),
            Some(_) => false,
            None => true,
        }
    }

    /// Interactive connections register with their door; the engine only says whom it means.
    pub fn close_connection(&self, connection: Ulid, reason: DetachReason) {
        tracing::debug!(%connection, ?reason, "an attached connection is closed");
    }
}

/// A log that was lost is taken up through recovery, again and again until the disk lets it.
pub(crate) fn take_up_again(inner: &Arc<Inner>, id: SessionId) {
    const PAUSES_MS: [u64; 6] = [10, 1_000, 5_000, 30_000, 120_000, 600_000];
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        for pause in PAUSES_MS {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let Some(inner) = inner.upgrade() else { return };
            let link = inner.link_after(id, Interruption::StorageFailure);
            match link.ask(Ask::Look).await {
                Ok(_) => return,
                Err(Gone::Refused(refusal)) => {
                    tracing::error!(session = %id, %refusal, "a lost log cannot be taken up yet");
                }
                Err(Gone::Unloaded | Gone::Dropped) => {}
            }
        }
    });
}
