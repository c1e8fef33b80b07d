//! Shells against a real bash and a real dash.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod behaviour;
mod blocked;
mod frame;
mod habits;
mod jobs;
mod keys;
mod like_bash;
mod limits;
mod many;
mod mistakes;
mod much;
mod processes;
mod secrets;
mod sequence;
mod support;
mod table;
mod unseen;
mod ways;
mod wedged;
