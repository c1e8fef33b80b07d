//! A glance at one project, for those who read its sessions: cheap, and never held up by another project's directory.
//! What follows from all projects together is the business of a look.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ctx_journal::lock;
use ctx_session::Name;

use crate::engine::Engine;
use crate::projects::Glance;

/// How long a directory may take to answer before what was last seen is taken.
const GLANCE_MAX: Duration = Duration::from_secs(1);
/// For how long what was seen is good enough: many who read at once cost one look.
const SEEN_FOR: Duration = Duration::from_millis(50);

impl Engine {
    /// The snapshot that a new session of a project would keep; None: the project is invalid, or is not there. As its
    /// files are now, unless someone is at them already, was a moment ago, or they do not answer: then as they were
    /// last seen.
    pub async fn current_snapshot(&self, slug: &Name) -> Option<String> {
        let standing = self.inner.standing(slug)?;
        let known = standing.found.ok()?.snapshot_hash.clone();
        if let Some(seen) = begin(&self.inner.projects.glances, slug, &known) {
            return seen;
        }
        let (inner, slug) = (self.inner.clone(), slug.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let look = inner.look_at(&slug, &standing.entry);
            let now = look.found.ok().map(|file| file.snapshot_hash.clone());
            // Others look again only after this, however long it took.
            let glance = Glance { ended_at: Some(Instant::now()), snapshot: now.clone() };
            lock(&inner.projects.glances).insert(slug, glance);
            now
        });
        match tokio::time::timeout(GLANCE_MAX, looking).await {
            Ok(Ok(now)) => now,
            Ok(Err(_)) | Err(_) => Some(known),
        }
    }
}

/// What was last seen, where that is good enough; otherwise the caller looks, and nobody else meanwhile.
fn begin(glances: &Mutex<BTreeMap<Name, Glance>>, slug: &Name, known: &str) -> Option<Option<String>> {
    let mut glances = lock(glances);
    match glances.get_mut(slug) {
        Some(last) if last.ended_at.is_none_or(|at| at.elapsed() < SEEN_FOR) => {
            return Some(last.snapshot.clone());
        }
        Some(last) => last.ended_at = None,
        None => {
            let glance = Glance { ended_at: None, snapshot: Some(known.to_owned()) };
            glances.insert(slug.clone(), glance);
        }
    }
    None
}
