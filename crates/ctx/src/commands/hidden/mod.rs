//! Commands that ctx runs itself and that no help lists.

pub mod complete;
pub mod guard;
pub mod hold;
