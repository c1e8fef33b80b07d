//! Views: everything that is derived from the records of a session and can be deleted without loss.
//!
//! `files` writes the files of one session directory, `index` the files that list the sessions beside each
//! other, and `read` reads both while no daemon is up. `db` is the index database for lists and search, `audit`
//! the log of who did what. `identity` says what session a log is, also where its first record does not. A view shows only what the journal has committed. It is
//! never synced, never fails a session, and catches up from the log when it fell behind.
//!
//! Views know neither doors nor hosts, and nothing here decides anything about a session.

pub mod audit;
pub mod db;
mod dir;
mod error;
pub mod files;
pub mod identity;
pub mod index;
pub mod read;
mod witness;

pub use ctx_journal::Owner;
pub use dir::RootDir;
pub use error::ViewError;
pub use files::SessionFiles;
pub use index::{IndexEntry, IndexFiles};
pub use witness::Sources;
