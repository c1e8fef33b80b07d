//! One way to take a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also after a panic under it: every change under the locks of the engine is a single insert or remove, or
/// a whole new table, so a panic cannot leave them half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
