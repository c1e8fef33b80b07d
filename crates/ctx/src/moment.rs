//! Points in time as people type them: `7d`, `12h`, `2026-11-15`, `2026-11-15 06:00`, or in full. In UTC.

use std::str::FromStr;

use ctx_session::Timestamp;

/// A point in time, or a length of time from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    Span { millis: u64 },
}

impl Moment {
    /// Where a length of time lies in the past.
    pub fn seen_from(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(time) => time,
            Moment::Span { millis } => Timestamp::from_millis(now.as_millis().saturating_sub(millis)),
        }
    }

    /// Where it lies in the future.
    pub fn ahead_of(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(time) => time,
            Moment::Span { millis } => Timestamp::from_millis(now.as_millis().saturating_add(millis)),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let text = text.trim();
        span(text).or_else(|| at(text)).ok_or_else(|| {
            "write a date (2026-11-15, 2026-11-15 06:00) or an age (30m, 12h, 7d, 4w)".to_owned()
        })
    }
}

fn span(text: &str) -> Option<Moment> {
    let unit = match text.chars().last()? {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        'w' => 7 * 86_400_000,
        _ => return None,
    };
    let count: u64 = text.get(..text.len() - 1)?.parse().ok()?;
    Some(Moment::Span { millis: count.checked_mul(unit)? })
}

fn at(text: &str) -> Option<Moment> {
    let text = text.replacen(' ', "T", 1);
    let bare = text.strip_suffix('Z').unwrap_or(&text);
    let full = match bare.len() {
        10 => format!("{bare}T00:00:00Z"),
        16 => format!("{bare}:00Z"),
        _ => format!("{bare}Z"),
    };
    full.parse().ok().map(Moment::At)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_before_now_are_understood() {
        let now: Timestamp = "2026-11-15T06:00:00.000Z".parse().unwrap();
        for (text, wanted) in [
            ("7d", "2026-11-08T06:00:00.000Z"),
            ("12h", "2026-11-14T18:00:00.000Z"),
            ("30m", "2026-11-15T05:30:00.000Z"),
            ("2w", "2026-11-01T06:00:00.000Z"),
            ("2026-11-01", "2026-11-01T00:00:00.000Z"),
            ("2026-11-01 08:30", "2026-11-01T08:30:00.000Z"),
            ("2026-11-01T08:30:15", "2026-11-01T08:30:15.000Z"),
            ("2026-11-01T08:30:15.250Z", "2026-11-01T08:30:15.250Z"),
        ] {
            let moment: Moment = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(moment.seen_from(now).to_string(), wanted, "{text}");
        }
        for bad in ["", "d", "-3d", "7x", "yesterday", "2026-13-01", "99999999999999999999d", "ä"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
