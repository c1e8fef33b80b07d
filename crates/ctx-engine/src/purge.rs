//! Purging: a session that is over is deleted for good, with its log, its blobs and its files. Its audit lines stay, and
//! one more says who purged it.

use std::ops::ControlFlow;

use ctx_journal::{Journal, JournalError, LogPath, lock};
use ctx_session::record::Scope;
use ctx_session::rules::may_purge;
use ctx_session::{Code, Refusal, SessionId};
use ctx_views::audit::Deed;
use ctx_views::files::{LATEST, MESSAGES};

use crate::core::journal_refusal;
use crate::engine::Engine;
use crate::paths::Shelf;
use crate::registry::{Broken, Summary};
use crate::request::Caller;
use crate::shared::Inner;

impl Engine {
    /// Deletes a session. It is gone, also after a crash, when this returns.
    pub async fn purge(&self, caller: Caller, id: SessionId) -> Result<(), Refusal> {
        let summary = self.find(caller, id)?;
        self.check_owner(caller, &summary)?;
        may_purge(summary.state)?;
        let engine = self.clone();
        // A task of its own: a client that goes must not leave half of this done.
        let purged = tokio::spawn(async move { engine.purge_over(caller, id).await }).await;
        purged.map_err(|error| Refusal::new(Code::Eio, format!("purging a session broke: {error}")))?
    }

    async fn purge_over(&self, caller: Caller, id: SessionId) -> Result<(), Refusal> {
        let inner = &self.inner;
        if self.find(caller, id)?.broken == Some(Broken::Log) && self.purge_gone(caller, id).await? {
            return Ok(());
        }
        // A new session can have its name while it is removed.
        inner.rename_over(id).await?;
        let summary = self.find(caller, id)?;
        let (journal, log) = inner.log_of(id)?;
        // Nobody finds it from here on, so nobody loads it again once its driver has left.
        inner.registry.remove(id);
        let link = lock(&inner.active).get(&id).cloned();
        if let Some(link) = link {
            link.shut_down().await;
        }
        let (at_work, path, of) = (inner.clone(), log.clone(), summary.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let removed = remove(&at_work, caller, &*journal, &path, &of);
            if removed.is_ok() {
                at_work.worker.forget_terminals(of.meta.owner, of.meta.session_id);
            }
            let is_gone = matches!(journal.head(&path), Err(JournalError::NotThere { .. }));
            (removed, is_gone)
        });
        match removed.await {
            Ok((Ok(()), _)) => {}
            Ok((Err(refusal), true)) => {
                tracing::warn!(session = %id, %refusal, "a purged session is gone, but not all of its bytes yet");
            }
            Ok((Err(refusal), false)) => {
                inner.registry.add(summary)?;
                return Err(refusal);
            }
            Err(error) => return Err(Refusal::new(Code::Eio, format!("removing a log broke: {error}"))),
        }
        inner.news.purged(&summary.meta);
        if let Some(shelf) = Shelf::of(&summary.meta) {
            inner.shelves.touch(shelf);
        }
        Ok(())
    }

    /// Forgets a session whose log is gone or cannot be read, and removes what is left of its directory; false where the log
    /// can be read after all.
    async fn purge_gone(&self, caller: Caller, id: SessionId) -> Result<bool, Refusal> {
        let inner = self.inner.clone();
        let summary = self.find(caller, id)?;
        let of = summary.clone();
        let forgotten = crate::lookup::blocking(move || {
            let (journal, log) = inner.log_of(id)?;
            if journal.head(&log).is_ok() {
                return Ok(false);
            }
            if let Some(root) = &inner.root {
                match std::fs::remove_dir_all(root.path().join(log.dir())) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Refusal::new(
                            Code::Eio,
                            format!("{}: cannot remove it: {error}", log.dir()),
                        ));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            let purged = Deed::new(&of.meta, of.next_seq.unwrap_or(0), caller.uid, inner.fresh.now());
            inner.behind.purge_gone(purged)?;
            inner.registry.remove(id);
            Ok(true)
        });
        let is_forgotten = forgotten.await?;
        if is_forgotten {
            self.inner.news.purged(&summary.meta);
        }
        Ok(is_forgotten)
    }
}

fn remove(
    inner: &Inner,
    caller: Caller,
    journal: &dyn Journal,
    log: &LogPath,
    summary: &Summary,
) -> Result<(), Refusal> {
    if summary.meta.scope == Scope::Temp {
        return journal.remove(log).map_err(|error| journal_refusal(&error));
    }
    let mut next_seq = 0;
    let end = journal.read_back(log, &mut |last| {
        next_seq = last.seq + 1;
        ControlFlow::Break(())
    });
    match end {
        // What cannot be read can be removed all the same.
        Err(_) if summary.broken.is_some() => {}
        end => drop(end.map_err(|error| journal_refusal(&error))?),
    }
    let purged = Deed::new(&summary.meta, next_seq, caller.uid, inner.fresh.now());
    match inner.behind.purge(journal, log, &purged) {
        Err(refusal) if refusal.code == Code::Enospc => {
            make_room(inner, log);
            inner.behind.purge(journal, log, &purged)
        }
        done => done,
    }
}

/// A full disk has no room for the notice of a purge. The session's views, which are made again from its log if it stays
/// after all, have some.
fn make_room(inner: &Inner, log: &LogPath) {
    let Some(root) = &inner.root else { return };
    for view in [MESSAGES, LATEST] {
        // One that is not there has no room to give.
        let _ = std::fs::remove_file(root.path().join(log.dir()).join(view));
    }
}
