//! Formatting shared by the commands: times, ages, counts and shortened text.

use ctx_session::Timestamp;
use unicode_width::UnicodeWidthChar;

/// The current time, for ages and ids. Nothing stored depends on it.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// `2026-11-15 06:00:00Z`: in UTC, as in the log.
pub fn date_time(time: Timestamp) -> String {
    let text = time.to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ") + "Z"
}

/// How long ago, in one unit: `12s`, `3m`, `5h`, `2d`.
pub fn age(now: Timestamp, then: Timestamp) -> String {
    duration(now.millis_since(then))
}

/// A length of time in one unit.
pub fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Shortens text to one line of at most `max` columns; `…` marks a cut.
pub fn shorten(text: &str, max: usize) -> String {
    let mut line = String::new();
    // The width of the line, and the length of the longest beginning that leaves a column for the mark.
    let (mut wide, mut kept) = (0, 0);
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        wide += c.width().unwrap_or(0);
        if wide > max {
            line.truncate(kept);
            line.truncate(line.trim_end().len());
            line.push_str(if max > 0 { "…" } else { "" });
            return line;
        }
        line.push(c);
        if wide < max {
            kept = line.len();
        }
    }
    line
}

/// The effect of a compaction: `4 messages, 2 outputs as references`.
pub fn compaction(superseded: usize, elided: usize) -> String {
    let count = |count: usize, what: &str| {
        let ending = if count == 1 { "" } else { "s" };
        format!("{count} {what}{ending}")
    };
    match (superseded, elided) {
        (0, 0) => "nothing to remove".to_owned(),
        (_, 0) => count(superseded, "message"),
        (0, _) => format!(
            "{} as {}",
            count(elided, "output"),
            if elided == 1 { "a reference" } else { "references" }
        ),
        (_, _) => format!("{}, {}", compaction(superseded, 0), compaction(0, elided)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp::from_millis(200_000_000_000);
        for (millis, wanted) in
            [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (86_400_000, "1d")]
        {
            assert_eq!(age(now, Timestamp::from_millis(now.as_millis() - millis)), wanted);
        }
        assert_eq!(age(now, Timestamp::from_millis(now.as_millis() + 5_000)), "0s", "a clock that went back");
    }

    #[test]
    fn long_text_is_cut_to_one_line() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("äöüß€", 4), "äöü…");
        assert_eq!(shorten("two\nlines\x1b[31m", 20), "two lines [31m");
        assert_eq!(shorten("anything", 0), "");
    }
}
