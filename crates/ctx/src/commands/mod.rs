//! One file per command: its arguments, its help, its work.

pub mod completions;
pub mod config;
pub mod serve;
