//! The real binary, as a user meets it: one test binary, one module per subject.

mod chat;
mod config;
mod daemon;
mod follow;
mod help;
mod queue;
mod reading;
mod support;
