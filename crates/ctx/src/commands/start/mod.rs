//! Commands that begin work: a conversation, a run, the daemon.

pub mod attach;
pub mod chat;
pub mod open;
pub mod run;
pub mod send;
pub mod serve;
pub mod status;
pub mod stop;
