//! Where the effects of ctx happen.
//!
//! Real processes live here: shells for agents, and beside them cages and terminals. This crate knows
//! neither the journal nor any door; what a shell did leaves it through a small port.

pub mod cage;
pub mod rights;
pub mod shell;
pub mod snapshot;
pub mod terminal;
