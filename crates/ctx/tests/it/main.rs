//! The real binary, as a user meets it: one test binary, one module per subject.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on stops"
)]

mod attach;
mod chat;
mod config;
mod control;
mod counting;
mod current;
mod daemon;
mod damage;
mod damaged_records;
mod damaged_sessions;
mod follow;
mod help;
mod issues;
mod kept_up;
mod lifecycle;
mod old_root;
mod open;
mod others;
mod project;
mod queue;
mod reading;
mod search;
mod shown;
mod support;
mod token;
