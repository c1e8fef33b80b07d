//! What tests share: the real `ctx` in a place of its own, a daemon under test, a terminal to type at.
//!
//! Everything lives in a temporary directory and goes when the value goes. Nothing here sleeps to synchronise:
//! [`until`] asks again until a deadline that is generous enough for a machine that is busy with other tests.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on says why and stops"
)]

mod daemon;
pub mod elsewhere;
pub mod models;
mod place;
mod pty;
mod small_disk;
pub mod tokens;
pub mod users;

use std::ops::Range;
use std::time::{Duration, Instant};

pub use daemon::{DaemonBuilder, TestDaemon, connect};
pub use place::{Outcome, Place, finish};
pub use pty::{Pty, READING};
pub use small_disk::{ReadOnly, SmallDisk};

/// How long anything may take before a test gives up. Two suites at once on two busy cores stay far below it.
pub const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// The rounds of a test that kills or races: `few` of them, times `CTX_TEST_ROUNDS` where that is set.
pub fn rounds(few: u64) -> Range<u64> {
    let times = std::env::var("CTX_TEST_ROUNDS").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("CTX_TEST_ROUNDS must be a whole number, not {text:?}"))
    });
    0..few * times
}

/// A moment of a round below `span`. Any number of rounds covers all of the span evenly, because each moment is the
/// golden ratio of the span behind the last.
pub fn moment(round: u64, span: u64) -> u64 {
    round * 618_034 % 1_000_000 * span / 1_000_000
}

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
