//! Values as the columns of the tables have them, written and read back. Which table has which column is in
//! [`super::schema`].

use ctx_journal::Entry;
use ctx_session::{Record, Timestamp};
use rusqlite::Row;

use crate::files::record_of;

/// SQLite's integers are signed.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn millis(time: Timestamp) -> i64 {
    int(time.as_millis())
}

pub(super) fn time_of(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn count_of(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text: String = row.get(at)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
    })
}

pub(super) fn to_json(value: &impl serde::Serialize) -> String {
    // None of these types has a map with keys that are not strings: serialising them cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// A closed word as the log writes it.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    to_json(value).trim_matches('"').to_owned()
}

/// The value of a closed word; none for a word of another version.
pub(super) fn of_word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::from(word)).ok()
}

/// How a message stands in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Counts,
    /// A compaction left it out of what the model reads.
    Compacted,
    /// A rollback or a discard took it back.
    TakenBack,
}

impl Standing {
    /// As `messages.superseded` has it.
    pub(super) fn number(self) -> i64 {
        match self {
            Standing::Counts => 0,
            Standing::TakenBack => 1,
            Standing::Compacted => 2,
        }
    }

    pub(super) fn of_number(number: i64) -> Standing {
        match number {
            0 => Standing::Counts,
            2 => Standing::Compacted,
            _ => Standing::TakenBack,
        }
    }
}

/// Tells a record from another that stands, or stood, under the same seq. It says nothing about who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print(pub(super) i64);

impl Print {
    pub(super) fn of(record: &Record) -> Print {
        Print::made(record.time, &record.body.to_json())
    }

    /// The same for a record that is read as for one that is committed, but for types that this ctx does not know.
    pub(super) fn of_entry(entry: &Entry) -> Print {
        match record_of(entry) {
            Some(record) => Print::of(&record),
            None => Print::made(entry.time, &entry.text),
        }
    }

    /// FNV-1a over 64 bits: the index guards against accidents.
    fn made(time: Timestamp, text: &str) -> Print {
        const PRIME: u64 = 0x0000_0100_0000_01B3;
        const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
        let bytes = time.as_millis().to_le_bytes();
        let bytes = bytes.into_iter().chain(text.bytes());
        Print(bytes.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)).cast_signed())
    }
}
