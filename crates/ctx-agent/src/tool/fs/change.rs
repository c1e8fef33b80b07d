//! What `fs.write` and `fs.edit` share: a file is changed only as the agent has read it, and the change is shown as a diff.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::Code;
use ctx_session::record::ToolSummary;
use rustix::fs::FileType;
use similar::{ChangeTag, TextDiff};

use super::super::{Output, Plan, Scope, ToolError, blocking, count, path_subjects};
use super::FILE_BYTES_MAX;
use super::seen::Stamp;
use crate::redact::Redaction;
use crate::view::change::{ChangeError, Spot};

/// What a redaction puts in the place of a secret begins with this.
const MARK: &str = "[REDACTED:";
/// Looking for the shortest diff ends after this; what is found until then is right too.
const DIFF_TIME: Duration = Duration::from_millis(500);
const CONTEXT_LINES: usize = 3;
/// Of a new file, a longer diff is recorded and not sent back to the model.
const NEW_FILE_DIFF_BYTES: usize = 4 << 10;

impl From<ChangeError> for ToolError {
    fn from(error: ChangeError) -> ToolError {
        ToolError::new(error.code(), error.to_string())
    }
}

/// A file as it is before a change, which the agent may change.
pub(super) struct Before {
    pub spot: Spot,
    /// None: there is no such file yet.
    pub old: Option<Vec<u8>>,
}

impl Before {
    /// Finds the file, and refuses what may not be changed or was not read.
    pub(super) fn read(scope: &Scope, path: &str) -> Result<Before, ToolError> {
        let spot = scope.view.spot(&scope.cwd, Path::new(path))?;
        scope.view.may_change(&spot)?;
        let Some(found) = &spot.found else { return Ok(Before { spot, old: None }) };
        if found.kind != FileType::RegularFile {
            return Err(ToolError::new(Code::Einval, format!("{path} is not a regular file")));
        }
        let mut old = Vec::new();
        let file = scope.view.open_file(found)?;
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut old);
        read.map_err(|error| ToolError::new(Code::Eio, format!("cannot read {path}: {error}")))?;
        if count(old.len()) > FILE_BYTES_MAX {
            let message = format!("{path} is larger than {FILE_BYTES_MAX} bytes; change it with a command");
            return Err(ToolError::new(Code::Emsgsize, message));
        }
        match scope.services.seen.of(scope.reader, &found.path) {
            Some(seen) if seen == Stamp::of(&old) => Ok(Before { spot, old: Some(old) }),
            Some(_) => Err(ChangeError::Changed { path: path.to_owned() }.into()),
            None => {
                let message = format!("{path} exists, and you have not read it; read it with fs.read first");
                Err(ToolError::new(Code::Ebusy, message))
            }
        }
    }

    /// Refuses text that says `[REDACTED:…]` where the file does not: what stands there would be lost.
    pub(super) fn refuse_marks(&self, scope: &Scope, texts: &[&str]) -> Result<(), ToolError> {
        let old = self.old.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let new = texts.iter().flat_map(|text| marks(text)).find(|mark| !old.contains(mark));
        match new {
            Some(mark) if scope.redaction.is_on() => {
                let path = self.spot.path.display();
                let message = format!(
                    "the text has `{mark}`, which stands for a secret that you were not shown; {path} has the secret \
                     itself, and writing the mark would lose it. Change the lines around it with fs.edit and leave it out"
                );
                Err(ToolError::new(Code::Einval, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A call that makes the file say this.
    pub(super) fn plan(self, scope: &Arc<Scope>, new: Vec<u8>, what: String) -> Plan {
        let Before { spot, old } = self;
        let subjects = path_subjects(&spot.path, scope);
        let (diff, summary) = diff(&spot.path, old.as_deref(), &new, &scope.redaction);
        let shown = diff.clone();
        let scope = Arc::clone(scope);
        let work = blocking(move || {
            scope.view.replace(&spot, old.as_deref(), &new)?;
            scope.services.seen.note(scope.reader, &spot.path, Stamp::of(&new));
            // A long new text is known to whoever wrote it.
            let is_told = |diff: &&str| old.is_some() || diff.len() <= NEW_FILE_DIFF_BYTES;
            let changed = diff.as_deref().filter(is_told).unwrap_or_default();
            Ok(Output { text: format!("{what}\n{changed}"), diff, summary })
        });
        Plan { subjects, diff: shown, host: None, work }
    }
}

/// The marks in a text, each up to its bracket.
fn marks(text: &str) -> impl Iterator<Item = &str> {
    let mark = |(at, _)| {
        let rest: &str = text.get(at..)?;
        rest.get(..rest.find(']').map_or(MARK.len(), |end| end + 1))
    };
    text.match_indices(MARK).filter_map(mark)
}

/// The change as a unified diff, and its size. Bytes that are no text have none. The texts are redacted before they are
/// compared: a piece of a secret in a diff could not be told from other text.
fn diff(path: &Path, old: Option<&[u8]>, new: &[u8], redaction: &Redaction) -> (Option<String>, ToolSummary) {
    let bytes = Some(count(new.len()));
    let texts = std::str::from_utf8(old.unwrap_or_default()).ok().zip(std::str::from_utf8(new).ok());
    let Some((before, after)) = texts else {
        return (None, ToolSummary { bytes, ..ToolSummary::default() });
    };
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before, after);
    let lines = |tag| Some(count(diff.iter_all_changes().filter(|change| change.tag() == tag).count()));
    let (lines_added, lines_removed) = (lines(ChangeTag::Insert), lines(ChangeTag::Delete));
    let ((before, _), (after, secrets)) =
        (redaction.text(before.to_owned()), redaction.text(after.to_owned()));
    let redacted = Some(secrets).filter(|secrets| *secrets > 0);
    let summary = ToolSummary { bytes, lines_added, lines_removed, redacted, ..ToolSummary::default() };
    let to = path.display().to_string();
    let from = if old.is_some() { to.as_str() } else { "/dev/null" };
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before.as_str(), after.as_str());
    let text = diff.unified_diff().context_radius(CONTEXT_LINES).header(from, &to).to_string();
    (Some(text), summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_both_names_and_counts_its_lines() {
        let (text, summary) =
            diff(Path::new("/work/a"), Some(b"one\ntwo\n"), b"one\n2\nthree\n", &Redaction::off());
        assert_eq!(text.unwrap(), "--- /work/a\n+++ /work/a\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n");
        assert_eq!((summary.lines_added, summary.lines_removed, summary.bytes), (Some(2), Some(1), Some(12)));
        let (text, _) = diff(Path::new("/work/a"), None, b"new", &Redaction::off());
        let text = text.unwrap();
        assert!(text.starts_with("--- /dev/null\n+++ /work/a\n@@ -0,0 +1 @@\n+new\n"), "{text}");
        assert!(text.contains("No newline at end of file"), "{text}");
        assert_eq!(diff(Path::new("/a"), Some(&[0xff]), b"x", &Redaction::off()).0, None);
    }

    #[test]
    fn marks_are_found_whole() {
        let all: Vec<&str> = marks("a=[REDACTED:env:A] b [REDACTED:github] [REDACTED:").collect();
        assert_eq!(all, ["[REDACTED:env:A]", "[REDACTED:github]", "[REDACTED:"]);
    }
}
