//! Commands that make, name and end sessions, and bring them in from other agents and hand them on.

pub mod archive;
pub mod end;
pub mod fork;
pub mod handoff;
pub mod import;
pub mod purge;
pub mod rename;
pub mod restart;
