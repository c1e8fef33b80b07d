//! The places of connections over TCP. A connection begins among the strangers, of whom there are few at a time; the
//! first request with a good token makes it that user's, who have a number of places each.
//!
//! A stranger that holds its place while others wait is let go, so that nobody without a token keeps out those with one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctx_session::{Code, Refusal};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::seats::{Seat, Seats};

/// Strangers at a time.
const STRANGERS_MAX: usize = 64;
/// How long a stranger keeps its place although another waits for one.
const STRANGER_KEEPS: Duration = Duration::from_secs(1);

/// The pool of the strangers. Cloning it is cheap.
#[derive(Clone, Default)]
pub(super) struct Strangers {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Oldest first.
    table: Mutex<VecDeque<Stranger>>,
    numbers: AtomicU64,
    freed: Notify,
}

struct Stranger {
    number: u64,
    since: Instant,
    leave: CancellationToken,
}

/// A stranger's place, given back when it is dropped.
pub(super) struct StrangersPlace {
    number: u64,
    pool: Strangers,
}

impl Drop for StrangersPlace {
    fn drop(&mut self) {
        self.pool.table().retain(|stranger| stranger.number != self.number);
        self.pool.inner.freed.notify_one();
    }
}

impl Strangers {
    fn table(&self) -> MutexGuard<'_, VecDeque<Stranger>> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, and what is cancelled when the connection has to leave it. Waits while all places are taken by newcomers.
    pub async fn take(&self) -> (StrangersPlace, CancellationToken) {
        loop {
            let oldest = {
                let mut table = self.table();
                match table.front().filter(|_| table.len() >= STRANGERS_MAX) {
                    None => return self.enter(&mut table),
                    Some(oldest) => oldest.since,
                }
            };
            tokio::select! {
                () = self.inner.freed.notified() => {}
                () = tokio::time::sleep_until(oldest + STRANGER_KEEPS) => {
                    let gone = self.table().pop_front();
                    if let Some(gone) = gone {
                        gone.leave.cancel();
                    }
                }
            }
        }
    }

    fn enter(&self, table: &mut VecDeque<Stranger>) -> (StrangersPlace, CancellationToken) {
        let number = self.inner.numbers.fetch_add(1, Ordering::Relaxed);
        let leave = CancellationToken::new();
        table.push_back(Stranger { number, since: Instant::now(), leave: leave.clone() });
        (StrangersPlace { number, pool: self.clone() }, leave)
    }
}

/// The place that a connection has now.
#[derive(Clone)]
pub(super) struct Standing {
    place: Arc<Mutex<Place>>,
    users: Seats,
}

enum Place {
    Stranger { _place: StrangersPlace },
    User(Seat),
}

impl Standing {
    pub fn stranger(place: StrangersPlace, users: Seats) -> Standing {
        Standing { place: Arc::new(Mutex::new(Place::Stranger { _place: place })), users }
    }

    /// Makes the connection a user's. A proxy may send the requests of several users over one.
    pub fn belongs_to(&self, uid: u32) -> Result<(), Refusal> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*place, Place::User(seat) if seat.uid == uid) {
            return Ok(());
        }
        *place = Place::User(self.users.take(uid).ok_or_else(too_many)?);
        Ok(())
    }
}

/// What a user is told who has as many connections as they may.
pub(super) fn too_many() -> Refusal {
    let message = "your connection limit is reached (limits.http_connections); close a connection, or wait";
    Refusal::new(Code::Ehostdown, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_who_stays_makes_room_for_who_waits() {
        let pool = Strangers::default();
        let mut held = Vec::new();
        for _ in 0..STRANGERS_MAX {
            held.push(pool.take().await);
        }
        let begun = Instant::now();
        let _one_more = pool.take().await;
        assert_eq!(begun.elapsed(), STRANGER_KEEPS);
        let left = held.iter().filter(|(_, leave)| leave.is_cancelled()).count();
        assert_eq!(left, 1, "only the oldest has to leave");
        assert!(held.first().is_some_and(|(_, leave)| leave.is_cancelled()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_shows_a_token_leaves_the_pool() {
        let (pool, users) = (Strangers::default(), Seats::new(1));
        let standing =
            |(place, _): (StrangersPlace, CancellationToken)| Standing::stranger(place, users.clone());
        let first = standing(pool.take().await);
        first.belongs_to(7).unwrap();
        first.belongs_to(7).unwrap();
        assert!(pool.table().is_empty());
        let second = standing(pool.take().await);
        assert_eq!(second.belongs_to(7).unwrap_err().code, Code::Ehostdown);
        second.belongs_to(8).unwrap();
        drop(first);
        standing(pool.take().await).belongs_to(7).unwrap();
    }
}
