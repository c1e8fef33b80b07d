//! Checks that the blobs named by a log's records exist and are intact. Blobs are not derived, so only a backup restores them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ctx_journal::{Entry, FileJournal, Journal, JournalError, LogPath};
use ctx_session::Body;
use ctx_session::record::{CheckpointBody, Decoded, MessageBody, RunBody, ToolBody};
use ctx_views::identity::Place;

use super::finding::Finding;
use crate::root::Root;

/// What one can do about a blob.
const FIX: &str = "restore it from a backup; the rest of the session is usable";

/// A blob that a record names.
struct Named {
    line: u64,
    size: Option<u64>,
}

/// Looks for the blobs of a session; reads them whole when asked to.
pub fn look(root: &Root, journal: &FileJournal, log: &LogPath, deep: bool) -> Vec<Finding> {
    if Place::of(log).is_none() {
        return Vec::new();
    }
    let mut named = BTreeMap::new();
    let read = journal.read(log, 0, &mut |entry| {
        note(&entry, &mut named);
        ControlFlow::Continue(())
    });
    // What is wrong with the log itself is told elsewhere.
    if read.is_err() {
        return Vec::new();
    }
    let check = |(sha256, named): (&String, &Named)| {
        let path = format!("{}/blobs/sha256-{sha256}", log.dir());
        let what = if deep { read_whole(journal, log, sha256) } else { is_there(root, &path, named) }?;
        Some(Finding::new(format!("{what}; line {} of the log names it", named.line)).at(path).fix(FIX))
    };
    named.iter().filter_map(check).collect()
}

/// Takes down the blobs that a record names. Few records do.
fn note(entry: &Entry, named: &mut BTreeMap<String, Named>) {
    let mut add = |sha256: String, size: Option<u64>| {
        named.entry(sha256).or_insert(Named { line: entry.line, size });
    };
    if !matches!(entry.kind.as_str(), "tool_finished" | "context" | "prompt_edited" | "user") {
        return;
    }
    match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(Body::Tool(ToolBody::Finished(tool))) => {
            for blob in tool.blob.into_iter().chain(tool.diff_blob) {
                add(blob.sha256, Some(blob.size));
            }
        }
        Decoded::Known(Body::Message(MessageBody::User(user))) => {
            user.images.into_iter().for_each(|image| add(image.sha256, Some(image.size)));
        }
        Decoded::Known(Body::Run(RunBody::Context(context))) => {
            context.prompts.into_iter().for_each(|prompt| add(prompt.hash, None));
        }
        Decoded::Known(Body::Checkpoint(CheckpointBody::PromptEdited(edited))) => add(edited.new_hash, None),
        Decoded::Known(_) | Decoded::Unknown | Decoded::Malformed(_) => {}
    }
}

fn is_there(root: &Root, path: &str, named: &Named) -> Option<String> {
    match (std::fs::metadata(root.path.join(path)), named.size) {
        (Ok(data), Some(size)) if data.len() != size => {
            Some(format!("it has {} bytes, expected {size}", data.len()))
        }
        (Ok(_), _) => None,
        (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => Some("it is missing".to_owned()),
        (Err(error), _) => Some(format!("it cannot be read: {error}")),
    }
}

fn read_whole(journal: &FileJournal, log: &LogPath, sha256: &str) -> Option<String> {
    match journal.get_blob(log, sha256) {
        Ok(_) => None,
        Err(JournalError::NoBlob { .. }) => Some("it is missing".to_owned()),
        Err(JournalError::BadBlob { .. }) => Some("its content does not match its name".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}
