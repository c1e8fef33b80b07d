//! `fs.read`: the text of a file, whole or a window of its lines.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use ctx_session::Code;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Plan, Scope, Tool, ToolError, arguments, blocking, path_subjects};
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::view::Found;

/// How much of a file is looked at to tell text from anything else.
const PROBE_BYTES: usize = 8 * 1024;

/// The tool.
#[derive(Debug)]
pub struct FsRead;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    path: String,
    /// The first line to show, from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// How many lines to show.
    #[serde(default)]
    limit: Option<u64>,
}

impl Tool for FsRead {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fs.read".to_owned(),
            description: "Reads a text file. Large files: read a window of lines with offset and limit."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "absolute, or relative to the working directory"},
                    "offset": {"type": "integer", "minimum": 1, "description": "first line to show, from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "number of lines to show"}
                },
                "required": ["path"],
                "additionalProperties": false
            }),
        }
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: Input = arguments(&self.spec(), input)?;
        if input.offset == Some(0) || input.limit == Some(0) {
            return Err(ToolError::new(Code::Einval, "offset and limit count from 1"));
        }
        let found = scope.view.find(&scope.cwd, Path::new(&input.path))?;
        let subjects = path_subjects(&found, scope);
        let scope = Arc::clone(scope);
        Ok(Plan { subjects, work: blocking(move || read(&scope, &found, &input)) })
    }
}

fn read(scope: &Scope, found: &Found, input: &Input) -> Result<String, ToolError> {
    use rustix::fs::FileType;
    match found.kind {
        FileType::RegularFile => {}
        FileType::Directory => {
            let message = format!("{} is a directory; use fs.list", input.path);
            return Err(ToolError::new(Code::Einval, message));
        }
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {
            return Err(ToolError::new(Code::Einval, format!("{} is not a regular file", input.path)));
        }
    }
    let file = scope.view.open_file(found)?;
    let meta = file.metadata().map_err(|error| io(&input.path, &error))?;
    if !meta.is_file() {
        return Err(ToolError::new(Code::Einval, format!("{} is not a regular file", input.path)));
    }
    let window = Window {
        first: input.offset.unwrap_or(1),
        lines: input.limit.unwrap_or(u64::MAX),
        bytes: scope.limits.fs_read_bytes,
    };
    window.read(file, meta.len(), &input.path, &scope.stop)
}

/// Which lines are wanted, and how many bytes of them at most.
struct Window {
    first: u64,
    lines: u64,
    bytes: usize,
}

impl Window {
    fn read(&self, file: File, size: u64, path: &str, stop: &CancellationToken) -> Result<String, ToolError> {
        let mut reader = BufReader::with_capacity(PROBE_BYTES, file);
        let probe = reader.fill_buf().map_err(|error| io(path, &error))?;
        if probe.contains(&0) {
            let message = format!("{path} is a binary file of {size} bytes; fs.read shows text only");
            return Err(ToolError::new(Code::Einval, message));
        }
        let mut shown: Vec<u8> = Vec::new();
        let mut line: u64 = 1;
        let mut cut = false;
        // A line may be longer than memory, so the file is taken piece by piece.
        loop {
            if stop.is_cancelled() {
                return Err(ToolError::new(Code::Eintr, "the run was stopped"));
            }
            let piece = reader.fill_buf().map_err(|error| io(path, &error))?;
            if piece.is_empty() || line >= self.first.saturating_add(self.lines) {
                break;
            }
            let end = piece.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let take = end.unwrap_or(piece.len());
            if line >= self.first {
                let room = self.bytes.saturating_sub(shown.len());
                shown.extend(piece.iter().take(take.min(room)));
                cut = take > room;
            }
            reader.consume(take);
            if cut {
                break;
            }
            line = line.saturating_add(u64::from(end.is_some()));
        }
        if shown.is_empty() && self.first > 1 {
            let message = format!("{path} has no line {}; it ends before", self.first);
            return Err(ToolError::new(Code::Einval, message));
        }
        let mut text = String::from_utf8_lossy(&shown).into_owned();
        if cut {
            // The cut may have gone through a character.
            text.truncate(text.trim_end_matches('\u{FFFD}').len());
            text.push_str(&format!(
                "\n[cut in line {line} after {} bytes; the file has {size} bytes: read on with offset {line}]\n",
                self.bytes
            ));
        }
        Ok(text)
    }
}

fn io(path: &str, error: &std::io::Error) -> ToolError {
    ToolError::new(Code::Eio, format!("cannot read {path}: {error}"))
}
