//! Syncs logs behind the answer: one thread for the process, started when it is first needed.
//!
//! It sleeps while nothing is dirty. A log that becomes dirty is synced with all others that did meanwhile,
//! well within the 200 ms that are promised.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::writer::{OpenLog, lock};

const DELAY: Duration = Duration::from_millis(100);

struct Later {
    dirty: Mutex<Vec<Weak<OpenLog>>>,
    /// A log became dirty.
    wake: Condvar,
}

/// Has a log synced soon. When there is no thread to be had, it is synced when its writer is flushed or dropped.
pub(crate) fn sync_later(log: &Arc<OpenLog>) {
    static LATER: OnceLock<Option<Arc<Later>>> = OnceLock::new();
    let Some(later) = LATER.get_or_init(start) else { return };
    let mut dirty = lock(&later.dirty);
    let this = Arc::downgrade(log);
    if !dirty.iter().any(|known| known.ptr_eq(&this)) {
        dirty.push(this);
        later.wake.notify_one();
    }
}

fn start() -> Option<Arc<Later>> {
    let later = Arc::new(Later { dirty: Mutex::default(), wake: Condvar::new() });
    let of_thread = Arc::clone(&later);
    std::thread::Builder::new().name("journal-sync".to_owned()).spawn(move || run(&of_thread)).ok()?;
    Some(later)
}

fn run(later: &Later) -> ! {
    loop {
        let mut dirty = lock(&later.dirty);
        while dirty.is_empty() {
            dirty = later.wake.wait(dirty).unwrap_or_else(PoisonError::into_inner);
        }
        drop(dirty);
        std::thread::sleep(DELAY);
        let logs = std::mem::take(&mut *lock(&later.dirty));
        for log in logs.iter().filter_map(Weak::upgrade) {
            // A failure poisons the log, and the next append says so.
            let _ = log.sync_written();
        }
    }
}
