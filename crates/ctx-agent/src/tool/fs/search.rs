//! `fs.search`: the lines of files that match a regular expression.
//!
//! Files are reached through the view, name by name, as every other tool reaches them; what `.gitignore` and `.ignore`
//! files name is left out, links are not followed, and `.git` is never searched.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_session::Code;
use ctx_session::record::ToolSummary;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use memchr::memmem;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Output, Plan, Scope, Tool, ToolError, arguments, blocking, path_subjects};
use super::FILE_BYTES_MAX;
use crate::control::policy::{Effects, Verdict};
use crate::cut;
use crate::model::ToolSpec;
use crate::view::Found;

/// Matches that are shown when the call names no number.
const MAX_DEFAULT: u64 = 200;
/// Longest line that is shown.
const LINE_BYTES: usize = 500;
/// What is in every file with a private key.
const KEY: &[u8] = b"PRIVATE KEY";
/// Files that say what to leave out, the stronger one first, and how much of one is read.
const IGNORE_FILES: [&str; 2] = [".ignore", ".gitignore"];
const IGNORE_FILE_BYTES: u64 = 1 << 16;
/// A line of a large file that is longer than this is not searched.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The tool.
#[derive(Debug)]
pub struct FsSearch;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    pattern: String,
    #[serde(default)]
    path: PathBuf,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    max: Option<u64>,
}

impl Tool for FsSearch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.search".to_owned(),
            description:
                "Searches the text of files (grep) below a directory for a regular expression; gives \
                          `path:line: text`. Files that .gitignore names are left out."
                    .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "a regular expression; (?i) ignores case"},
                    "path": {"type": "string", "description": "a directory or file; the working directory when left out"},
                    "glob": {"type": "string", "description": "only files that match, such as *.rs; with ! before it, the others"},
                    "max": {"type": "integer", "minimum": 1, "description": "most matches to show; 200 when left out"}
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn runs_in_parallel(&self) -> bool {
        true
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: Input = arguments(&self.spec(), input)?;
        let bad = |message: String| ToolError::new(Code::Einval, message);
        if input.max == Some(0) {
            return Err(bad("max counts from 1".to_owned()));
        }
        let found = scope.view.find(&scope.cwd, &input.path)?;
        let subjects = path_subjects(&found.path, scope);
        let matcher = RegexMatcherBuilder::new().line_terminator(Some(b'\n')).build(&input.pattern);
        let matcher = matcher.map_err(|error| bad(format!("bad pattern: {error}")))?;
        let glob = match &input.glob {
            Some(glob) => {
                let made = OverrideBuilder::new(&found.path).add(glob).and_then(|made| made.build());
                made.map_err(|error| bad(format!("bad glob: {error}")))?
            }
            None => Override::empty(),
        };
        let scope = Arc::clone(scope);
        let max = input.max.unwrap_or(MAX_DEFAULT);
        Ok(Plan::new(subjects, blocking(move || Search::new(&scope, matcher, glob, max).run(&found))))
    }
}

/// What is searched of a file.
enum Content {
    Text(Vec<u8>),
    /// Too large to be held in memory.
    Large(File),
}

/// A search on its way.
struct Search<'a> {
    scope: &'a Scope,
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Override,
    max: u64,
    text: String,
    matches: u64,
    /// Files with a match, and all that were searched.
    files: u64,
    searched: u64,
    /// Files and directories that could not be read.
    unread: u64,
    /// Files that the policy does not let the agent read.
    kept_out: u64,
}

impl<'a> Search<'a> {
    fn new(scope: &'a Scope, matcher: RegexMatcher, glob: Override, max: u64) -> Search<'a> {
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .heap_limit(Some(HELD_BYTES_MAX))
            .build();
        let (matches, files, searched, unread, kept_out) = (0, 0, 0, 0, 0);
        let text = String::new();
        Search { scope, matcher, searcher, glob, max, text, matches, files, searched, unread, kept_out }
    }

    fn run(mut self, found: &Found) -> Result<Output, ToolError> {
        match found.kind {
            FileType::Directory => {
                let mut ignores = self.above(found);
                self.directory(found, &mut ignores)?;
            }
            FileType::RegularFile => self.file(found),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                let message = format!("{} is not a file or a directory", found.path.display());
                return Err(ToolError::new(Code::Einval, message));
            }
        }
        let Search { mut text, matches, files, searched, max, unread, kept_out, .. } = self;
        let found_in =
            format!("{} in {}", counted(matches, "match", "matches"), counted(files, "file", "files"));
        text += &match matches {
            0 => format!("[no match in {}]\n", counted(searched, "file", "files")),
            all if all > max => {
                format!("[{max} shown of {found_in}; narrow the pattern or the path, or raise max]\n")
            }
            _ => format!("[{found_in}]\n"),
        };
        if unread > 0 {
            text += &format!(
                "[{} could not be read]\n",
                counted(unread, "file or directory", "files or directories")
            );
        }
        if kept_out > 0 {
            text += &format!(
                "[{} left out, because the policy does not allow to read it]\n",
                counted(kept_out, "file", "files")
            );
        }
        let summary = ToolSummary { matches: Some(matches), files: Some(files), ..ToolSummary::default() };
        Ok(Output { text, diff: None, summary })
    }

