//! Mends a damaged log: decides what a sound one would be (`plan`, pure), then puts it in place (`apply`).
//!
//! Records that are whole are taken over byte for byte and keep their seq; those out of their place go back to it.
//! Records run together on a line are parted, what is whole in a bad line is salvaged, a repeat or rubbish is set aside,
//! and where records are lost one record of type `lost` holds their place. See `docs/decisions/journal-repair.md`.

mod apply;
mod order;
mod plan;
mod reading;
mod salvage;
mod versions;

use std::ops::Range;

use crate::Entry;
use crate::error::JournalError;
use crate::path::LogPath;

pub use apply::Repaired;
pub use plan::plan;

/// Told record 0, if the log has one: what is to be put in its place, or nothing where it is good, or where nobody
/// knows better.
pub type First<'a> = &'a dyn Fn(Option<&Entry>) -> Option<Anew>;

/// Told a record: what does not fit its type, if anything does not.
pub type Fits<'a> = &'a dyn Fn(&Entry) -> Option<Unfit>;

/// What is said of a log by the caller, who knows what its records mean.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    pub first: First<'a>,
    pub fits: Fits<'a>,
    pub versions: Versions,
}

impl Judge<'_> {
    /// Knows of no record what it means.
    pub const STRANGER: Judge<'static> =
        Judge { first: &|_| None, fits: &|_| None, versions: Versions::MayBeNewer };
}

/// What a record of a newer format at the end of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// Perhaps a newer ctx's: the log is left alone, unless the lines around it tell that it cannot be.
    MayBeNewer,
    /// Damage: no newer ctx was ever here.
    AreOurs,
}

/// A record that is whole as a line, and whose fields do not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub why: String,
    /// The line as it was, if that can be told; else the record is lost.
    pub was: Option<String>,
}

/// A record that says what log this is, made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anew {
    pub body: String,
    /// What is wrong with what the log has.
    pub why: String,
    pub at: Where,
}

/// Where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the place of record 0, if there is one.
    First,
    /// After the last record: record 0 is a whole record of another kind, and whole records keep their place.
    Last,
}

/// What a repair would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub log: LogPath,
    /// In the order of the log; none when it is sound.
    pub changes: Vec<Change>,
    /// Records that are in the log afterwards, those that hold the place of lost ones among them.
    pub records: u64,
    pieces: Vec<Piece>,
    /// What is left out of the log, by its place in it.
    set_aside: Vec<Range<usize>>,
}

/// One place that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The first line it is about, from 1.
    pub line: u64,
    /// Where that line begins, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub why: Vec<String>,
    /// The lines that go, the longest of them cut; none where something is only put in.
    pub was: Vec<String>,
    /// The lines that come.
    pub becomes: Vec<String>,
}

/// A part of the sound log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Lines as they stand in the damaged one.
    Keep(Range<usize>),
    Write(Vec<u8>),
}

impl Plan {
    pub fn is_sound(&self) -> bool {
        self.changes.is_empty()
    }

    /// The sound log, made from the bytes that were planned for.
    pub fn mended(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for piece in &self.pieces {
            match piece {
                Piece::Keep(range) => out.extend_from_slice(bytes.get(range.clone()).unwrap_or_default()),
                Piece::Write(written) => out.extend_from_slice(written),
            }
        }
        out
    }

    /// What the sound log leaves out, a line for each place.
    pub fn set_aside(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for range in &self.set_aside {
            out.extend_from_slice(bytes.get(range.clone()).unwrap_or_default());
            out.push(b'\n');
        }
        out
    }
}

/// A log was not repaired. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{log}: it has no usable record, and no other file describes the session; it was not changed")]
    NothingUsable { log: LogPath },
    #[error(
        "{log}: the repaired log would be damaged too ({what}); it was not changed; this is a bug in ctx"
    )]
    Unsound { log: LogPath, what: String },
    #[error("the views of {log} cannot be removed first: {error}")]
    Views { log: LogPath, error: std::io::Error },
}
