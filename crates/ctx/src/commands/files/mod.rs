//! Commands on what ctx keeps on disk: snapshots, logs, views.

pub mod audit;
pub mod doctor;
pub mod prune;
pub mod reindex;
pub mod repair;
pub mod snapshots;
