//! Instruction files: the `AGENTS.md` of the project and of the directories down to where a run works.
//!
//! They go into the prompt after the agent's own, and every one is named in the run's `context` record.

use std::io::Read;
use std::path::{Path, PathBuf};

use ctx_session::port::Instructions;
use ctx_session::record::Source;
use rustix::fs::FileType;

use crate::sha256_hex;
use crate::view::{Found, View};

const FILE_NAME: &str = "AGENTS.md";

/// The instruction files for a working directory, the project's first. Of one that cannot be loaded, why.
pub fn find(view: &View, cwd: &str, bytes_max: usize) -> Vec<Instructions> {
    let Ok(place) = view.find(Path::new("/"), Path::new(cwd)) else { return Vec::new() };
    let top = view.mount_of(&place);
    let mut dirs: Vec<PathBuf> =
        place.path.ancestors().take_while(|dir| dir.starts_with(&top)).map(Path::to_owned).collect();
    dirs.reverse();
    dirs.iter().filter_map(|dir| file_of(view, dir, &top, bytes_max)).collect()
}

/// A prompt and the instructions after it, each under the path it came from.
pub fn join(prompt: &str, found: &[Instructions]) -> String {
    let mut whole = prompt.to_owned();
    for Instructions { source, text } in found.iter().filter(|file| file.source.error.is_none()) {
        whole.push_str(&format!("\nInstructions from {}:\n\n{text}", source.path));
    }
    whole
}

/// The file of a directory, if it has one. The hash is that of what goes into the prompt, so that the record says what the
/// model was told.
fn file_of(view: &View, dir: &Path, top: &Path, bytes_max: usize) -> Option<Instructions> {
    let path = dir.join(FILE_NAME).to_str()?.to_owned();
    let scope = if dir == top { "project".to_owned() } else { dir.to_str()?.to_owned() };
    let loaded = match view.find(dir, Path::new(FILE_NAME)) {
        Ok(found) => load(view, &found, bytes_max),
        // Most directories have none. A link that leads nowhere, or out of what the agent sees, is one that cannot be read.
        Err(_) if !has_entry(view, dir) => return None,
        Err(error) => Err(error.to_string()),
    };
    let (text, truncated, error) = match loaded {
        Ok((text, truncated)) => (text, truncated, None),
        Err(error) => (String::new(), false, Some(error)),
    };
    let hash = if error.is_none() { sha256_hex(text.as_bytes()) } else { String::new() };
    let kind = "project_instructions".to_owned();
    let source = Source { kind, path, hash, truncated, scope: Some(scope), error };
    Some(Instructions { source, text })
}

fn has_entry(view: &View, dir: &Path) -> bool {
    let listed = view.find(Path::new("/"), dir).and_then(|found| view.list(&found));
    listed.is_ok_and(|entries| entries.iter().any(|(name, _)| name == FILE_NAME))
}

/// The text of a file and whether it was cut.
fn load(view: &View, found: &Found, bytes_max: usize) -> Result<(String, bool), String> {
    match found.kind {
        FileType::RegularFile => {}
        FileType::Directory => return Err("it is a directory".to_owned()),
        _ => return Err("it is not a regular file".to_owned()),
    }
    let file = view.open_file(found).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, truncated)),
        // The cut may have gone through a character.
        Err(error) if truncated && error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(end);
            Ok((String::from_utf8_lossy(&bytes).into_owned(), true))
        }
        Err(error) => Err(format!("it is not UTF-8 (byte {})", error.utf8_error().valid_up_to() + 1)),
    }
}
