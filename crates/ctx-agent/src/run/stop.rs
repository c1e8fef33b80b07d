//! How a loop is told to stop, and with which outcome: a cancel, the end of its session, a shutdown.

use ctx_session::command::Outcome;
use tokio::sync::watch;

/// The side that stops a run. Dropping it stops nothing.
#[derive(Debug, Clone)]
pub struct Stopper {
    sender: watch::Sender<Option<Outcome>>,
}

/// The side that a loop watches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop {
    receiver: watch::Receiver<Option<Outcome>>,
}

impl Stopper {
    pub fn new() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(None);
        (Stopper { sender }, Stop { receiver })
    }

    /// Asks the loop to return this outcome as soon as it can. The first call wins.
    pub fn stop(&self, outcome: Outcome) {
        self.sender.send_if_modified(|slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(outcome);
            }
            first
        });
    }
}

impl Stop {
    /// Whether someone has asked; for work that cannot await.
    pub fn is_stopped(&self) -> bool {
        self.receiver.borrow().is_some()
    }

    /// Returns when someone asks, with the outcome they want; never, if nobody does.
    pub async fn stopped(&self) -> Outcome {
        let mut receiver = self.receiver.clone();
        let asked = receiver.wait_for(Option::is_some).await.ok().and_then(|slot| slot.clone());
        match asked {
            Some(outcome) => outcome,
            // The stopper is gone and has not asked: nobody can stop this run any more.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::record::CancelReason;

    fn cancelled(by: u32) -> Outcome {
        Outcome::Cancelled { reason: CancelReason::Operator, by: Some(by) }
    }

    #[tokio::test]
    async fn the_first_stop_wins_and_is_seen_by_every_clone() {
        let (stopper, stop) = Stopper::new();
        let other = stop.clone();
        assert!(!stop.is_stopped());
        stopper.stop(cancelled(1));
        stopper.stop(cancelled(2));
        assert!(other.is_stopped());
        assert_eq!(stop.stopped().await, cancelled(1));
        drop(stopper);
        assert_eq!(other.stopped().await, cancelled(1), "also after the stopper is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_stopper_stops_nothing() {
        let (stopper, stop) = Stopper::new();
        drop(stopper);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), stop.stopped()).await;
        assert!(waited.is_err() && !stop.is_stopped());
    }
}
