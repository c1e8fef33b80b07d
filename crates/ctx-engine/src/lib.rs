//! The engine: one driver per active session, admission, run supervision, recovery, and live events.
//!
//! It turns a door's wish into a command, asks the pure rules what it means, makes the answer durable and only
//! then shows it. It knows no HTTP, no MCP and no SQL; agents work behind the small port in [`port`].

pub mod admission;
mod broken;
pub mod clock;
mod connections;
mod control;
mod core;
mod details;
mod driver;
pub mod engine;
mod follow;
pub mod followers;
mod fork;
mod import;
mod index_files;
mod issues;
mod lists;
pub mod live;
pub mod lookup;
pub mod notifications;
pub mod paths;
pub mod port;
mod project_ops;
pub mod projects;
mod purge;
mod record_reader;
pub mod registry;
mod rename;
pub mod request;
mod restart;
mod run_lookup;
mod shared;
mod space_ops;
mod spaces;
mod spending;
pub mod start;
mod temp;
mod terminals;

pub use clock::{Clock, Fresh, SystemClock};
pub use details::Details;
pub use engine::Engine;
pub use follow::Follow;
pub use fork::NewFork;
pub use import::{ImportDone, ImportUndone, NewImport};
pub use issues::{IssueView, IssueWish, NewIssue};
pub use lists::{ListWish, Listed};
pub use live::{Event, EventId, LiveRecord};
pub use notifications::{Change, News};
pub use projects::{HereView, NewProject, ProjectLog, ProjectView};
pub use record_reader::{Met, Piece};
pub use registry::Summary;
pub use request::{Caller, NewSession, Parts, Post, Posted};
pub use spaces::{NoSpaces, Sight, Space, SpaceFiles};
pub use temp::Hold;
