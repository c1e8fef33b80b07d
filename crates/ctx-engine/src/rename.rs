//! The directory of a session that is over gets another name when its own is used again: `<name>+<ulid>`.
//!
//! Ending a session moves nothing, so that whoever looks at it meanwhile finds it. The directory is renamed before the new
//! session is made; a crash between the two leaves a name that is free. Only the session's driver renames it, or a task
//! in the place of one, so that it is not loaded from where another session is about to be.

use std::sync::{Arc, PoisonError};

use ctx_journal::{Journal, JournalError, LogPath, lock};
use ctx_session::record::SessionMeta;
use ctx_session::{Code, Refusal, SessionId, State};

use crate::broken::{GONE, gone, is_gone, refusal};
use crate::core::journal_refusal;
use crate::driver::{Ask, Begin, Gone, spawn};
use crate::paths::{Shelf, freed_name};
use crate::registry::Broken;
use crate::shared::Inner;

impl Inner {
    /// Frees the directory that a new session of this name will have, if one that is over still has it.
    pub(crate) async fn free_directory(self: &Arc<Self>, meta: &SessionMeta) -> Result<(), Refusal> {
        let over = Shelf::of(meta).and_then(|shelf| self.registry.over_in(&shelf, meta.name.as_str()));
        match over {
            Some(over) => self.rename_over(over).await,
            None => Ok(()),
        }
    }

    /// Has the directory of a session that is over renamed, without loading the session. Nothing if it was before.
    pub(crate) async fn rename_over(self: &Arc<Self>, id: SessionId) -> Result<(), Refusal> {
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            let renamed = match self.driver_or_rename(id) {
                Ok(link) => link.ask(|reply| Ask::Rename { reply }).await,
                Err(renamed) => match renamed.await {
                    Ok(renamed) => renamed.map_err(Gone::Refused),
                    Err(_) => Err(Gone::Dropped { may_repeat: true }),
                },
            };
            match renamed {
                Ok(()) => return Ok(()),
                Err(Gone::Refused(refusal)) => return Err(refusal),
                Err(Gone::Unloaded | Gone::Dropped { .. }) => {}
            }
        }
        Err(Refusal::new(
            Code::Eio,
            format!("the directory of session {id}, which is over, cannot be renamed"),
        ))
    }

    /// The driver of a session that is loaded, or the end of a renaming that has begun in its place.
    fn driver_or_rename(
        self: &Arc<Self>,
        id: SessionId,
    ) -> Result<crate::driver::DriverLink, tokio::sync::oneshot::Receiver<Result<(), Refusal>>> {
        let mut active = lock(&self.active);
        if let Some(link) = active.get(&id).filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let (done, renamed) = tokio::sync::oneshot::channel();
        active.insert(id, spawn(self, id, Begin::Rename { done }));
        Err(renamed)
    }

    /// Renames the directory of a session that is over; where its log is now, if it was renamed. To be called by whoever
    /// stands for the session's driver. Blocking.
    pub(crate) fn rename_directory(&self, id: SessionId) -> Result<Option<LogPath>, Refusal> {
        // Purged meanwhile: there is nothing to rename.
        let Some(summary) = self.registry.get(id) else { return Ok(None) };
        let freed = freed_name(&summary.meta.name, id);
        let Some(shelf) = Shelf::of(&summary.meta).filter(|_| summary.state.is_over()) else {
            return Ok(None);
        };
        if summary.dir_name == freed {
            return Ok(None);
        }
        let bad = |error: ctx_journal::BadLogPath| Refusal::new(Code::Eio, error.to_string());
        let (from, to) = (shelf.log(&summary.dir_name).map_err(bad)?, shelf.log(&freed).map_err(bad)?);
        let _alone = summary.place.write().unwrap_or_else(PoisonError::into_inner);
        let is_gone = match self.journal.rename(&from, &to) {
            Ok(()) => false,
            Err(JournalError::NotThere { .. }) => true,
            Err(error) => return Err(journal_refusal(&error)),
        };
        self.behind.moved(&from, &to);
        self.registry.update(id, |summary| summary.dir_name = freed);
        // What could not be read before can be read no better elsewhere: it stays failed, with the place where it is now.
        let failure = match (summary.broken, summary.details.as_deref().map(|details| &details.state)) {
            _ if is_gone => Some(gone(id, &to)),
            (Some(Broken::Log), Some(State::Failed(failure))) if failure.reason == GONE => {
                Some(gone(id, &to))
            }
            (Some(Broken::Log), Some(State::Failed(failure))) => Some(failure.clone()),
            _ => None,
        };
        if let Some(failure) = failure {
            self.registry.update(id, |summary| summary.break_down(Broken::Log, failure.clone()));
            self.tell_broken(&to, failure);
        }
        Ok(Some(to))
    }

    /// Reads a session's log, wherever its directory is, which stays there meanwhile. Blocking.
    pub(crate) fn with_log<T>(
        &self,
        id: SessionId,
        read: impl FnOnce(&dyn Journal, &LogPath) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let unknown = || Refusal::new(Code::Enoent, format!("there is no session {id}"));
        let summary = self.registry.get(id).ok_or_else(unknown)?;
        let _shared = summary.place.read().unwrap_or_else(PoisonError::into_inner);
        let (journal, log) = self.log_of(id)?;
        let done = read(&*journal, &log);
        match (&done, summary.broken) {
            (Err(_), Some(Broken::Log)) => Err(refusal(id, &summary)),
            (Err(why), None) if why.code == Code::Enoent && is_gone(&*journal, &log) => {
                Err(self.break_down(id, Broken::Log, gone(id, &log)))
            }
            _ => done,
        }
    }
}
