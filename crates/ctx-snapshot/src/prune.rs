//! Room: how much the stores hold, and which snapshots go.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use ctx_session::{Timestamp, Ulid};
use serde::Serialize;

use super::SnapshotError;
use super::keep::may_go;
use super::store::{About, Info, Store, names_in};
use super::workspace::{Snapshots, Workspace};
use ctx_cage::rights::Rights;

/// The stores are measured again when this part of the budget was written since.
const MEASURE_EVERY: u64 = 100;
/// So many of the snapshots that may go are removed at once: each time, what is left is read.
const PART: usize = 8;

/// A workspace that has snapshots.
#[derive(Debug, Clone, Serialize)]
pub struct Held {
    #[serde(flatten)]
    pub about: About,
    pub snapshots: Vec<Info>,
}

/// What a prune removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub snapshots: u64,
    pub bytes: u64,
    /// The directories of which it could not remove snapshots, and why.
    pub failed: Vec<String>,
}

impl Pruned {
    fn add(&mut self, other: Pruned) {
        self.snapshots += other.snapshots;
        self.bytes += other.bytes;
        self.failed.extend(other.failed);
    }
}

fn is_of(store: &Store, uid: Option<u32>) -> bool {
    uid.is_none_or(|uid| store.about.uid == uid)
}

impl Snapshots {
    pub(super) fn stores(&self) -> Result<Vec<Store>, SnapshotError> {
        let names = names_in(&self.inner.dir)?;
        // One that is being made, or that is damaged, is not touched.
        Ok(names.into_iter().filter_map(|name| Store::existing(self.inner.dir.join(name)).ok()).collect())
    }

    /// Finishes or takes back every restore that was cut short.
    pub fn recover_all(&self) {
        let stores = self.stores().unwrap_or_default();
        for store in stores.into_iter().filter(|store| store.restore().is_ok_and(|left| left.is_some())) {
            let (path, uid) = (store.about.path.clone(), store.about.uid);
            let opened = Rights::of(uid).map_err(Into::into).and_then(|rights| self.open(&path, uid, rights));
            if let Err(error) = opened.and_then(|workspace| workspace.recover()) {
                tracing::error!(workspace = %path.display(), %error, "a restore that was cut short is still not finished");
            }
        }
    }

    /// What a user has; what all have, where none is named.
    pub fn held(&self, uid: Option<u32>) -> Result<Vec<Held>, SnapshotError> {
        let held = |store: Store| Ok(Held { snapshots: store.infos()?, about: store.about });
        self.stores()?.into_iter().filter(|store| is_of(store, uid)).map(held).collect()
    }

    /// A snapshot, among those of a user or of all, and its workspace.
    pub fn find(&self, uid: Option<u32>, id: Ulid) -> Result<(Workspace, Info), SnapshotError> {
        let (store, info) = self.find_saved(uid, id)?;
        let About { path, uid } = &store.about;
        Ok((self.open(path, *uid, Rights::of(*uid)?)?, info))
    }

