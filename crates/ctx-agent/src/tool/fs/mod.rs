//! Tools on files: `fs.read`, `fs.list`, `fs.stat`, `fs.search`, `fs.write` and `fs.edit`. They work in the daemon, with the
//! owner's rights, on what the agent's view shows.

mod change;
mod edit;
mod list;
mod nearest;
mod read;
mod search;
mod seen;
mod stat;
mod write;

pub use edit::FsEdit;
pub use list::FsList;
pub use read::FsRead;
pub use search::FsSearch;
pub use seen::Seen;
pub use stat::FsStat;
pub use write::FsWrite;

/// What they are called.
pub const NAMES: [&str; 6] = ["fs.read", "fs.list", "fs.stat", "fs.search", "fs.write", "fs.edit"];

/// A larger file is read in windows, and not changed.
const FILE_BYTES_MAX: u64 = 8 << 20;
