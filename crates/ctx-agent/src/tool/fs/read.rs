//! `fs.read`: the text of a file, whole or a window of its lines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use ctx_session::Code;
use ctx_session::record::ToolSummary;
use ctx_text::redact::Redactor;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{Output, Plan, Scope, Tool, ToolError, arguments, blocking, count, path_subjects};
use super::FILE_BYTES_MAX;
use super::seen::Stamp;
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

    fn runs_in_parallel(&self) -> bool {
        true
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: Input = arguments(&self.spec(), input)?;
        if input.offset == Some(0) || input.limit == Some(0) {
            return Err(ToolError::new(Code::Einval, "offset and limit count from 1"));
        }
        let found = scope.view.find(&scope.cwd, Path::new(&input.path))?;
        let subjects = path_subjects(&found.path, scope);
        let scope = Arc::clone(scope);
        Ok(Plan::new(subjects, blocking(move || read(&scope, &found, &input))))
    }
}

fn read(scope: &Scope, found: &Found, input: &Input) -> Result<Output, ToolError> {
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
    let mut file = scope.view.open_file(found)?;
    let meta = file.metadata().map_err(|error| io(&input.path, &error))?;
    if !meta.is_file() {
        return Err(ToolError::new(Code::Einval, format!("{} is not a regular file", input.path)));
    }
    let window = Window {
        first: input.offset.unwrap_or(1),
        lines: input.limit.unwrap_or(u64::MAX),
        bytes: scope.limits.fs_read_bytes,
        filter: scope.redaction.filter(),
        passed: 0,
    };
    if meta.len() > FILE_BYTES_MAX {
        return window.read(
            BufReader::with_capacity(PROBE_BYTES, file),
            meta.len(),
            &input.path,
            &scope.stop,
        );
    }
    // What is shown and what is remembered are the same bytes, whoever writes to the file meanwhile.
    let mut whole = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut whole).map_err(|error| io(&input.path, &error))?;
    let output = window.read(whole.as_slice(), count(whole.len()), &input.path, &scope.stop)?;
    scope.services.seen.note(scope.reader, &found.path, Stamp::of(&whole));
    Ok(output)
}

/// Which lines are wanted, and how many bytes of them at most.
struct Window {
    first: u64,
    lines: u64,
    bytes: usize,
    /// It sees all lines from the first on: the beginning of a secret may stand before the window.
    filter: Option<Redactor>,
    /// Secrets that stand before the window.
    passed: u64,
}

impl Window {
    fn read(
        mut self,
        mut reader: impl BufRead,
        size: u64,
        path: &str,
        stop: &CancellationToken,
    ) -> Result<Output, ToolError> {
        let probe = reader.fill_buf().map_err(|error| io(path, &error))?;
        if probe.get(..probe.len().min(PROBE_BYTES)).is_some_and(|probe| probe.contains(&0)) {
            let message = format!("{path} is a binary file of {size} bytes; fs.read shows text only");
            return Err(ToolError::new(Code::Einval, message));
        }
        let mut shown: Vec<u8> = Vec::new();
        let (mut line, mut lines, mut taken) = (1, 0, 0);
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
            let wanted = line >= self.first;
            let room = if wanted { self.bytes.saturating_sub(taken) } else { usize::MAX };
            let (part, _) = piece.split_at_checked(take.min(room)).unwrap_or((piece, &[]));
            self.pass(part, &mut shown);
            cut = take > room;
            if wanted {
                taken += part.len();
                lines += u64::from(end.is_some() && !cut);
            } else {
                shown.clear();
                self.passed = self.redactions();
            }
            reader.consume(take);
            if cut {
                break;
            }
            line = line.saturating_add(u64::from(end.is_some()));
        }
        if taken == 0 && self.first > 1 {
            let message = format!("{path} has no line {}; it ends before", self.first);
            return Err(ToolError::new(Code::Einval, message));
        }
        if let Some(filter) = &mut self.filter {
            filter.finish(&mut shown);
        }
        let mut text = String::from_utf8_lossy(&shown).into_owned();
        lines += u64::from(!text.is_empty() && !text.ends_with('\n'));
        let redacted = Some(self.redactions() - self.passed).filter(|secrets| *secrets > 0);
        let summary =
            ToolSummary { bytes: Some(count(taken)), lines: Some(lines), redacted, ..ToolSummary::default() };
        if cut {
            // The cut may have gone through a character.
            text.truncate(text.trim_end_matches('\u{FFFD}').len());
            text.push_str(&format!(
                "\n[cut in line {line} after {} bytes; the file has {size} bytes: read on with offset {line}]\n",
                self.bytes
            ));
        }
        Ok(Output { text, diff: None, summary })
    }

    fn redactions(&self) -> u64 {
        self.filter.as_ref().map_or(0, Redactor::redactions)
    }

    fn pass(&mut self, part: &[u8], shown: &mut Vec<u8>) {
        match &mut self.filter {
            Some(filter) => filter.push(part, shown),
            None => shown.extend_from_slice(part),
        }
    }
}

fn io(path: &str, error: &std::io::Error) -> ToolError {
    ToolError::new(Code::Eio, format!("cannot read {path}: {error}"))
}
