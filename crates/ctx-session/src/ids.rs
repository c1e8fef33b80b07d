//! Ids: ULIDs, one type per kind of thing, so that a run's id cannot stand where a session's is meant.
//!
//! A ULID is 48 bits of milliseconds and 80 random bits, written as 26 characters that sort as the
//! bits do. Nothing here reads a clock or makes randomness: [`IdSource`] is handed both.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a ULID.
pub const ULID_LEN: usize = 26;
const RANDOM_BITS: u32 = 80;
const DIGITS_IN_U64: usize = 12;

/// A 128-bit id whose text form sorts by time of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(pub u128);

impl Ulid {
    /// Its text, without an allocation: ids are most of what lists and records consist of.
    fn text(self, text: &mut [u8; ULID_LEN]) -> &str {
        let mut rest = self.0;
        // Twelve digits are 60 bits: shifts of 128 bits for each would take most of the time.
        for part in text.rchunks_mut(DIGITS_IN_U64) {
            let mut digits = rest as u64;
            for slot in part.iter_mut().rev() {
                *slot = ALPHABET.get((digits & 31) as usize).copied().unwrap_or(b'0');
                digits >>= 5;
            }
            rest >>= 5 * DIGITS_IN_U64;
        }
        std::str::from_utf8(text).unwrap_or_default()
    }

    /// The milliseconds since the epoch at which this id was made.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millis((self.0 >> RANDOM_BITS) as u64)
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(&mut [0; ULID_LEN]))
    }
}

impl fmt::Debug for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a ULID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id: 26 characters of 0-9 and A-Z without I, L, O and U are expected")]
pub struct NotAnId {
    /// What was given, cut to a length that fits a message.
    pub text: String,
}

impl FromStr for Ulid {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let refuse = || NotAnId { text: text.chars().take(40).collect() };
        if text.len() != ULID_LEN {
            return Err(refuse());
        }
        let mut value: u128 = 0;
        for (at, byte) in text.bytes().enumerate() {
            let upper = byte.to_ascii_uppercase();
            let digit = ALPHABET.iter().position(|c| *c == upper).ok_or_else(refuse)?;
            // 26 digits hold 130 bits: the first may use only three of its five.
            if at == 0 && digit > 7 {
                return Err(refuse());
            }
            value = (value << 5) | digit as u128;
        }
        Ok(Ulid(value))
    }
}

impl Serialize for Ulid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text(&mut [0; ULID_LEN]))
    }
}

impl<'de> Deserialize<'de> for Ulid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Ulid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                text.parse().map($name)
            }
        }
    };
}

id_type!(
    /// Names a session for ever; its directory name may change, this does not.
    SessionId
);
id_type!(
    /// Names a run; the log calls it `turn_id`.
    RunId
);
id_type!(
    /// Names one message of a conversation.
    MessageId
);
id_type!(
    /// Names one tool call; the provider's own id may repeat and is kept beside it.
    CallId
);
id_type!(
    /// Names a checkpoint.
    CheckpointId
);
id_type!(
    /// Names a compaction.
    CompactionId
);
id_type!(
    /// Names a terminal of a session.
    TerminalId
);
id_type!(
    /// Names an approval that a tool call waits for.
    ApprovalId
);
id_type!(
    /// Names one subagent of a run, from its start to its end: an invocation.
    SubagentId
);
id_type!(
    /// Names an issue of a project.
    IssueId
);
id_type!(
    /// Names a todo of an issue.
    TodoId
);

/// Makes ULIDs that never go back, whatever the clock does.
#[derive(Debug, Clone)]
pub struct IdSource {
    last: u128,
    seed: u64,
}

impl IdSource {
    /// `seed` should be random in a daemon and fixed in a test.
    pub fn new(seed: u64) -> Self {
        IdSource { last: 0, seed }
    }

    /// The next id: from `now`, or one more than the last id when the clock stands still or jumps back.
    pub fn next(&mut self, now: Timestamp) -> Ulid {
        let millis = u128::from(now.as_millis()) & ((1 << 48) - 1);
        let random = (u128::from(self.next_random()) << 16) | u128::from(self.next_random() & 0xFFFF);
        // The top random bit stays clear, so that counting up within a millisecond has room.
        let fresh = (millis << RANDOM_BITS) | (random & ((1 << (RANDOM_BITS - 1)) - 1));
        self.last = if fresh > self.last { fresh } else { self.last + 1 };
        Ulid(self.last)
    }

    /// SplitMix64: enough to keep ids apart; they are names, not secrets.
    fn next_random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_ulid_specification_reads_and_writes() {
        let text = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let id: Ulid = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.timestamp().as_millis(), 1_469_922_850_259);
        assert_eq!(text.to_lowercase().parse::<Ulid>().unwrap(), id);
    }

    #[test]
    fn what_is_not_a_ulid_is_refused() {
        for bad in [
            "",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAI",
            "01ARZ3NDEKTSV4RRFFQ69G5FÄ",
        ] {
            assert!(bad.parse::<Ulid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_grow_also_when_the_clock_jumps_back() {
        let mut ids = IdSource::new(7);
        let mut last = ids.next(Timestamp::from_millis(5_000));
        for millis in [5_000, 4_000, 0, 5_000, 5_001, 1] {
            let next = ids.next(Timestamp::from_millis(millis));
            assert!(next > last);
            last = next;
        }
    }

    proptest! {
        #[test]
        fn text_and_bits_agree(bits in any::<u128>()) {
            let id = Ulid(bits);
            prop_assert_eq!(id.to_string().parse::<Ulid>().unwrap(), id);
        }

        #[test]
        fn text_sorts_as_bits_do(a in any::<u128>(), b in any::<u128>()) {
            prop_assert_eq!(Ulid(a).to_string().cmp(&Ulid(b).to_string()), a.cmp(&b));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = text.parse::<Ulid>();
        }
    }
}
