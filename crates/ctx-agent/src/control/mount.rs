//! Mount tables: lines of `source target ro|rw`. White space inside a path is written in octal, as in fstab.

use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use super::short;

/// Whether what is mounted may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// What is done with links on the way to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are followed, with the rights of whoever looks.
    Follow,
    /// The path had none when it was resolved, so it has none now.
    Refuse,
}

/// A directory of the machine and where the agent sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// An absolute path on the machine.
    pub source: PathBuf,
    /// An absolute path in the agent's view, without `.` and `..`.
    pub target: PathBuf,
    pub access: Access,
    pub links: Links,
}

impl Mount {
    /// Reads a line of the table. A target with `..` is refused, because the view compares targets name by name and never resolves them.
    pub fn parse(line: &str) -> Result<Mount, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [source, target, access] = words.as_slice() else {
            return Err(format!(
                "expected `SOURCE TARGET ro|rw`, found {} words; write a space in a path as \\040",
                words.len()
            ));
        };
        let access = match *access {
            "ro" => Access::ReadOnly,
            "rw" => Access::ReadWrite,
            other => return Err(format!("expected `ro` or `rw`, found `{}`", short(other))),
        };
        let source = PathBuf::from(unescape(source)?);
        if !source.is_absolute() {
            return Err(format!(
                "the source `{}` must be an absolute path",
                short(&source.to_string_lossy())
            ));
        }
        let target = PathBuf::from(unescape(target)?);
        let plain = target.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !target.is_absolute() || !plain {
            return Err(format!(
                "the target `{}` must be an absolute path without `..`",
                short(&target.to_string_lossy())
            ));
        }
        Ok(Mount { source, target: target.components().collect(), access, links: Links::Follow })
    }

    /// The line of the table that reads back as this mount. Paths that are not UTF-8 cannot be written.
    pub fn line(source: &Path, target: &str, access: Access) -> Option<String> {
        let access = match access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        Some(format!("{} {} {access}", escape(source.to_str()?), escape(target)))
    }
}

fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        // What separates words, comments and escapes; all of it is ASCII or is white space of one to three bytes.
        if c.is_whitespace() || c == '\\' || c == '#' {
            let mut bytes = [0u8; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\{byte:03o}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn unescape(word: &str) -> Result<String, String> {
    let bad =
        || format!("`{}` has a bad escape: a backslash and three octal digits are expected", short(word));
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let mut value: u32 = 0;
        for _ in 0..3 {
            let digit = rest.next().and_then(|b| char::from(b).to_digit(8)).ok_or_else(bad)?;
            value = value * 8 + digit;
        }
        bytes.push(u8::try_from(value).ok().filter(|byte| *byte != 0).ok_or_else(bad)?);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_source_target_and_access() {
        let mount = Mount::parse("/home/me/my\\040project  /work/ ro").unwrap();
        assert_eq!(mount.source, Path::new("/home/me/my project"));
        assert_eq!(mount.target, Path::new("/work"));
        assert_eq!(mount.access, Access::ReadOnly);
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (line, part) in [
            ("/a /b", "expected `SOURCE TARGET ro|rw`, found 2 words"),
            ("/my project /work rw", "found 4 words"),
            ("/a /b wr", "found `wr`"),
            ("a /b rw", "the source `a` must be an absolute path"),
            ("/a b rw", "the target `b` must be an absolute path"),
            ("/a /b/../c rw", "without `..`"),
            ("/a\\9 /b rw", "bad escape"),
            ("/a\\000 /b rw", "bad escape"),
            ("/a\\777 /b rw", "bad escape"),
        ] {
            let error = Mount::parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_directory_can_be_written_and_read_back(name in "[^/\0]{1,20}") {
            prop_assume!(name != "." && name != "..");
            let source = Path::new("/base").join(&name);
            let line = Mount::line(&source, "/work", Access::ReadWrite).unwrap();
            prop_assert!(!line.starts_with('#'));
            let mount = Mount::parse(&line).unwrap();
            prop_assert_eq!(mount.source, source);
            prop_assert_eq!(mount.target, Path::new("/work"));
        }

        #[test]
        fn no_line_panics(line in ".{0,60}") {
            let _ = Mount::parse(&line);
        }
    }
}
