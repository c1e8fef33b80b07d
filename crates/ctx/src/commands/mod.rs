//! One file per command: its arguments, its help, its work.

pub mod archive;
pub mod audit;
pub mod cancel;
pub mod chat;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod end;
pub mod export;
pub mod fork;
pub mod history;
pub mod latest;
pub mod log;
pub mod ls;
pub mod purge;
pub mod queue;
pub mod reindex;
pub mod rename;
pub mod repair;
pub mod search;
pub mod send;
pub mod serve;
pub mod show;
pub mod stats;
pub mod status;
pub mod token;
