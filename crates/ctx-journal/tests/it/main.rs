//! Tests of the journal: what a user relies on, over every disk.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod contract;
mod crash;
mod damage;
mod faults;
mod fork;
mod golden;
mod real_disk;
mod repair;
mod short;
mod support;
