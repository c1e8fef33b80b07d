//! The pure rules of a ctx session.
//!
//! Everything a session may do is decided here, over plain data: no clock, no randomness, no disk, no
//! async. Times and ids are handed in; what happens is handed out as records to write and effects to start.

pub mod code;
pub mod ids;
pub mod name;
pub mod time;

pub use code::{Code, Refusal};
pub use ids::{CallId, IdSource, MessageId, RunId, SessionId, Ulid};
pub use name::{BadName, Name};
pub use time::Timestamp;
