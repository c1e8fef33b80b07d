//! Unified diffs, coloured where the output has colours.

use crate::output::{self, Paint};

/// The line of a text at which a unified diff begins.
pub fn begins_at(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_head =
        |pair: &[&str]| matches!(pair, [old, new] if old.starts_with("--- ") && new.starts_with("+++ "));
    lines.windows(2).position(is_head)
}

/// One line of a diff.
pub fn line(line: &str, paint: Paint) -> String {
    let shown = output::plain(line);
    match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => paint.bold(&shown),
        [b'+', ..] => paint.green(&shown),
        [b'-', ..] => paint.red(&shown),
        [b'@', b'@', ..] => paint.cyan(&shown),
        _ => shown,
    }
}

/// A whole diff, each line after `indent`.
pub fn text(diff: &str, indent: &str, paint: Paint) -> String {
    diff.lines().map(|one| format!("{indent}{}\n", line(one, paint))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "edited\n--- /a\n+++ /a\n@@ -1 +1 @@\n-one\n+\x1b[31mtwo\n";

    #[test]
    fn a_diff_is_found_and_kept_from_the_terminal() {
        assert_eq!(begins_at(DIFF), Some(1));
        assert_eq!(begins_at("--- not a diff\n"), None);
        let shown = text("-one\n+\x1b[31mtwo", "  ", Paint::off());
        assert_eq!(shown, "  -one\n  +\u{fffd}[31mtwo\n");
        assert_eq!(line("-one", Paint::on()), Paint::on().red("-one"));
        assert_eq!(line("--- /a", Paint::on()), Paint::on().bold("--- /a"));
    }
}
