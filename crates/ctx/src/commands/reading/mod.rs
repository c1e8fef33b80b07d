//! Commands that show what sessions hold. Most work while the daemon is down.

pub mod export;
pub mod history;
pub mod latest;
pub mod log;
pub mod ls;
pub mod search;
pub mod show;
pub mod stats;
