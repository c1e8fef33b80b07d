//! The engine over a simulated disk, with a worker of a few lines and a clock that can be set.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod audit;
mod clock;
mod control;
mod failed;
mod names;
mod projects;
mod races;
mod storage;
mod worker;
mod world;
