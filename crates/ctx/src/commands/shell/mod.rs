//! Commands for shells, terminals and cages.

pub mod cage;
pub mod mcp;
pub mod shells;
pub mod term;
pub mod watch;
