//! Large contents beside a log, stored once under their hash: `blobs/sha256-…`.

use std::io;

use sha2::{Digest, Sha256};

use crate::disk::{Disk, OpenMode, Replace, read_whole, too_large, write_full};
use crate::error::JournalError;
use crate::path::{LogPath, Owner, join};
use crate::recover::io_error;

pub(crate) const DIR: &str = "blobs";
/// The largest blob. Whatever is stored as one (tool output, prompts, a project's snapshot) has a smaller limit of its own.
const BYTES_MAX: u64 = 256 << 20;

/// What a record says of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    /// Lower-case hex.
    pub sha256: String,
    pub size: u64,
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a file beside a log is a blob, and not one that is still being written.
pub(crate) fn is_name(name: &str) -> bool {
    name.strip_prefix("sha256-").is_some_and(is_hash)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn path(log: &LogPath, sha256: &str) -> String {
    join(&log.beside(DIR), &format!("sha256-{sha256}"))
}

/// Stores bytes; `unique` tells this write's working file from others'.
pub(crate) fn put(
    disk: &dyn Disk,
    log: &LogPath,
    owner: Owner,
    bytes: &[u8],
    unique: u64,
) -> Result<BlobRef, JournalError> {
    let blob = BlobRef { sha256: hash(bytes), size: bytes.len() as u64 };
    if blob.size > BYTES_MAX {
        return Err(io_error(log, "store a blob", too_large(blob.size, BYTES_MAX)));
    }
    store(disk, log, owner, bytes, &blob, unique).map_err(|error| io_error(log, "store a blob", error))?;
    Ok(blob)
}

fn store(
    disk: &dyn Disk,
    log: &LogPath,
    owner: Owner,
    bytes: &[u8],
    blob: &BlobRef,
    unique: u64,
) -> io::Result<()> {
    let dir = log.beside(DIR);
    disk.make_dir(&dir, owner)?;
    // Also when it was there: whoever made it may have died before this. The same below.
    disk.sync_dir(log.dir())?;
    let path = path(log, &blob.sha256);
    let there = match disk.open(&path, OpenMode::Read) {
        Ok(file) => file.len()? == blob.size,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if !there {
        let working = format!("{path}.new-{unique}");
        let file = disk.open(&working, OpenMode::Create(owner))?;
        let stored = file
            .truncate(0)
            .and_then(|()| write_full(&*file, bytes, 0))
            .and_then(|()| file.sync())
            .and_then(|()| disk.rename(&working, &path, Replace::Yes));
        if let Err(error) = stored {
            let _ = disk.remove_file(&working);
            return Err(error);
        }
    }
    disk.sync_dir(&dir)
}

pub(crate) fn get(disk: &dyn Disk, log: &LogPath, sha256: &str) -> Result<Vec<u8>, JournalError> {
    let missing = || JournalError::NoBlob { log: log.clone(), sha256: sha256.chars().take(80).collect() };
    if !is_hash(sha256) {
        return Err(missing());
    }
    let bad = || JournalError::BadBlob { log: log.clone(), sha256: sha256.to_owned() };
    let read =
        || -> io::Result<Vec<u8>> { read_whole(&*disk.open(&path(log, sha256), OpenMode::Read)?, BYTES_MAX) };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
        // No content of that size can match the name.
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(bad()),
        Err(error) => return Err(io_error(log, "read a blob", error)),
    };
    if hash(&bytes) != sha256 {
        return Err(bad());
    }
    Ok(bytes)
}
