//! How a command really ended, from the words that agents put around its output.

use crate::event::Verdict;

/// The exit code in the head of an output, before the output itself begins.
pub(crate) fn exit_code_in_head(text: &str) -> Option<i64> {
    for line in text.lines().take(8) {
        if line.trim_end() == "Output:" {
            break;
        }
        for mark in ["Process exited with code ", "Exit code: "] {
            if let Some(code) = line.strip_prefix(mark) {
                return code.trim().parse().ok();
            }
        }
    }
    None
}

/// The exit code that stands on a line of its own near the end of an output.
pub(crate) fn exit_code_at_end(text: &str, mark: &str) -> Option<i64> {
    let near_end = text.lines().rev().take(12);
    near_end.filter_map(|line| line.strip_prefix(mark)?.trim().parse().ok()).next()
}

pub(crate) fn by_exit_code(code: i64) -> Verdict {
    if code == 0 { Verdict::Success } else { Verdict::Failure }
}
