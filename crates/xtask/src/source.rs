//! What a source file must and must not hold.

use std::path::Path;

use crate::{Complaint, rust_files};

/// A text that must not stand in a source file, why, and where it may after all.
struct Banned {
    text: &'static str,
    instead: &'static str,
    /// Path endings of files that may.
    but: &'static [&'static str],
    /// Whether tests may.
    tests_may: bool,
}

/// The words are put together here, so that this file does not hold them itself.
const BANNED: &[Banned] = &[
    Banned { text: concat!("dbg", "!("), instead: "remove it", but: &[], tests_may: false },
    Banned { text: concat!("todo", "!("), instead: "write it", but: &[], tests_may: false },
    Banned { text: concat!("unimplemented", "!("), instead: "write it", but: &[], tests_may: false },
    Banned {
        text: concat!("#[", "ignore"),
        instead: "a test runs or is not there",
        but: &[],
        tests_may: false,
    },
    Banned {
        text: concat!("#[", "allow("), instead: "#[expect(…, reason = …)]", but: &[], tests_may: false
    },
    Banned { text: concat!("FIX", "ME"), instead: "fix it", but: &[], tests_may: false },
    Banned {
        text: concat!("println", "!("),
        instead: "tracing, or write to the output you were handed",
        but: &["/benches/", "/examples/", "bench/", "build.rs"],
        tests_may: true,
    },
    Banned {
        text: concat!("Refusal::new(Code", "::Einval"),
        instead: "`Refusal::invalid`, which names the field that is to blame",
        but: &["ctx-session/src/code.rs"],
        tests_may: true,
    },
    Banned {
        text: concat!("SystemTime", "::now"),
        instead: "a `Clock` that is passed in",
        but: &[
            "ctx-engine/src/clock.rs",
            "ctx-snapshot/src/workspace.rs",
            "crates/ctx/src/",
            "/benches/",
            "/examples/",
        ],
        tests_may: true,
    },
];

/// Lines a file may have before it is more than one subject.
const LINES_MAX: usize = 560;

/// Complains of every source file that breaks a rule.
pub fn check(root: &Path) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for path in rust_files(&root.join("crates")) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let shown = path.strip_prefix(root).unwrap_or(&path);
        complaints.extend(check_file(shown, &text));
    }
    complaints
}

fn check_file(path: &Path, text: &str) -> Vec<Complaint> {
    let complain = |line: usize, message: String| Complaint { path: path.to_owned(), line, message };
    let mut complaints = Vec::new();
    let shown = path.to_string_lossy();
    let in_tests = shown.contains("/tests/") || shown.contains("testkit/");
    if !text.starts_with("//!") && !text.starts_with("#!") {
        complaints
            .push(complain(1, "begins without a module doc: say what it is and what it is not".to_owned()));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && !in_tests {
        complaints.push(complain(0, format!("has {lines} lines, more than {LINES_MAX}: one subject each")));
    }
    let mut tests_from = usize::MAX;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            tests_from = at;
        }
        let is_test = in_tests || at > tests_from;
        for banned in BANNED {
            let excused =
                banned.but.iter().any(|place| shown.contains(place)) || (banned.tests_may && is_test);
            if line.contains(banned.text) && !excused {
                let message = format!("`{}` is banned here: {}", banned.text, banned.instead);
                complaints.push(complain(at + 1, message));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check_file(Path::new(path), text).into_iter().map(|complaint| complaint.message).collect()
    }

    #[test]
    fn a_file_without_a_module_doc_is_a_complaint() {
        assert_eq!(messages("crates/a/src/b.rs", "fn main() {}\n").len(), 1);
        assert_eq!(messages("crates/a/src/b.rs", "//! What it is.\n"), [""; 0]);
    }

    #[test]
    fn stray_output_is_a_complaint_outside_tests() {
        let line = concat!("//! Doc.\nfn f() { println", "!(\"x\"); }\n");
        assert_eq!(messages("crates/a/src/b.rs", line).len(), 1);
        assert_eq!(messages("crates/a/tests/it/b.rs", line), [""; 0]);
    }

    #[test]
    fn a_test_that_does_not_run_is_a_complaint_everywhere() {
        let line = concat!("//! Doc.\n#[", "ignore]\nfn f() {}\n");
        assert_eq!(messages("crates/a/tests/it/b.rs", line).len(), 1);
    }
}
