//! What every test here needs: a daemon, a client of its sockets, and a strict reader of its logs.

mod client;
mod daemon;
mod http;
mod log;

pub use client::{Client, connect, ids, kinds, text_of};
pub use daemon::Daemon;
pub use http::Answer;
pub use log::{Log, read_messages};
pub use testkit::{DEADLINE, ReadOnly, SmallDisk, until};

/// A message that `debug/script` plays.
pub fn script(steps: serde_json::Value) -> String {
    serde_json::json!({ "script": steps }).to_string()
}