    /// A snapshot and its store: its directory may be gone.
    pub fn find_saved(&self, uid: Option<u32>, id: Ulid) -> Result<(Store, Info), SnapshotError> {
        for store in self.stores()?.into_iter().filter(|store| is_of(store, uid)) {
            match store.info(id) {
                Ok(info) => return Ok((store, info)),
                Err(SnapshotError::NoSnapshot { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(SnapshotError::NoSnapshot { id: id.to_string(), workspace: "any directory".to_owned() })
    }

    pub fn bytes(&self) -> Result<u64, SnapshotError> {
        Ok(self.stores()?.iter().map(Store::bytes).sum())
    }

    /// Removes snapshots of a user, or of all, that were taken before a time, and all of sessions that are gone. `is_held`:
    /// whether a session of a user may still be rolled back, so that its checkpoints stay.
    pub fn prune(
        &self,
        of: Option<u32>,
        before: Timestamp,
        is_gone: &dyn Fn(Ulid, u32) -> bool,
        is_held: &dyn Fn(Ulid, u32) -> bool,
    ) -> Result<Pruned, SnapshotError> {
        let goes = |uid: u32, infos: &[Info]| {
            let is_held = |session: Ulid| is_held(session, uid);
            let needed: Vec<Info> =
                infos.iter().filter(|info| info.session.is_none_or(is_held)).cloned().collect();
            let free = may_go(&needed);
            let goes = |info: &&Info| match info.session {
                Some(session) if is_gone(session, uid) => true,
                Some(session) if is_held(session) => info.created < before && free.contains(&info.id),
                Some(_) | None => info.created < before,
            };
            infos.iter().filter(goes).map(|info| info.id).collect()
        };
        self.remove(of, &goes)
    }

    /// What is wrong with one store does not keep the others from being pruned.
    fn remove(
        &self,
        of: Option<u32>,
        goes: &dyn Fn(u32, &[Info]) -> Vec<Ulid>,
    ) -> Result<Pruned, SnapshotError> {
        let mut all = Pruned::default();
        for store in self.stores()?.into_iter().filter(|store| is_of(store, of)) {
            match remove_from(&store, goes) {
                Ok(pruned) => all.add(pruned),
                Err(error) => all.failed.push(format!("{}: {error}", store.about.path.display())),
            }
        }
        Ok(all)
    }

    /// Counts what was written, and makes room when there is too much.
    pub(super) fn grew(&self, written: u64) {
        let grown = self.inner.grown.fetch_add(written, Ordering::Relaxed).saturating_add(written);
        if written == 0 || grown < self.inner.limits.budget_bytes / MEASURE_EVERY {
            return;
        }
        self.inner.grown.store(0, Ordering::Relaxed);
        if let Err(error) = self.keep_within_budget() {
            tracing::warn!(%error, "no room could be made in the snapshot store");
        }
    }

    /// Removes the oldest snapshots that no checkpoint needs until each user's stores are within the budget.
    pub fn keep_within_budget(&self) -> Result<Pruned, SnapshotError> {
        let users: BTreeSet<u32> = self.stores()?.iter().map(|store| store.about.uid).collect();
        let mut all = Pruned::default();
        for uid in users {
            all.add(self.keep_within_budget_of(uid)?);
        }
        for failed in &all.failed {
            tracing::warn!("no room can be made among the snapshots of {failed}");
        }
        Ok(all)
    }

    fn keep_within_budget_of(&self, uid: u32) -> Result<Pruned, SnapshotError> {
        let own = |store: &Store| store.about.uid == uid;
        let mut all = Pruned::default();
        loop {
            let stores: Vec<Store> = self.stores()?.into_iter().filter(own).collect();
            if stores.iter().map(Store::bytes).sum::<u64>() <= self.inner.limits.budget_bytes {
                break;
            }
            // Those of a damaged store cannot go.
            let infos: Vec<Info> =
                stores.iter().filter_map(|store| store.all_infos().ok()).flatten().collect();
            let free = may_go(&infos);
            // The newest of them was just taken.
            let count = free.len().div_ceil(PART).min(free.len().saturating_sub(1));
            let Some(oldest) = free.get(..count).filter(|oldest| !oldest.is_empty()) else {
                tracing::warn!("the snapshot store is over its budget, and checkpoints need what is in it");
                break;
            };
            let goes = |_: u32, infos: &[Info]| {
                let ids = infos.iter().map(|info| info.id);
                ids.filter(|id| oldest.contains(id)).collect::<Vec<Ulid>>()
            };
            let pruned = self.remove(Some(uid), &goes)?;
            // It names all of them again.
            all.failed.clear();
            let was_last = pruned.snapshots == 0;
            all.add(pruned);
            if was_last {
                break;
            }
        }
        Ok(all)
    }
}

fn remove_from(store: &Store, goes: &dyn Fn(u32, &[Info]) -> Vec<Ulid>) -> Result<Pruned, SnapshotError> {
    let mut pruned = Pruned::default();
    if goes(store.about.uid, &store.all_infos()?).is_empty() || store.restore()?.is_some() {
        return Ok(pruned);
    }
    let locked = store.lock()?;
    if store.restore()?.is_some() {
        return Ok(pruned);
    }
    let infos = store.all_infos()?;
    let before = store.bytes();
    for id in goes(store.about.uid, &infos) {
        store.remove_info(id)?;
        pruned.snapshots += 1;
    }
    store.collect(&locked)?;
    pruned.bytes = before.saturating_sub(store.bytes());
    Ok(pruned)
}
