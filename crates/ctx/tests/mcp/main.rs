//! The real `ctx mcp` as its hosts meet it: the official SDK, plain JSON-RPC over pipes, and what the operator sets,
//! reads and watches around it. How shells behave inside is tested in ctx-host.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

mod elsewhere;
mod ends;
mod guide;
mod injected;
mod long;
mod long_lines;
mod lost;
mod record;
mod sdk;
mod searches;
mod settings;
mod slow;
mod snapshots;
mod terminal;
mod watch;
