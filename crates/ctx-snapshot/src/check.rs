//! Looking for damage: lines about snapshots that cannot be read, and content that does not fit its name. Changes nothing.

use std::collections::HashSet;
use std::io::ErrorKind;

use super::SnapshotError;
use super::store::{Store, names_in};
use super::tree::Hash;
use super::workspace::Snapshots;

impl Snapshots {
    /// What is damaged in all stores. `seen` hears how many bytes were looked at, and of how many.
    pub fn damage(&self, seen: &mut dyn FnMut(u64, u64)) -> Result<Vec<SnapshotError>, SnapshotError> {
        let stores = self.stores()?;
        let total = stores.iter().map(Store::bytes).sum();
        let (mut damage, mut done) = (Vec::new(), 0);
        for store in &stores {
            store.damage(&mut damage, &mut |bytes| {
                done += bytes;
                seen(done, total);
            })?;
        }
        Ok(damage)
    }
}

impl Store {
    fn damage(
        &self,
        damage: &mut Vec<SnapshotError>,
        seen: &mut dyn FnMut(u64),
    ) -> Result<(), SnapshotError> {
        let mut trees = HashSet::new();
        for id in self.ids()? {
            match self.info(id) {
                Ok(info) => drop(trees.insert(info.tree)),
                error => damage.extend(error.err().filter(is_damage)),
            }
        }
        damage.extend(trees.iter().filter_map(|tree| self.tree(tree).err()).filter(is_damage));
        let objects = self.dir().join("objects");
        for outer in names_in(&objects)? {
            for name in names_in(&objects.join(&outer))? {
                let Some(hash) = Hash::parse(&format!("{outer}{name}")) else { continue };
                damage.extend(self.piece(hash).err().filter(is_damage));
                seen(self.object_path(hash).metadata().map_or(0, |data| data.len()));
            }
        }
        Ok(())
    }
}

/// What is gone was removed meanwhile.
fn is_damage(error: &SnapshotError) -> bool {
    match error {
        SnapshotError::Io { source, .. } => source.kind() != ErrorKind::NotFound,
        error => !matches!(error, SnapshotError::NoSnapshot { .. }),
    }
}
