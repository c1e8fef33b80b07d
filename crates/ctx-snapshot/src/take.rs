//! Saving what is there: a walk, and the content of the files that are not known yet.

use std::collections::BTreeSet;
use std::io::{self, Read};

use super::SnapshotError;
use super::batch::Batch;
use super::files::{Files, FoundKind, Stat, WalkOptions, Walked};
use super::ignored::Ignored;
use super::store::{Known, Locked, Store};
use super::tree::{Hash, Node, PIECE_BYTES, RelPath, Tree, parent, shown};

/// A file that is written to all the time is read this often, and then taken as it was read.
const TRIES: usize = 3;

/// What is saved, and at which cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// When it begins, in nanoseconds since the epoch: the disk's times are compared with it.
    pub began: i64,
    pub with_ignored: bool,
    pub also: Option<&'a BTreeSet<RelPath>>,
    pub earlier: Option<&'a Ignored>,
    pub files_max: usize,
    /// A longer file is left out.
    pub file_bytes_max: u64,
    /// More content that is not known yet is too much.
    pub new_bytes_max: u64,
}

/// What was saved.
#[derive(Debug)]
pub struct Saved {
    pub walked: Walked,
    /// Files that were read.
    pub read: u64,
    /// Bytes that the store has grown by.
    pub written: u64,
}

/// Saves the content of a workspace; its tree is still to be kept.
pub fn save(store: &Store, _: &Locked, files: &dyn Files, scope: Scope<'_>) -> Result<Saved, SnapshotError> {
    let began = scope.began;
    let Scope { with_ignored, also, earlier, files_max, .. } = scope;
    let options = WalkOptions { with_ignored, also, files_max, earlier };
    let place = || store.about.path.display().to_string();
    let walk = files.walk(options).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => SnapshotError::TooMuch { what: format!("{}: {source}", place()) },
        _ => SnapshotError::io(place())(source),
    })?;
    let known = store.known();
    let mut tree = Tree {
        with_ignored: scope.with_ignored,
        outer: walk.outer,
        left_out: walk.left_out,
        ..Tree::default()
    };
    let mut now = Known { began, ..Known::default() };
    let mut walked = Walked { crowded: walk.crowded, ..Walked::default() };
    let mut unread = Vec::new();
    let mut new_bytes = 0u64;
    for (path, found) in walk.found {
        let node = match found.kind {
            FoundKind::Dir => Node::Dir { mode: found.mode },
            FoundKind::Link { target } => Node::Link { target },
            FoundKind::File | FoundKind::Other if found.stat.size > scope.file_bytes_max => {
                walked.crowded.insert(parent(&path).unwrap_or_default().to_vec());
                tree.left_out.insert(path, format!("larger than {} bytes", scope.file_bytes_max));
                continue;
            }
            FoundKind::File | FoundKind::Other => match known.get(&path, &found.stat) {
                Some(pieces) => {
                    now.files.insert(path.clone(), (found.stat, pieces.clone()));
                    Node::File { mode: found.mode, size: found.stat.size, pieces: pieces.clone() }
                }
                None => {
                    new_bytes = new_bytes.saturating_add(found.stat.size);
                    unread.push((path, found.mode));
                    continue;
                }
            },
        };
        walked.stats.insert(path.clone(), found.stat);
        tree.nodes.insert(path, node);
    }
    if new_bytes > scope.new_bytes_max {
        let (path, max) = (place(), scope.new_bytes_max);
        let what = format!(
            "{path} has {new_bytes} bytes that are not saved yet, and at most {max} are saved here; ignore some in .gitignore"
        );
        return Err(SnapshotError::TooMuch { what });
    }
    let mut batch = Batch::new(store)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let read = unread.len() as u64;
    for (path, mode) in unread {
        match read_file(files, &mut batch, &mut buffer, &path, scope.file_bytes_max)? {
            Ok((stat, size, pieces)) => {
                now.files.insert(path.clone(), (stat, pieces.clone()));
                walked.stats.insert(path.clone(), stat);
                tree.nodes.insert(path, Node::File { mode, size, pieces });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                are_there(files, &path, &error).map_err(SnapshotError::io(place()))?;
                walked.crowded.insert(parent(&path).unwrap_or_default().to_vec());
                tree.left_out.insert(path, error.to_string());
            }
        }
    }
    batch.flush()?;
    if read > 0 || now.files.len() != known.files.len() {
        store.put_known(&now)?;
    }
    walked.tree = tree;
    Ok(Saved { walked, read, written: batch.written })
}

/// An error where not one file could not be read, but none can be any more.
fn are_there(files: &dyn Files, path: &[u8], error: &io::Error) -> io::Result<()> {
    let lost = io::ErrorKind::NotConnected;
    if error.kind() == lost {
        return Err(io::Error::new(lost, error.to_string()));
    }
    files.look(path).map(drop).or_else(|error| if error.kind() == lost { Err(error) } else { Ok(()) })
}

type FileRead = (Stat, u64, Vec<Hash>);

/// The outer error is the store's, the inner one the file's.
fn read_file(
    files: &dyn Files,
    batch: &mut Batch<'_>,
    buffer: &mut [u8],
    path: &[u8],
    bytes_max: u64,
) -> Result<io::Result<FileRead>, SnapshotError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (mut file, before) = match files.open(path) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let (mut size, mut pieces) = (0u64, Vec::new());
        loop {
            let read = match fill(&mut *file, buffer) {
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            size += read as u64;
            if size > bytes_max {
                return Ok(Err(io::Error::other(format!("larger than {bytes_max} bytes"))));
            }
            pieces.push(batch.put(bytes)?);
        }
        let after = match files.look(path) {
            Ok(Some(found)) => found.stat,
            Ok(None) => return Ok(Err(io::ErrorKind::NotFound.into())),
            Err(error) => return Ok(Err(error)),
        };
        if after == before && size == before.size {
            return Ok(Ok((before, size, pieces)));
        }
        if tries == TRIES {
            tracing::debug!(
                path = shown(path),
                "a file changes while it is read; it is taken as it was read"
            );
            return Ok(Ok((Stat::default(), size, pieces)));
        }
    }
}

fn fill(file: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
