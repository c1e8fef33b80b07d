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
mod files;
mod models;
mod terminal;
mod tools;
