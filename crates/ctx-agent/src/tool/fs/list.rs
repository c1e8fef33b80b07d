//! `fs.list`: the names in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_session::Code;
use ctx_session::record::ToolSummary;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Output, Plan, Scope, Tool, ToolError, arguments, blocking, count, path_subjects};
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::view::Found;

/// The tool.
#[derive(Debug)]
pub struct FsList;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    path: PathBuf,
}

impl Tool for FsList {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.list".to_owned(),
            description: "Lists a directory, one name a line in order; directories end in /, links in @."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "absolute, or relative to the working directory; the working directory itself when left out"
                    }
                },
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
        let found = scope.view.find(&scope.cwd, Path::new(&input.path))?;
        if found.kind != FileType::Directory {
            let message = format!("{} is not a directory; use fs.read", input.path.display());
            return Err(ToolError::new(Code::Einval, message));
        }
        let subjects = path_subjects(&found.path, scope);
        let scope = Arc::clone(scope);
        Ok(Plan::new(subjects, blocking(move || list(&scope, &found))))
    }
}

fn list(scope: &Scope, found: &Found) -> Result<Output, ToolError> {
    let entries = scope.view.list(found)?;
    let max = scope.limits.fs_list_entries;
    let mut text = String::new();
    for (name, kind) in entries.iter().take(max) {
        // A line end in a name would look like two names.
        text.push_str(&name.to_string_lossy().replace(['\n', '\r'], "\u{FFFD}"));
        text.push_str(match kind {
            FileType::Directory => "/",
            FileType::Symlink => "@",
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => "",
        });
        text.push('\n');
    }
    match entries.len() {
        0 => text.push_str("(empty)\n"),
        all if all > max => text.push_str(&format!("[cut: {max} of {all} names]\n")),
        _ => {}
    }
    let summary = ToolSummary { entries: Some(count(entries.len())), ..ToolSummary::default() };
    Ok(Output { text, diff: None, summary })
}
