//! Cages: a command with walls around it, made of bubblewrap, seccomp and control groups; and the rights of a user.
//!
//! A [`Cage`] is plain data. [`command_line`] turns it into the arguments of `bwrap`, and [`CgroupPlan::new`] its limits
//! into files of control groups; both are pure, and tests read what they give. [`RunningCage`] does what they say.
//! [`rights`] is the other wall: what ctx itself opens for a user, it opens with that user's rights. This crate decides
//! nothing about agents or sessions: who may have which cage is decided by its callers.

mod command;
mod error;
mod limits;
mod parse;
pub mod processes;
pub mod rights;
mod running;
mod system;
mod value;

pub use command::{CommandLine, command_line};
pub use error::CageError;
pub use limits::cgroups::{parent_of, sweep};
pub use limits::{Base, CgroupPlan, Freezing, Means, Version};
pub use parse::{parse_mount, parse_size, parse_time};
pub use running::descriptors::keep as keep_descriptors;
pub use running::seccomp::filters;
pub use running::{Ended, Io, RunningCage};
pub use system::{Toolchains, find, find_bwrap, system_mounts};
pub use value::{Access, Cage, Limit, Limits, Mount, Net, Owner};
