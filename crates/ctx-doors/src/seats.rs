//! How many of something each user may have at a time, so that no user can use up what all share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number of seats for each user. Cloning it is cheap, and the clone counts the same seats.
#[derive(Clone)]
pub struct Seats {
    inner: Arc<Inner>,
}

struct Inner {
    per_user: usize,
    taken: Mutex<HashMap<u32, usize>>,
}

/// A seat, given back when it is dropped.
pub struct Seat {
    seats: Seats,
    pub uid: u32,
}

impl Seats {
    pub fn new(per_user: usize) -> Seats {
        Seats { inner: Arc::new(Inner { per_user, taken: Mutex::default() }) }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.inner.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a user; None when they have as many as they may.
    pub fn take(&self, uid: u32) -> Option<Seat> {
        let mut taken = self.taken();
        let count = taken.entry(uid).or_insert(0);
        if *count >= self.inner.per_user {
            return None;
        }
        *count += 1;
        Some(Seat { seats: self.clone(), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_their_own_seats_and_gives_them_back() {
        let seats = Seats::new(2);
        let first = seats.take(1).unwrap();
        let _second = seats.take(1).unwrap();
        assert!(seats.take(1).is_none());
        assert!(seats.take(2).is_some(), "another user is not held up");
        drop(first);
        assert!(seats.take(1).is_some());
        assert!(!seats.taken().contains_key(&2), "who has no seat is forgotten");
    }
}
