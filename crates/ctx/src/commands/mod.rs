//! One file per command: its arguments, its help, its work.

pub mod cancel;
pub mod chat;
pub mod completions;
pub mod config;
pub mod end;
pub mod history;
pub mod latest;
pub mod log;
pub mod ls;
pub mod queue;
pub mod rename;
pub mod send;
pub mod serve;
pub mod status;