    /// The ignore files of the directories above, from the beginning of the mount on.
    fn above(&self, found: &Found) -> Vec<Gitignore> {
        let top = self.scope.view.mount_of(found);
        let mut above: Vec<&Path> =
            found.path.ancestors().skip(1).take_while(|dir| dir.starts_with(&top)).collect();
        above.reverse();
        let found = above.into_iter().filter_map(|dir| self.scope.view.find(Path::new("/"), dir).ok());
        found.flat_map(|dir| self.ignores_of(&dir)).collect()
    }

    /// What the ignore files of a directory say, the stronger last.
    fn ignores_of(&self, dir: &Found) -> Vec<Gitignore> {
        let mut made = Vec::new();
        for name in IGNORE_FILES.iter().rev() {
            let view = &self.scope.view;
            let file = view
                .child(dir, name.as_ref(), FileType::RegularFile)
                .and_then(|found| view.open_file(&found));
            let mut text = Vec::new();
            let Ok(Ok(_)) = file.map(|file| file.take(IGNORE_FILE_BYTES).read_to_end(&mut text)) else {
                continue;
            };
            let mut builder = GitignoreBuilder::new(&dir.path);
            for line in String::from_utf8_lossy(&text).lines() {
                // A line that is no glob says nothing, as for git.
                let _ = builder.add_line(None, line);
            }
            made.extend(builder.build());
        }
        made
    }

    /// Searches a directory. Links are not followed, so that no directory is searched twice or for ever.
    fn directory(&mut self, dir: &Found, ignores: &mut Vec<Gitignore>) -> Result<(), ToolError> {
        if self.scope.stop.is_cancelled() {
            return Err(ToolError::new(Code::Eintr, "the run was stopped"));
        }
        let Ok(entries) = self.scope.view.list(dir) else {
            self.unread += 1;
            return Ok(());
        };
        let outer = ignores.len();
        if entries.iter().any(|(name, _)| IGNORE_FILES.iter().any(|ignore| name == ignore)) {
            ignores.extend(self.ignores_of(dir));
        }
        for (name, kind) in entries {
            let is_dir = kind == FileType::Directory;
            let path = dir.path.join(&name);
            if name == ".git"
                || !(is_dir || kind == FileType::RegularFile)
                || is_ignored(ignores, &path, is_dir)
            {
                continue;
            }
            // A glob chooses files; every directory may hold some.
            let unwanted = match self.glob.matched(&path, is_dir) {
                Match::Ignore(_) => true,
                Match::None => false,
                Match::Whitelist(_) => false,
            };
            if unwanted {
                continue;
            }
            match self.scope.view.child(dir, &name, kind) {
                Ok(found) if is_dir => self.directory(&found, ignores)?,
                Ok(found) => self.file(&found),
                Err(_) => self.unread += 1,
            }
        }
        ignores.truncate(outer);
        Ok(())
    }

    /// Searches a file that `fs.read` would be allowed to read: a search must not show what a read is denied.
    fn file(&mut self, found: &Found) {
        let subjects = path_subjects(&found.path, self.scope);
        if self.scope.policy.decide("fs.read", Effects::None, &subjects) != Verdict::Allow {
            self.kept_out += 1;
            return;
        }
        let Ok(content) = self.read(found) else {
            self.unread += 1;
            return;
        };
        self.searched += 1;
        let shown = found.path.strip_prefix(&self.scope.cwd).unwrap_or(&found.path).display().to_string();
        let (mut here, before, max) = (0, self.matches, self.max);
        let text = &mut self.text;
        let sink = Lossy(|line, found: &str| {
            here += 1;
            if before + here <= max {
                let found = found.trim_end_matches(['\n', '\r']);
                let part = cut(found, LINE_BYTES);
                let more = if part.len() < found.len() { " …" } else { "" };
                text.push_str(&format!("{shown}:{line}: {part}{more}\n"));
            }
            Ok(true)
        });
        let searched = match &content {
            Content::Text(text) => self.searcher.search_slice(&self.matcher, text, sink),
            Content::Large(file) => self.searcher.search_file(&self.matcher, file, sink),
        };
        self.unread += u64::from(searched.is_err());
        self.matches += here;
        self.files += u64::from(here > 0);
    }

    /// What is searched of a file. A line of a key says nothing of what it is, so a file with a key is redacted as a whole.
    fn read(&self, found: &Found) -> Result<Content, ToolError> {
        let mut file = self.scope.view.open_file(found)?;
        let unread = |error: std::io::Error| ToolError::new(Code::Eio, error.to_string());
        let meta = file.metadata().map_err(unread)?;
        // What was listed as a file may be a pipe by now.
        if !meta.is_file() {
            return Ok(Content::Text(Vec::new()));
        }
        if meta.len() > FILE_BYTES_MAX {
            return Ok(Content::Large(file));
        }
        let mut text = Vec::new();
        file.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unread)?;
        match self.scope.redaction.filter().filter(|_| memmem::find(&text, KEY).is_some()) {
            Some(mut filter) => {
                let mut shown = Vec::with_capacity(text.len());
                filter.push(&text, &mut shown);
                filter.finish(&mut shown);
                Ok(Content::Text(shown))
            }
            None => Ok(Content::Text(text)),
        }
    }
}

/// Whether the nearest rule that speaks of a path leaves it out.
fn is_ignored(ignores: &[Gitignore], path: &Path, is_dir: bool) -> bool {
    let said = ignores.iter().rev().map(|ignore| ignore.matched(path, is_dir)).find(|said| !said.is_none());
    said.is_some_and(|said| said.is_ignore())
}

fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
