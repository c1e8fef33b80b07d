//! What tests share: the real `ctx` in a place of its own, a daemon under test, a terminal to type at.
//!
//! Everything lives in a temporary directory and goes when the value goes. Nothing here sleeps to synchronise:
//! [`until`] asks again until a deadline that is generous enough for a machine that is busy with other tests.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on says why and stops")]

mod daemon;
mod place;
mod pty;
mod small_disk;

use std::time::{Duration, Instant};

pub use daemon::{DaemonBuilder, TestDaemon};
pub use place::{Outcome, Place, finish};
pub use pty::Pty;
pub use small_disk::{ReadOnly, SmallDisk};

/// How long anything may take before a test gives up. Two suites at once on two busy cores stay far below it.
pub const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until there is an answer; fails with `what` at the deadline.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "waited too long for {what}");
        std::thread::sleep(PAUSE);
    }
}
