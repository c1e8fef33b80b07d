//! The real binary, as a user meets it: one test binary, one module per subject.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on stops"
)]

mod agent_shell;
mod answers;
mod attach;
mod autostart;
mod cage;
mod chat;
mod chat_kept;
mod coding;
mod config;
mod control;
mod cost;
mod counting;
mod current;
mod daemon;
mod damage;
mod damaged_records;
mod damaged_sessions;
mod demo;
mod directories;
mod failed;
mod follow;
mod help;
mod hosts;
mod images;
mod import;
mod issues;
mod json;
mod kept_up;
mod lifecycle;
mod mcp_servers;
mod newcomer;
mod old_root;
mod open;
mod others;
mod project;
mod providers;
mod queue;
mod reading;
mod recording;
mod search;
mod shown;
mod subagent_cages;
mod support;
mod terminals;
mod token;
mod tools;
mod undo;
mod waiting;
