//! The rules of `.gitignore`, from texts: the same for a directory that is being walked and for one that was.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::tree::{Outer, RelPath, join, parents};

/// The name of the files with the rules.
pub const RULES_FILE: &[u8] = b".gitignore";
/// Never part of a snapshot, at any depth.
pub const GIT: &[u8] = b".git";
/// What files that a restore has begun to write are called.
pub const STAGED: &[u8] = b".ctx-restore.";

/// Never part of a snapshot, whatever the rules say.
pub fn is_never_part(name: &[u8]) -> bool {
    name == GIT || name.starts_with(STAGED)
}

/// The rules that hold in a workspace. Later ones come before earlier ones.
#[derive(Debug, Default, Clone)]
pub struct Ignored {
    levels: Vec<Level>,
}

#[derive(Debug, Clone)]
struct Level {
    place: Place,
    rules: Gitignore,
    /// The rules are no text, and are matched as `as_text` has them.
    is_odd: bool,
}

#[derive(Debug, Clone)]
enum Place {
    /// The file is in a directory of the workspace.
    In(RelPath),
    /// It is above, and the workspace is here from there.
    Above(RelPath),
}

impl Ignored {
    /// The rules from above the workspace, the outermost first.
    pub fn above(outer: &[Outer]) -> Ignored {
        let level = |outer: &Outer| Level::new(Place::Above(outer.below.clone()), &outer.text);
        Ignored { levels: outer.iter().map(level).collect() }
    }

    /// Adds the rules of a directory. Outer directories come before inner ones.
    pub fn add(&mut self, dir: &[u8], text: &[u8]) {
        self.levels.push(Level::new(Place::In(dir.to_vec()), text));
    }

    /// How many texts there are, to go back to.
    pub fn len(&self) -> usize {
        self.levels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub fn truncate(&mut self, length: usize) {
        self.levels.truncate(length);
    }

    /// Whether a path is ignored, of which the directory is not.
    pub fn has(&self, path: &[u8], is_dir: bool) -> bool {
        for level in self.levels.iter().rev() {
            let joined;
            let seen: &[u8] = match &level.place {
                Place::In(dir) if dir.is_empty() => path,
                Place::In(dir) => {
                    match path.strip_prefix(dir.as_slice()).and_then(|rest| rest.strip_prefix(b"/")) {
                        Some(rest) => rest,
                        None => continue,
                    }
                }
                Place::Above(below) => {
                    joined = join(below, path);
                    &joined
                }
            };
            let text = level.is_odd.then(|| as_text(seen));
            let seen = text.as_ref().map_or(seen, |text| text.as_bytes());
            match level.rules.matched(Path::new(OsStr::from_bytes(seen)), is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    /// Whether a path is ignored, by itself or with a directory that it is in.
    pub fn has_within(&self, path: &[u8], is_dir: bool) -> bool {
        self.has(path, is_dir) || parents(path).any(|dir| self.has(dir, true))
    }
}

impl Level {
    fn new(place: Place, text: &[u8]) -> Level {
        Level { place, rules: rules(text), is_odd: std::str::from_utf8(text).is_err() }
    }
}

/// Bytes that are no text as characters that stand for nothing else.
fn as_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(0x0010_ff00 + u32::from(*byte))));
    }
    text
}

/// A line that is no pattern is left out, as git does.
fn rules(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(".");
    for line in as_text(text).lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_rules_come_before_outer_ones_and_rules_above_count_from_there() {
        let outer = Outer { below: b"crates/a".to_vec(), text: b"/crates/a/out\n*.tmp\n".to_vec() };
        let mut rules = Ignored::above(&[outer]);
        rules.add(b"", b"*.log\n/only-top\nbuild/\n");
        rules.add(b"sub", b"!keep.log\n/mine\n");
        for (path, is_dir, ignored) in [
            ("out", true, true),
            ("sub/out", true, false),
            ("x.tmp", false, true),
            ("a.log", false, true),
            ("sub/a.log", false, true),
            ("sub/keep.log", false, false),
            ("keep.log", false, true),
            ("only-top", false, true),
            ("sub/only-top", false, false),
            ("sub/mine", false, true),
            ("subway/mine", false, false),
            ("build", true, true),
            ("build", false, false),
        ] {
            assert_eq!(rules.has(path.as_bytes(), is_dir), ignored, "{path}");
        }
        let mut odd = Ignored::default();
        odd.add(b"", b"caf\xe9*\n");
        assert!(
            odd.has(b"caf\xe9-1", false)
                && !odd.has(b"caf\xe8", false)
                && !odd.has("caf\u{e9}".as_bytes(), false)
        );
        assert!(rules.has_within(b"build/deep/file", false));
        assert!(!rules.has_within(b"sub/file", false));
        assert!(is_never_part(b".git") && is_never_part(b".ctx-restore.1") && !is_never_part(b".github"));
    }
}
