//! What recovery and readers found wrong in a log and read around.

use std::fmt;

use crate::path::LogPath;

/// One thing that is wrong in a log, with enough to find it and to repair it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub log: LogPath,
    /// From 1.
    pub line: u64,
    /// Where the line begins, in bytes.
    pub offset: u64,
    pub kind: DamageKind,
    /// The beginning of the line, with what is not text replaced.
    pub excerpt: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageKind {
    /// Bytes after the last whole command, cut off and kept in a file beside the log.
    TornTail { bytes: u64, kept: String },
    /// The same, but there was no room to keep them; they are still in the log, passed over, and nothing is
    /// appended until they could be kept.
    TornTailUncut { bytes: u64 },
    /// A line that is not a record; skipped.
    BadLine { reason: String },
    /// A line that is longer than a record may be; skipped.
    LongLine { bytes: u64 },
    /// A record of a newer format than this ctx knows, among records that it knows; passed over.
    NewerVersion { version: u64 },
    /// A record of another format in the middle of a command that began as ours; used as one of ours.
    WrongVersion { version: u64 },
    /// Records `from..to` are not there.
    Gap { from: u64, to: u64 },
    /// A seq that was there before; the first one was used, this one skipped.
    Repeat { seq: u64 },
    /// A record that was missing where it belongs; skipped, because records are used in their order.
    Misplaced { seq: u64 },
    /// A seq that does not fit those around it; skipped.
    StraySeq { seq: u64, expected: u64 },
    /// The log does not begin with its `session_meta` (or whatever record its kind of log begins with):
    /// record 0 is missing.
    MissingMeta,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.log, self.line, self.kind)
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DamageKind::TornTail { bytes, kept } => {
                write!(
                    f,
                    "{bytes} bytes of a command that was never finished were cut off and kept in {kept}"
                )
            }
            DamageKind::TornTailUncut { bytes } => {
                write!(
                    f,
                    "{bytes} bytes of a command that was never finished; there is no room to keep them elsewhere"
                )
            }
            DamageKind::BadLine { reason } => write!(f, "skipped, not a record: {reason}"),
            DamageKind::LongLine { bytes } => write!(f, "skipped, {bytes} bytes are too long for a record"),
            DamageKind::NewerVersion { version } => {
                write!(f, "skipped, format version {version} is newer than this ctx; upgrade ctx to use it")
            }
            DamageKind::WrongVersion { version } => {
                write!(f, "format version {version} is damaged; used, for the command is ours")
            }
            DamageKind::Gap { from, to } if *to == from + 1 => write!(f, "record {from} is missing"),
            DamageKind::Gap { from, to } => {
                write!(f, "records {from} to {} are missing", to.saturating_sub(1))
            }
            DamageKind::Repeat { seq } => write!(f, "skipped, record {seq} is a duplicate"),
            DamageKind::Misplaced { seq } => {
                write!(f, "skipped, record {seq} is out of order")
            }
            DamageKind::StraySeq { seq, expected } => {
                write!(f, "skipped, seq {seq} does not fit where {expected} was due")
            }
            DamageKind::MissingMeta => f.write_str("the log does not begin with record 0"),
        }
    }
}
