//! Commands that start, stop and answer the runs of sessions.

pub mod approve;
pub mod cancel;
pub mod pause;
pub mod queue;
pub mod resume;
pub mod retry;
pub mod wait;
