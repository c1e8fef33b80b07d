//! Cages: a command with walls around it, made of bubblewrap, seccomp and control groups.
//!
//! A [`Cage`] is plain data. [`command_line`] turns it into the arguments of `bwrap`, and [`CgroupPlan::new`] its limits
//! into files of control groups; both are pure, and tests read what they give. [`RunningCage`] does what they say. This
//! module decides nothing about agents or sessions: who may have which cage is decided by its callers.

mod cgroups;
mod command;
mod descriptors;
mod error;
mod lend;
mod means;
mod parse;
mod plan;
mod processes;
mod running;
mod said;
mod seccomp;
mod sources;
mod system;
mod usage;
mod value;

pub use cgroups::{parent_of, sweep};
pub use command::{CommandLine, command_line};
pub use error::CageError;
pub use means::{Base, Means, Version};
pub use parse::{parse_mount, parse_size, parse_time};
pub use plan::{CgroupPlan, Freezing};
pub use running::{Ended, Io, RunningCage, find_bwrap};
pub use seccomp::filters;
pub use system::{Toolchains, system_mounts};
pub use value::{Access, Cage, Limit, Limits, Mount, Net, Owner};
