//! `fs.stat`: what is at a path.

use std::path::Path;
use std::sync::Arc;

use ctx_session::Timestamp;
use ctx_session::record::ToolSummary;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Output, Plan, Scope, Tool, ToolError, arguments, blocking, path_subjects};
use crate::control::mount::Access;
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::view::Found;

/// The tool.
#[derive(Debug)]
pub struct FsStat;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
}

impl Tool for FsStat {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.stat".to_owned(),
            description: "Says what is at a path: its kind, size, mode and time, and whether it is on a read-only mount."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string"}
                },
                "required": ["path"],
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
        let subjects = path_subjects(&found.path, scope);
        let scope = Arc::clone(scope);
        Ok(Plan::new(subjects, blocking(move || stat(&scope, &found))))
    }
}

fn stat(scope: &Scope, found: &Found) -> Result<Output, ToolError> {
    let kind = match found.kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "unknown",
    };
    let mut text = format!("path: {}\nkind: {kind}\n", found.path.display());
    let mut summary = ToolSummary::default();
    if let Some(stat) = scope.view.stat(found)? {
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
        let time = Timestamp::from_millis(
            seconds.saturating_mul(1_000).saturating_add(stat.st_mtime_nsec / 1_000_000),
        );
        text += &format!("size: {size}\nmode: {:04o}\nmodified: {time}\n", stat.st_mode & 0o7777);
        summary.bytes = Some(size);
    }
    let access = match found.access {
        Access::ReadOnly => "read-only",
        Access::ReadWrite => "read-write",
    };
    text += &format!("mount: {access}\n");
    Ok(Output { text, diff: None, summary })
}
