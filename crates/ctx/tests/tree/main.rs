//! The tree as a person at a shell has it: objects that are run, their control files and their sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

mod agents;
mod commands;
mod escapes;
mod files;
mod guide;
mod models;
mod seeds;
mod terminal;
mod tools;
mod users;
mod walls;
