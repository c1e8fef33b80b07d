//! Points in time as the log and the API write them: epoch milliseconds, and RFC 3339 in UTC.
//!
//! There is no clock here; whoever needs the time is handed it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z; text form `2026-11-15T06:00:00.000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The year 9999 ends here; later times have no RFC 3339 form and are held at it.
    const MAX_MILLIS: u64 = 253_402_300_799_999;

    pub fn from_millis(millis: u64) -> Self {
        Timestamp(millis.min(Self::MAX_MILLIS))
    }

    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when the clock went back between the two.
    pub fn millis_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// A form that is safe in a file name: `20261115T060000.000Z`.
    pub fn to_file_name(self) -> String {
        self.to_string().replace(['-', ':'], "")
    }
}

/// Days since the epoch to a date, in the proleptic Gregorian calendar.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    // Count from 0000-03-01, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, millis) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", millis % 1_000)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time: the form `2026-11-15T06:00:00.000Z` is expected")]
pub struct NotATime {
    text: String,
}

impl FromStr for Timestamp {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        parse(text).ok_or_else(|| NotATime { text: text.chars().take(40).collect() })
    }
}

/// Reads `YYYY-MM-DDTHH:MM:SS[.fff…]Z`; more than three fraction digits are cut.
fn parse(text: &str) -> Option<Timestamp> {
    let digits = |from: usize, to: usize| -> Option<u64> {
        let part = text.get(from..to)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten()
    };
    let mark = |at: usize, byte: u8| (text.as_bytes().get(at) == Some(&byte)).then_some(());
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    for (at, byte) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        mark(at, byte)?;
    }
    let fraction = text.get(19..)?.strip_suffix('Z')?;
    let millis = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        Some(part) if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) => {
            let padded: String = part.chars().chain("000".chars()).take(3).collect();
            padded.parse().ok()?
        }
        _ => return None,
    };
    let plausible = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !plausible {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000 + millis))
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_written_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_722_400_123, "2026-11-15T06:00:00.123Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap().as_millis(), millis);
        }
    }

    #[test]
    fn other_writers_precision_is_read() {
        assert_eq!("2026-11-15T06:00:00Z".parse::<Timestamp>().unwrap().as_millis(), 1_794_722_400_000);
        assert_eq!(
            "2026-11-15T06:00:00.123456Z".parse::<Timestamp>().unwrap().as_millis(),
            1_794_722_400_123
        );
    }

    proptest! {
        #[test]
        fn text_and_millis_agree(millis in 0..=Timestamp::MAX_MILLIS) {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }

        #[test]
        fn no_text_panics(text in "[0-9TZ:.\\-äx]{0,30}") {
            let _ = text.parse::<Timestamp>();
        }
    }
}
