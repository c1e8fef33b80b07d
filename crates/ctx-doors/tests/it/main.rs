//! The API's handlers in process: the router over an engine in memory, with time that a test can move.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod approvals;
mod bad_input;
mod door;
mod keys;
mod messages;
mod queue;
mod sessions;
mod worker;
