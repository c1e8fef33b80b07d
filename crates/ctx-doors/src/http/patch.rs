//! What became of a file, as a patch that `git apply` reads.
//!
//! Git knows of a mode only whether a file is executable, and knows no empty directories; what it does not know is in no
//! patch. Neither is what is no text.

use std::fmt::Write;
use std::time::Duration;

use ctx_snapshot::{Node, SnapshotError, Workspace};
use similar::TextDiff;

/// A file that is longer has no patch.
const FILE_BYTES: u64 = 1 << 20;
/// After that long, a longer diff than needed will do.
const SEARCH_MAX: Duration = Duration::from_millis(500);

const LINK: &str = "120000";

/// A file or link, as git sees it.
struct Side {
    mode: &'static str,
    text: String,
}

/// The patch from one state of a path to another; None, where git can have none.
pub(super) fn patch(
    workspace: &Workspace,
    path: &[u8],
    before: Option<&Node>,
    after: Option<&Node>,
) -> Result<Option<String>, SnapshotError> {
    let (Some(was), Some(is)) = (side(workspace, before)?, side(workspace, after)?) else { return Ok(None) };
    let text = match (&was, &is) {
        // A link and a file are two things to git: one goes, and the other comes.
        (Some(was), Some(is)) if (was.mode == LINK) != (is.mode == LINK) => {
            part(path, Some(was), None) + &part(path, None, Some(is))
        }
        (was, is) => part(path, was.as_ref(), is.as_ref()),
    };
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The outer option: whether it is text. The inner one: whether git sees something there.
fn side(workspace: &Workspace, node: Option<&Node>) -> Result<Option<Option<Side>>, SnapshotError> {
    let (mode, bytes) = match node {
        None | Some(Node::Dir { .. }) => return Ok(Some(None)),
        Some(Node::Link { target }) => (LINK, Some(target.clone())),
        Some(node @ Node::File { mode, .. }) => {
            let mode = if mode & 0o100 == 0 { "100644" } else { "100755" };
            (mode, workspace.text(node, FILE_BYTES)?)
        }
    };
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
    Ok(text.map(|text| Some(Side { mode, text })))
}

fn part(path: &[u8], was: Option<&Side>, is: Option<&Side>) -> String {
    let modes = match (was, is) {
        (None, Some(is)) => format!("new file mode {}\n", is.mode),
        (Some(was), None) => format!("deleted file mode {}\n", was.mode),
        (Some(was), Some(is)) if was.mode != is.mode => {
            format!("old mode {}\nnew mode {}\n", was.mode, is.mode)
        }
        _ => String::new(),
    };
    let text = |side: Option<&Side>| side.map_or(String::new(), |side| side.text.clone());
    let hunks = hunks(&text(was), &text(is));
    if modes.is_empty() && hunks.is_empty() {
        return String::new();
    }
    let (old, new) = (name("a/", path), name("b/", path));
    let mut patch = format!("diff --git {old} {new}\n{modes}");
    if !hunks.is_empty() {
        let side = |name: String, is_there: bool| match is_there {
            // As git does it: the tab ends a name with spaces.
            true if name.contains(' ') => format!("{name}\t"),
            true => name,
            false => "/dev/null".to_owned(),
        };
        let (old, new) = (side(old, was.is_some()), side(new, is.is_some()));
        patch.push_str(&format!("--- {old}\n+++ {new}\n{hunks}"));
    }
    patch
}

/// Git's lines end with `\n` alone.
fn hunks(was: &str, is: &str) -> String {
    let (was, is): (Vec<&str>, Vec<&str>) =
        (was.split_inclusive('\n').collect(), is.split_inclusive('\n').collect());
    let diff = TextDiff::configure().timeout(SEARCH_MAX).diff_slices(&was, &is);
    let mut text = String::new();
    for hunk in diff.unified_diff().iter_hunks() {
        let _ = writeln!(text, "{}", hunk.header());
        for change in hunk.iter_changes() {
            let line = change.value();
            let end = if line.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            let _ = write!(text, "{}{line}{end}", change.tag());
        }
    }
    text
}

/// A name, quoted as in C where git quotes it.
fn name(side: &str, path: &[u8]) -> String {
    let mut text = side.to_owned();
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => text.extend(['\\', char]),
                char if char.is_ascii_control() => text.push_str(&format!("\\{:03o}", u32::from(char))),
                char => text.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
    }
    if text.contains('\\') { format!("\"{text}\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_git_quotes_them() {
        for (path, wanted) in [
            (b"plain name".as_slice(), "a/plain name"),
            ("\u{e9}".as_bytes(), "a/\u{e9}"),
            (b"t\tb", "\"a/t\\011b\""),
            (b"q\"\\", "\"a/q\\\"\\\\\""),
            (b"\xff", "\"a/\\377\""),
        ] {
            assert_eq!(name("a/", path), wanted);
        }
    }

    #[test]
    fn a_lone_carriage_return_ends_no_line() {
        assert_eq!(hunks("a\rb\n", "a\rc\r"), "@@ -1 +1 @@\n-a\rb\n+a\rc\r\n\\ No newline at end of file\n");
    }
}
