//! SQLite stores of running programs, read without a lock on them and without a change to their files.
//!
//! The database and its write-ahead log are copied, and the copy is opened. A copy during which the files changed is made
//! again. Only a database that never rests is opened in place, read-only, as its own program opens it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// How often a copy is tried while the program writes.
const TRIES: u32 = 8;
/// A file that changed this recently may change again within the same tick of the file system's clock.
const TICK: Duration = Duration::from_millis(20);

/// An open copy, which goes with this value.
pub(crate) struct Snapshot {
    pub db: Connection,
    _dir: Option<TempDir>,
}

/// What changes whenever a file is written.
type Stamp = Vec<Option<(u64, SystemTime)>>;

fn wal_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn stamp(paths: &[&Path]) -> Stamp {
    let of = |path: &&Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    };
    paths.iter().map(of).collect()
}

/// A mark of the store's state: as long as it is the same, nothing was written.
pub(crate) fn mark(path: &Path) -> Vec<(u64, u64)> {
    let wal = wal_of(path);
    let millis =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
    stamp(&[path, &wal]).into_iter().flatten().map(|(len, time)| (len, millis(time))).collect()
}

pub(crate) fn open(path: &Path) -> Result<Snapshot, io::Error> {
    let wal = wal_of(path);
    let files = [path, wal.as_path()];
    for attempt in 0..TRIES {
        let before = stamp(&files);
        let is_fresh =
            before.iter().flatten().any(|(_, changed)| changed.elapsed().is_ok_and(|age| age < TICK));
        if is_fresh && attempt + 1 < TRIES {
            std::thread::sleep(TICK);
            continue;
        }
        let dir = tempfile::tempdir()?;
        let copy = dir.path().join("copy.db");
        copy_file(path, &copy)?;
        if wal.exists() {
            copy_file(&wal, &wal_of(&copy))?;
        }
        if stamp(&files) == before {
            let db = Connection::open(&copy).map_err(io::Error::other)?;
            return Ok(Snapshot { db, _dir: Some(dir) });
        }
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(io::Error::other)?;
    db.execute_batch("BEGIN").map_err(io::Error::other)?;
    Ok(Snapshot { db, _dir: None })
}

/// Copies the bytes alone: the copy must be writable whatever the source's mode is.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = fs::File::open(from)?;
    let mut to = fs::File::create(to)?;
    io::copy(&mut from, &mut to)?;
    Ok(())
}

/// The columns of a table, to read versions of a store that lack some.
pub(crate) fn columns(db: &Connection, table: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut statement) = db.prepare(&format!("PRAGMA table_info({table})"))
        && let Ok(rows) = statement.query_map([], |row| row.get::<_, String>(1))
    {
        names.extend(rows.flatten());
    }
    names
}
