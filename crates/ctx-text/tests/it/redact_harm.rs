//! Redaction leaves ordinary text alone: of the sources that the build has downloaded, the lock file and the history
//! of this repository, at most one line in 5,000 is touched.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ctx_text::redact::{Secrets, redact_text};

/// One line in so many may be touched.
const LINES_PER_TOUCHED: usize = 5_000;
/// One file in so many is looked at.
const FILES_PER_SAMPLE: u32 = 4;

#[derive(Default)]
struct Harm {
    lines: usize,
    touched: Vec<String>,
}

impl Harm {
    fn add(&mut self, text: &str) {
        let shown = redact_text(&Arc::new(Secrets::none()), text);
        let lines: HashSet<&str> = shown.lines().collect();
        self.lines += text.lines().count();
        self.touched.extend(text.lines().filter(|line| !lines.contains(line)).map(str::to_owned));
    }

    #[track_caller]
    fn check(&self, of: &str) {
        let first = self.touched.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
        let (touched, lines) = (self.touched.len(), self.lines);
        assert!(
            touched * LINES_PER_TOUCHED <= lines,
            "{touched} of {lines} lines of {of} are touched:\n{first}"
        );
    }
}

fn files_below(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// The same files are in the sample on every machine.
fn is_in_sample(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte))) % FILES_PER_SAMPLE
        == 0
}

#[test]
fn of_the_sources_of_other_crates_almost_no_line_is_touched() {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap();
    let mut files = Vec::new();
    files_below(&home.join("registry/src"), &mut files);
    let mut harm = Harm::default();
    for file in files.iter().filter(|file| is_in_sample(file)) {
        if let Ok(text) = std::fs::read_to_string(file) {
            harm.add(&text);
        }
    }
    assert!(harm.lines > 100_000, "{} lines in {}", harm.lines, home.display());
    harm.check("other crates");
}

#[test]
fn of_the_lock_file_and_the_history_almost_no_line_is_touched() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut harm = Harm::default();
    harm.add(&std::fs::read_to_string(root.join("Cargo.lock")).unwrap());
    let log = Command::new("git").arg("-C").arg(&root).arg("log").output();
    // There is no history where the sources were unpacked from an archive.
    if let Some(log) = log.ok().filter(|log| log.status.success()) {
        harm.add(&String::from_utf8_lossy(&log.stdout));
    }
    assert!(harm.lines > 1_000, "{} lines", harm.lines);
    harm.check("the lock file and the history");
}
