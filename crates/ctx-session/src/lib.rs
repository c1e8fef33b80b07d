//! The pure rules of a ctx session.
//!
//! Everything a session may do is decided here, over plain data: no clock, no randomness, no disk, no
//! async. Times and ids are handed in; what happens is handed out as records to write and effects to start.

pub mod admission;
pub mod code;
pub mod command;
pub mod control;
pub mod conversation;
pub mod estimate;
pub mod ids;
pub mod image;
pub mod issue;
pub mod ledger;
pub mod limits;
mod log_facts;
pub mod model_name;
pub mod money;
pub mod name;
pub mod object;
pub mod overview;
pub mod port;
pub mod project;
pub mod record;
pub mod request;
pub mod rules;
pub mod session;
pub mod subagent;
pub mod terminal;
pub mod time;
mod word_enum;

pub use code::{Code, Refusal};
pub use command::{Answer, Command, Decision, Effect};
pub use ids::{
    ApprovalId, CallId, CheckpointId, CompactionId, IdSource, IssueId, MessageId, RunId, SessionId,
    SubagentId, TerminalId, TodoId, Ulid,
};
pub use limits::Limits;
pub use log_facts::Missing;
pub use money::Usd;
pub use name::{BadName, Name};
pub use object::Object;
pub use overview::Overview;
pub use record::{Body, Record, Scope, StateName};
pub use session::{RunState, Session, State};
pub use time::Timestamp;
