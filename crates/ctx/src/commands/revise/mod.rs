//! Commands that change what a session goes on from: checkpoints, rollbacks, its files, its prompts and its context.

pub mod checkpoints;
pub mod compact;
pub mod diff;
pub mod pin;
pub mod prompt;
pub mod rollback;
pub mod undo;
