//! Shells against a real bash and a real dash.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod behaviour;
mod support;
