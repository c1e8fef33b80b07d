//! Projects.

mod settings;

pub use settings::{Compaction, Delegate, Strategy};
