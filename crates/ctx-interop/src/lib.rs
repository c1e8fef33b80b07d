//! Sessions of other agents: from the bytes and rows of their stores to neutral events, and from those to our records.
//!
//! One module per agent reads, and holds everything that is known of that agent's format: pure functions over bytes and rows.
//! [`records`] turns events into records with ids that depend on the source alone, so that the same source
//! always gives the same records. [`store`] is the edge: it finds stores, and reads files and SQLite without changing a byte of them.
//! [`write`] is the way back: a conversation as another agent keeps its own, which [`hand_over`] puts into that agent's store.

pub mod aider;
pub mod claude;
pub mod codex;
pub mod event;
pub mod gemini;
pub mod goose;
pub mod hand_over;
mod json;
pub mod opencode;
mod outcome;
pub mod records;
mod rows;
mod sqlite;
pub mod store;
pub mod write;

pub use event::{Agent, Damage, Event, Finish, Link, Tokens, Transcript, Verdict, What};
