//! The HTTP API and the WebSockets of a real daemon process, through clients that others wrote: curl, Python's
//! `websockets`, schemathesis. Where the client does not matter, a request is a line of our own.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod access;
mod api;
mod audit;
mod bad_input;
mod closings;
mod control;
mod criteria;
mod described;
mod everyone;
mod failures;
mod guide;
mod images;
mod issues;
mod keys;
mod lifecycle;
mod limits;
mod line;
mod lists;
mod project_schema;
mod projects;
mod rights;
mod shell_processes;
mod shells;
mod sockets;
mod support;
mod terminals;
mod throttle;
