//! A glance at one project, for those who read its sessions: cheap, and never held up by another project's directory.
//! What follows from all projects together is the business of a look.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctx_journal::lock;
use ctx_session::Name;

use crate::engine::Engine;

/// How long a directory may take to answer before what was last seen is taken.
const GLANCE_MAX: Duration = Duration::from_secs(1);

/// A glance that is under way.
struct Glance {
    table: Arc<Mutex<BTreeSet<Name>>>,
    slug: Name,
}

impl Glance {
    /// None: someone is at it.
    fn begin(table: &Arc<Mutex<BTreeSet<Name>>>, slug: &Name) -> Option<Glance> {
        let is_first = lock(table).insert(slug.clone());
        is_first.then(|| Glance { table: table.clone(), slug: slug.clone() })
    }
}

impl Drop for Glance {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.slug);
    }
}

impl Engine {
    /// The snapshot that a new session of a project would keep; None: the project is invalid, or is not there. As its
    /// files are now, unless someone is at them already or they do not answer: then as they were last seen.
    pub async fn current_snapshot(&self, slug: &Name) -> Option<String> {
        let standing = self.inner.standing(slug)?;
        let seen = standing.found.ok()?.snapshot_hash.clone();
        let Some(glance) = Glance::begin(&self.inner.projects.glanced_at, slug) else { return Some(seen) };
        let (inner, slug) = (self.inner.clone(), slug.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let look = inner.look_at(&slug, &standing.entry);
            // Held until now, however long that took.
            drop(glance);
            look.found.ok().map(|file| file.snapshot_hash.clone())
        });
        match tokio::time::timeout(GLANCE_MAX, looking).await {
            Ok(Ok(now)) => now,
            Ok(Err(_)) | Err(_) => Some(seen),
        }
    }
}
