//! What every test here needs: a daemon, a client of its sockets, and a strict reader of its logs.

mod client;
mod daemon;
mod http;
mod log;

pub use client::{Client, connect, ids, kinds, text_of};
pub use daemon::Daemon;
pub use http::Answer;
pub use log::{Log, read_messages};
pub use testkit::{ReadOnly, SmallDisk};

use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that is busy with other suites.
pub const LONG: Duration = Duration::from_secs(60);

/// Asks until there is an answer. For what no event tells of.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A message that `debug/script` plays.
pub fn script(steps: serde_json::Value) -> String {
    serde_json::json!({ "script": steps }).to_string()
}
