//! The commands, one file each: arguments, help text and implementation. The folders are nearly the groups of
//! `ctx --help` (`help.rs`).

pub mod control;
pub mod files;
pub mod hidden;
pub mod issues;
pub mod reading;
pub mod revise;
pub mod sessions;
pub mod setup;
pub mod shell;
pub mod start;
pub mod tree;
