//! The limits of a cage: what this machine has to hold them (`means`), what is written where (`plan`, pure), the control groups
//! themselves (`cgroups`), and a look at what the processes use where no group holds a limit (`usage`).

pub mod cgroups;
mod means;
mod plan;
pub mod usage;

pub use means::{Base, Means, Version};
pub use plan::{CgroupPlan, Freezing};
