//! How far the events of each session and project are in the audit log, kept in a file beside it, so that a start reads only what the
//! log has gained since.
//!
//! The file is derived from the log: without it, or where it does not fit the log, all of the log is read.

use std::collections::HashMap;
use std::path::Path;

use ctx_journal::{LogPath, Owner};
use ctx_session::Timestamp;
use serde::{Deserialize, Serialize};

use super::standing::Audited;
use super::writer::Whose;
use crate::dir::RootDir;
use crate::error::ViewError;

/// Beside the log.
const NAME: &str = "audit.told";
const VERSION: u32 = 1;

/// A line of the audit log, and the record of which log it is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub number: u64,
    pub whose: Whose,
    pub seq: u64,
    pub time: Timestamp,
}

/// What all lines up to one of them cover.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    version: u32,
    pub last: Line,
    #[serde(rename = "told")]
    audited: Vec<(Whose, Audited)>,
}

impl Kept {
    pub fn new(last: &Line, audited: &HashMap<Whose, Audited>) -> Kept {
        let audited = audited.iter().map(|(whose, audited)| (whose.clone(), *audited)).collect();
        Kept { version: VERSION, last: last.clone(), audited }
    }

    pub fn into_audited(self) -> HashMap<Whose, Audited> {
        self.audited.into_iter().collect()
    }

    /// What was kept beside the log, if it can be read.
    pub fn read(root: &RootDir, log: &LogPath) -> Option<Kept> {
        let bytes = root.dir(Path::new(log.dir())).and_then(|dir| dir.contents(NAME)).ok()??;
        serde_json::from_slice(&bytes).ok().filter(|kept: &Kept| kept.version == VERSION)
    }

    /// Keeps it. The lines must be on disk.
    pub fn write(&self, root: &RootDir, log: &LogPath, owner: Owner) -> Result<(), ViewError> {
        // This type has no map with keys that are not strings: serialising it cannot fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        root.dir(Path::new(log.dir()))?.replace(NAME, &bytes, owner)
    }
}
