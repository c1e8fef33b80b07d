//! Shells against a real bash and a real dash, here, behind a real sshd and in a real container.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod behaviour;
mod blocked;
mod caged;
mod elsewhere;
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
mod remote;
mod secrets;
mod sequence;
mod support;
mod table;
mod unseen;
mod ways;
mod wedged;
