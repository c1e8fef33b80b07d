//! Index files behind the sessions: written within 200 ms of a change, and at shutdown at once.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ctx_session::record::Scope;
use ctx_views::{IndexEntry, IndexFiles, RootDir, ViewError};
use tokio::sync::Notify;

use crate::paths::Shelf;
use crate::registry::Summary;
use crate::shared::Inner;

/// How long changes are gathered before the files are written.
const GATHER: Duration = Duration::from_millis(100);

/// Which shelves have changed since their index was written.
#[derive(Debug, Default)]
pub struct Shelves {
    dirty: Mutex<HashSet<Shelf>>,
    changed: Notify,
    writers: Mutex<HashMap<Shelf, IndexFiles>>,
}

impl Shelves {
    pub fn touch(&self, shelf: Shelf) {
        let fresh = self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert(shelf);
        if fresh {
            self.changed.notify_one();
        }
    }

    fn take_dirty(&self) -> HashSet<Shelf> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says at once which session of a shelf was last posted to. Blocking.
    pub fn set_current(&self, inner: &Inner, shelf: &Shelf, name: &str) {
        self.with_files(inner, shelf, |files| files.write_current(Some(name)));
    }

    /// A session is over, or put away: if it was the current one of its shelf, another is. Blocking.
    pub fn ended(&self, inner: &Inner, shelf: &Shelf, name: &str) {
        self.with_files(inner, shelf, |files| {
            if !files.may_be_current(name) {
                return Ok(());
            }
            files.write_current(inner.registry.current_of(shelf).as_deref())
        });
    }

    fn with_files(
        &self,
        inner: &Inner,
        shelf: &Shelf,
        write: impl FnOnce(&mut IndexFiles) -> Result<(), ViewError>,
    ) {
        let Some(root) = &inner.root else { return };
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let files = writers.entry(shelf.clone()).or_insert_with(|| open(inner, root, shelf));
        if let Err(error) = write(files) {
            tracing::warn!(shelf = shelf.dir(), %error, "the session index is behind");
        }
    }

    /// Writes every index that is behind. Blocking.
    pub fn flush(&self, inner: &Inner) {
        for shelf in self.take_dirty() {
            // A session whose directory is there and that is not yet known would be missing in a list that looks
            // new. At shutdown nothing is being made any more.
            if inner.registry.is_making(&shelf) && inner.refuse_when_closing().is_ok() {
                self.touch(shelf);
                continue;
            }
            // Read under the lock: a session that became current meanwhile is in the registry by then.
            self.with_files(inner, &shelf, |files| files.write(&entries(inner, &shelf)));
        }
    }
}

fn open(inner: &Inner, root: &RootDir, shelf: &Shelf) -> IndexFiles {
    let owner = match shelf {
        Shelf::Private { owner, .. } => inner.owner_of_uid(*owner),
        Shelf::Shared { space, .. } => inner.readers_of(Scope::Shared, Some(space), inner.daemon_uid),
    };
    IndexFiles::new(root, Path::new(&shelf.dir()), owner)
}

/// The sessions that a client can resume by their name.
fn entries(inner: &Inner, shelf: &Shelf) -> Vec<IndexEntry> {
    let goes_on = |summary: &Summary| {
        summary.can_be_resumed_by_name() && Shelf::of(&summary.meta).as_ref() == Some(shelf)
    };
    let on_shelf = inner.registry.select(goes_on);
    let entry = |summary: &Arc<Summary>| IndexEntry {
        name: summary.dir_name.clone(),
        updated_at: summary.updated_at,
        posted_at: summary.posted_at,
        cwd: summary.cwd.clone(),
    };
    on_shelf.iter().map(entry).collect()
}

/// Writes what has changed, a little later and together, until the engine goes.
pub fn spawn_writer(inner: &Arc<Inner>) {
    let inner: Weak<Inner> = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            let Some(strong) = inner.upgrade() else { return };
            let shelves = strong.shelves.clone();
            drop(strong);
            shelves.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let Some(strong) = inner.upgrade() else { return };
            let written = tokio::task::spawn_blocking(move || strong.shelves.flush(&strong)).await;
            if let Err(error) = written {
                tracing::error!(%error, "writing the session index panicked");
            }
        }
    });
}
