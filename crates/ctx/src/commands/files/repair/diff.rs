//! Formats the changes of a repair as a diff or as JSON.

use ctx_journal::repair::{Change, Plan, Repaired};
use serde_json::json;

use crate::output::Paint;
use crate::words;

/// How much of a line is shown where there is no terminal to fit.
const SHOWN: usize = 160;
/// How much of it stands before what differs.
const BEFORE: usize = 24;

pub fn as_json(done: &Repaired) -> serde_json::Value {
    let change = |change: &Change| {
        json!({
            "line": change.line, "offset": change.offset, "why": change.why, "was": change.was,
            "becomes": change.becomes,
        })
    };
    let Plan { log, changes, records, .. } = &done.plan;
    json!({
        "log": log.as_str(), "changes": changes.iter().map(change).collect::<Vec<_>>(), "records": records,
        "applied": done.original.is_some(), "original": done.original, "set_aside": done.set_aside,
    })
}

pub fn as_diff(done: &Repaired, width: Option<usize>, paint: Paint) -> String {
    let log = &done.plan.log;
    let mut text = format!("{}\n", paint.bold(&format!("--- {log}")));
    let width = width.map_or(SHOWN, |width| width.saturating_sub(2).max(20));
    for change in &done.plan.changes {
        let place = format!("@@ line {}, byte {}: {}", change.line, change.offset, change.why.join("; "));
        text.push_str(&format!("{}\n", paint.cyan(&place)));
        // Of a line that becomes another, both are shown from where they differ.
        let from = match (change.was.as_slice(), change.becomes.as_slice()) {
            ([was], [becomes]) => differs_at(was, becomes, width),
            _ => 0,
        };
        for line in &change.was {
            text.push_str(&format!("{}\n", paint.red(&format!("- {}", part(line, from, width)))));
        }
        for line in &change.becomes {
            text.push_str(&format!("{}\n", paint.green(&format!("+ {}", part(line, from, width)))));
        }
    }
    for (what, path) in [("the original log", &done.original), ("removed lines", &done.set_aside)] {
        if let Some(path) = path {
            text.push_str(&format!("{what}: {path}\n"));
        }
    }
    text
}

/// The character from which on two lines are shown, so that what differs can be seen.
fn differs_at(was: &str, becomes: &str, width: usize) -> usize {
    let same = was.chars().zip(becomes.chars()).take_while(|(a, b)| a == b).count();
    if same + BEFORE < width { 0 } else { same - BEFORE.min(same) }
}

/// A line from a character on, as long as there is room; what is left out is marked.
fn part(line: &str, from: usize, width: usize) -> String {
    if from == 0 {
        return words::shorten(line, width);
    }
    let rest: String = line.chars().skip(from).collect();
    format!("…{}", words::shorten(&rest, width.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_wherever_it_stands() {
        let line =
            |name: &str| format!("{}\"name\":\"{name}\",\"more\":{}", "x".repeat(300), "y".repeat(300));
        let (was, becomes) = (line("defaulu"), line("default"));
        let from = differs_at(&was, &becomes, 80);
        let (was, becomes) = (part(&was, from, 80), part(&becomes, from, 80));
        assert!(was.starts_with('…') && was.contains("defaulu") && was.ends_with('…'), "{was}");
        assert!(becomes.contains("default\"") && becomes.chars().count() <= 80, "{becomes}");
        assert_eq!((differs_at("abc", "abd", 80), part("abc", 0, 80).as_str()), (0, "abc"));
    }
}
