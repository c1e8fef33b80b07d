//! Which files an agent has read, and as what: so that none is changed that it has not seen as it is.
//!
//! It is kept in memory and bounded. What is forgotten, also by a restart, has to be read again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ctx_session::Ulid;
use sha2::{Digest, Sha256};

/// Agents that are remembered, and files of each.
const READERS_MAX: usize = 1_000;
const FILES_MAX: usize = 10_000;

/// What a file was like: the hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp([u8; 32]);

impl Stamp {
    pub fn of(bytes: &[u8]) -> Stamp {
        Stamp(Sha256::digest(bytes).into())
    }
}

/// The files that agents have read, by who reads ([`Scope::reader`](crate::tool::Scope)) and by the path that they see.
#[derive(Debug, Default)]
pub struct Seen(Mutex<HashMap<Ulid, HashMap<PathBuf, Stamp>>>);

impl Seen {
    /// The agent knows the file as this.
    pub fn note(&self, reader: Ulid, path: &Path, stamp: Stamp) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() >= READERS_MAX && !readers.contains_key(&reader) {
            readers.clear();
        }
        let files = readers.entry(reader).or_default();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(path.to_owned(), stamp);
    }

    /// As what the agent knows it; None: it has not read it.
    pub fn of(&self, reader: Ulid, path: &Path) -> Option<Stamp> {
        let readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.get(&reader)?.get(path).copied()
    }
}
