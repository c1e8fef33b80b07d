//! `fs.edit`: replaces pieces of a file's text, each of which must be found as it is written.

use std::sync::Arc;

use ctx_session::Code;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Plan, Scope, Tool, ToolError, arguments};
use super::change::Before;
use super::nearest;
use crate::control::policy::Effects;
use crate::model::ToolSpec;

/// Places of an ambiguous text that are named.
const PLACES_MAX: usize = 10;

/// The tool.
#[derive(Debug)]
pub struct FsEdit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    edits: Vec<Edit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

impl Tool for FsEdit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.edit".to_owned(),
            description: "Replaces text in a file that was read before. `old` is the exact text with its white space, and \
                          must be there once, or anywhere with `all`. Several edits apply in order; if one does not fit, \
                          nothing changes."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "edits": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "properties": {
                                "old": {"type": "string", "minLength": 1},
                                "new": {"type": "string"},
                                "all": {"type": "boolean"}
                            },
                            "required": ["old", "new"],
                            "additionalProperties": false
                        }
                    }
                },
                "required": ["path", "edits"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn runs_in_parallel(&self) -> bool {
        true
    }

    /// The edits are made in memory here, so that the operator who is asked sees the diff of what will be written.
    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let Input { path, edits } = arguments(&self.spec(), input)?;
        let bad = |message: String| ToolError::new(Code::Einval, message);
        if edits.is_empty() {
            return Err(bad("`edits` is empty; give at least one".to_owned()));
        }
        let before = Before::read(scope, &path)?;
        let Some(old) = &before.old else {
            return Err(ToolError::new(
                Code::Enoent,
                format!("{path} does not exist; make it with fs.write"),
            ));
        };
        let text = std::str::from_utf8(old)
            .map_err(|_| bad(format!("{path} is not UTF-8 text; fs.edit changes text only")))?;
        let texts: Vec<&str> = edits.iter().map(|edit| edit.new.as_str()).collect();
        before.refuse_marks(scope, &texts)?;
        let (new, places) = apply(text, &edits).map_err(|problem| bad(format!("{path}: {problem}")))?;
        if new == text {
            return Err(bad(format!("{path}: the edits change nothing")));
        }
        let what = format!("edited {} in {places} places", before.spot.path.display());
        let what = if places == 1 { what.replace("1 places", "1 place") } else { what };
        Ok(before.plan(scope, new.into_bytes(), what))
    }
}

/// The text after all edits, and how many places they changed.
fn apply(text: &str, edits: &[Edit]) -> Result<(String, usize), String> {
    let mut text = text.to_owned();
    let mut places = 0;
    for (number, edit) in edits.iter().enumerate() {
        let fail = |problem: String| match edits.len() {
            1 => problem,
            _ => format!("edit {}: {problem}; none of the edits was made", number + 1),
        };
        let Edit { old, new, all } = with_line_ends_of(&text, edit);
        if old.is_empty() {
            return Err(fail("`old` is empty; to write a whole file use fs.write".to_owned()));
        }
        let found: Vec<usize> = text.match_indices(&old).map(|(at, _)| at).collect();
        match (found.len(), all) {
            (0, _) => return Err(fail(nearest::not_found(&text, &old))),
            (1, _) | (_, true) => {}
            (many, false) => {
                let lines: Vec<String> =
                    found.iter().take(PLACES_MAX).map(|at| line_of(&text, *at).to_string()).collect();
                return Err(fail(format!(
                    "`old` is there {many} times, in the lines {}{}; give more of the text around it, or `all`",
                    lines.join(", "),
                    if many > PLACES_MAX { ", …" } else { "" }
                )));
            }
        }
        places += found.len();
        text = text.replace(&old, &new);
    }
    Ok((text, places))
}

/// The edit with the line ends that the file has: a model is shown both kinds alike.
fn with_line_ends_of(text: &str, edit: &Edit) -> Edit {
    if !text.contains("\r\n") || edit.old.contains('\r') {
        return edit.clone();
    }
    let crlf = |part: &str| part.replace("\r\n", "\n").replace('\n', "\r\n");
    Edit { old: crlf(&edit.old), new: crlf(&edit.new), all: edit.all }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), all: false }
    }

    #[test]
    fn edits_apply_in_order() {
        let edits = [edit("a", "b"), edit("bc", "d")];
        assert_eq!(apply("ac", &edits), Ok(("d".to_owned(), 2)));
        let all = Edit { all: true, ..edit("x", "yy") };
        assert_eq!(apply("x.x.x", &[all]), Ok(("yy.yy.yy".to_owned(), 3)));
    }

    #[test]
    fn what_is_there_twice_is_refused_with_its_lines() {
        let problem = apply("x\nx\n", &[edit("x", "y")]).unwrap_err();
        assert!(problem.contains("2 times, in the lines 1, 2"), "{problem}");
    }

    #[test]
    fn one_that_fails_is_named_among_several() {
        let problem = apply("a\n", &[edit("a", "b"), edit("nothing like it", "c")]).unwrap_err();
        assert!(
            problem.starts_with("edit 2: ") && problem.ends_with("none of the edits was made"),
            "{problem}"
        );
        assert!(apply("a", &[edit("", "b")]).unwrap_err().contains("fs.write"));
    }

    #[test]
    fn a_file_keeps_its_line_ends() {
        let (text, _) = apply("a\r\nb\r\nc\r\n", &[edit("a\nb\n", "1\n2\n3\n")]).unwrap();
        assert_eq!(text, "1\r\n2\r\n3\r\nc\r\n");
    }
}
