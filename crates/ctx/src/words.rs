//! Formatting shared by the commands: times, ages, counts and shortened text.

use std::time::Duration;

use ctx_session::Timestamp;
use ctx_session::record::{SubagentSpawned, ToolSummary, Usage};
use unicode_width::UnicodeWidthChar;

/// Said of an answer that ended where the model's output limit is.
pub const AT_OUTPUT_LIMIT: &str =
    "the answer was cut off at the model's output limit; say \"go on\" for the rest";

/// The current time, for ages and ids. Nothing stored depends on it.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// How many lines end before an offset of a file; as many as can be read.
pub fn lines_before(path: &std::path::Path, offset: u64) -> u64 {
    use std::io::{BufRead, BufReader, Read};
    let Ok(file) = std::fs::File::open(path) else { return 0 };
    let mut reader = BufReader::with_capacity(1 << 16, file.take(offset));
    let mut lines = 0;
    while let Ok(bytes) = reader.fill_buf() {
        let read = bytes.len();
        if read == 0 {
            break;
        }
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        reader.consume(read);
    }
    lines
}

/// `2026-11-15 06:00:00Z`: in UTC, as in the log.
pub fn date_time(time: Timestamp) -> String {
    let text = time.to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ") + "Z"
}

/// In which time zone times are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Local,
    Utc,
}

impl Clock {
    pub fn new(utc: bool) -> Clock {
        if utc { Clock::Utc } else { Clock::Local }
    }

    /// `2026-11-15 06:00:00`, with a `Z` in UTC.
    pub fn show(self, time: Timestamp) -> String {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match chrono::DateTime::from_timestamp_millis(millis) {
            Some(at) if self == Clock::Local => {
                at.with_timezone(&chrono::Local).format("%Y-%m-%d %H:%M:%S").to_string()
            }
            Some(_) | None => date_time(time),
        }
    }
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

/// What a subagent may use: `walltime 600 s, memory 512 MiB`.
pub fn subagent_limits(of: &SubagentSpawned) -> String {
    let seconds = Duration::from_millis(of.walltime_ms).as_secs_f64();
    let memory = of.memory_bytes.map(|bytes| format!(", memory {} MiB", bytes >> 20));
    format!("walltime {seconds} s{}", memory.unwrap_or_default())
}

/// A count in few characters: 950, 12.3k, 4.5M.
pub fn short_count(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// What model calls came to: `12.3k tokens in (8.1k cached), 1.2k out, $0.0421`.
pub fn cost(usage: Usage) -> String {
    let cached = match usage.cached {
        0 => String::new(),
        cached => format!(" ({} cached)", short_count(cached)),
    };
    let (read, written) = (short_count(usage.input), short_count(usage.output));
    let cost = if usage.cost_nano_usd == 0 { String::new() } else { format!(", {}", usage.cost()) };
    format!("{read} tokens in{cached}, {written} out{cost}")
}

/// What a tool call did that its text may not say: `, exit code 1, +3 -1`. Empty: nothing.
pub fn summary(of: &ToolSummary) -> String {
    let mut text = String::new();
    let mut add = |part: Option<String>| text.extend(part.map(|part| format!(", {part}")));
    add(of.exit_code.map(|code| format!("exit code {code}")));
    add(of.lines_added.or(of.lines_removed).map(|_| {
        format!("+{} -{}", of.lines_added.unwrap_or_default(), of.lines_removed.unwrap_or_default())
    }));
    add(of.matches.map(|matches| match of.files {
        Some(files) => {
            format!("{} in {}", counted(matches, "match", "matches"), counted(files, "file", "files"))
        }
        None => counted(matches, "match", "matches"),
    }));
    add(of.redacted.map(|secrets| counted(secrets, "secret redacted", "secrets redacted")));
    text
}

/// `1 file`, `2 files`.
pub fn files(number: usize) -> String {
    counted(number as u64, "file", "files")
}

pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Shortens text to one line of at most `max` columns; `…` marks a cut.
pub fn shorten(text: &str, max: usize) -> String {
    let mut line = String::new();
    // The width of the line, and the length of the longest beginning that leaves a column for the mark.
    let (mut wide, mut kept) = (0, 0);
    for c in text.chars().map(crate::output::on_a_line) {
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

/// What stands before a line about what a subagent does; nothing for the primary's.
pub fn of_caller(name: Option<&str>) -> String {
    name.map(|name| format!("{} ", crate::output::one_line(name))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_is_known() {
        let none = ToolSummary { bytes: Some(3), ..ToolSummary::default() };
        assert_eq!(summary(&none), "");
        let changed = ToolSummary { lines_added: Some(2), lines_removed: Some(0), ..ToolSummary::default() };
        assert_eq!(summary(&changed), ", +2 -0");
        let found =
            ToolSummary { matches: Some(1), files: Some(2), redacted: Some(1), ..ToolSummary::default() };
        assert_eq!(summary(&found), ", 1 match in 2 files, 1 secret redacted");
        let ran = ToolSummary { exit_code: Some(1), ..ToolSummary::default() };
        assert_eq!(summary(&ran), ", exit code 1");
    }

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
        assert_eq!(shorten("rm \u{202e}txt", 20), "rm \u{fffd}txt", "nothing turns the text around");
    }
}
