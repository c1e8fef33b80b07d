//! The real daemon through the doors a user has: its sockets and its files. Each test has a root of its own.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

mod cancel;
mod disturbed;
mod kill;
mod lifecycle;
mod limits;
mod persistence;
mod resume;
mod retry;
mod shutdown;
mod slow;
mod socket_rules;
mod spaces;
mod storage;
mod takeover;
mod temp;
mod terminal_walls;
mod users;
mod views;
mod walls;
