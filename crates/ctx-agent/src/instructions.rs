//! Instruction files: the `AGENTS.md` of the project and of the directories down to where a run works.
//!
//! They go into the prompt after the agent's own, and every one is named in the run's `context` record.

use std::io::Read;
use std::path::{Path, PathBuf};

use ctx_session::port::Instructions;
use ctx_session::record::Source;
use rustix::fs::FileType;

use crate::sha256_hex;
use crate::view::View;

const FILE_NAME: &str = "AGENTS.md";

/// The instruction files for a working directory, the project's first. One that cannot be read is passed over.
pub fn find(view: &View, cwd: &str, bytes_max: usize) -> Vec<Instructions> {
    let Ok(place) = view.find(Path::new("/"), Path::new(cwd)) else { return Vec::new() };
    let top = view.mount_of(&place);
    let mut dirs: Vec<PathBuf> =
        place.path.ancestors().take_while(|dir| dir.starts_with(&top)).map(Path::to_owned).collect();
    dirs.reverse();
    dirs.iter().filter_map(|dir| read(view, dir, bytes_max)).collect()
}

/// A prompt and the instructions after it, each under the path it came from.
pub fn join(prompt: &str, found: &[Instructions]) -> String {
    let mut whole = prompt.to_owned();
    for Instructions { source, text } in found {
        whole.push_str(&format!("\nInstructions from {}:\n\n{text}", source.path));
    }
    whole
}

/// Hashes what goes into the prompt, so that the record says what the model was told.
fn read(view: &View, dir: &Path, bytes_max: usize) -> Option<Instructions> {
    let found = view.find(dir, Path::new(FILE_NAME)).ok()?;
    if found.kind != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    let file = view.open_file(&found).ok()?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).ok()?;
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if truncated {
        // The cut may have gone through a character.
        text.truncate(text.trim_end_matches('\u{FFFD}').len());
    }
    let source = Source {
        kind: "project_instructions".to_owned(),
        path: dir.join(FILE_NAME).to_str()?.to_owned(),
        hash: sha256_hex(text.as_bytes()),
        truncated,
    };
    Some(Instructions { source, text })
}
