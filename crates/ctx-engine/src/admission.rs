//! Slots: a reserved place among the running sessions that gives itself back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_session::admission::{Admissions, Counts};
use ctx_session::record::LimitHit;
use ctx_session::{Limits, Name};
use tokio::sync::{broadcast, watch};

/// The running counts and everyone who wants to hear of them.
#[derive(Debug, Clone)]
pub struct Slots {
    table: Arc<Mutex<Admissions>>,
    counts: Arc<watch::Sender<Counts>>,
    changes: broadcast::Sender<Arc<Counts>>,
}

/// Changes of the counts that wait for a listener; one that falls behind is told so.
const CHANGES: usize = 1_024;

impl Default for Slots {
    fn default() -> Self {
        Slots {
            table: Arc::default(),
            counts: Arc::new(watch::Sender::new(Counts::default())),
            changes: broadcast::Sender::new(CHANGES),
        }
    }
}

/// One running session's place. Dropping it releases it.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    project: Name,
    operator: u32,
    /// How many ran by each limit when it was taken, this one among them.
    pub running: [LimitHit; 2],
}

impl Slots {
    fn table(&self) -> MutexGuard<'_, Admissions> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, or says which limit stands in the way.
    pub fn reserve(&self, project: &Name, operator: u32, limits: &Limits) -> Result<Slot, LimitHit> {
        let running = self.table().reserve(project, operator, limits)?;
        Ok(Slot { slots: self.clone(), project: project.clone(), operator, running })
    }

    /// Tells every listener the counts as they are now.
    pub fn broadcast(&self) {
        let counts = self.table().counts();
        // Nobody listening is fine.
        let _ = self.changes.send(Arc::new(counts.clone()));
        self.counts.send_replace(counts);
    }

    /// Every change from now on, none left out.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Counts>> {
        self.changes.subscribe()
    }

    pub fn counts(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.table().release(&self.project, self.operator);
    }
}
