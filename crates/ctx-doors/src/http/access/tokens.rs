//! The tokens of a root: `.state/tokens`, one JSON line each, mode 0600, with the hash of the secret alone.
//!
//! The file is replaced as a whole and synced before anyone is told. Lines that are not understood are kept; tokens that
//! are too old go with the next write, and when the daemon starts.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ctx_api::http::Token;
use ctx_engine::Caller;
use ctx_session::request::RequestKey;
use ctx_session::{Code, Refusal, Timestamp, Ulid};
use serde::{Deserialize, Serialize};

use super::{Hash, Key};

const MODE: u32 = 0o600;

/// The tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {what} the tokens: {error}", path.display())]
pub struct TokensError {
    path: PathBuf,
    what: &'static str,
    error: io::Error,
}

impl TokensError {
    pub fn code(&self) -> Code {
        match self.error.kind() {
            io::ErrorKind::StorageFull => Code::Enospc,
            io::ErrorKind::PermissionDenied => Code::Eacces,
            _ => Code::Eio,
        }
    }
}

/// A token as it is kept.
#[derive(Clone)]
pub(super) struct Row {
    pub id: Ulid,
    pub uid: u32,
    pub gid: u32,
    pub hash: Hash,
    pub label: Option<String>,
    pub created_at: u64,
    pub expires_at: Option<u64>,
    /// The request that made it, where it had a key.
    pub requested: Option<RequestKey>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    id: Ulid,
    uid: u32,
    gid: u32,
    sha256: String,
    label: Option<String>,
    created_at: u64,
    expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested: Option<RequestKey>,
}

pub(super) struct Tokens {
    path: PathBuf,
    table: Mutex<Table>,
}

#[derive(Default, Clone)]
struct Table {
    rows: HashMap<Hash, Row>,
    /// Lines of a later version, or damaged ones.
    unknown: Vec<String>,
}

impl Row {
    fn is_good(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now.as_millis() < end)
    }

    fn of_line(text: &str) -> Option<Row> {
        let line: Line = serde_json::from_str(text).ok()?;
        let Line { id, uid, gid, sha256, label, created_at, expires_at, requested } = line;
        Some(Row { id, uid, gid, hash: unhex(&sha256)?, label, created_at, expires_at, requested })
    }

    fn to_line(&self) -> String {
        let line = Line {
            id: self.id,
            uid: self.uid,
            gid: self.gid,
            sha256: self.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            label: self.label.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            requested: self.requested.clone(),
        };
        // No map with keys that are not strings: serialising this cannot fail.
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn shown(&self) -> Token {
        Token {
            id: self.id.to_string(),
            uid: self.uid,
            label: self.label.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0u8; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}

impl Tokens {
    /// Reads the file. Lines that are not understood are kept and written again, so that an older daemon does not lose the tokens of a newer one.
    pub fn open(path: PathBuf, now: Timestamp) -> Result<Tokens, TokensError> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(TokensError { path, what: "read", error }),
        };
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            match Row::of_line(line) {
                Some(row) => {
                    table.rows.insert(row.hash, row);
                }
                None => table.unknown.push(line.to_owned()),
            }
        }
        if !table.unknown.is_empty() {
            let lines = table.unknown.len();
            tracing::warn!(path = %path.display(), lines, "tokens that are not understood are kept and not used");
        }
        let read = table.rows.len();
        table.rows.retain(|_, row| row.is_good(now));
        let tokens = Tokens { path, table: Mutex::default() };
        if table.rows.len() < read
            && let Err(error) = tokens.write(&table)
        {
            tracing::warn!(%error, "tokens that are too old stay in the file until it can be written");
        }
        *tokens.lock() = table;
        Ok(tokens)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // The table is replaced in one move, after the file.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, hash: &Hash, now: Timestamp) -> Option<Key> {
        let table = self.lock();
        let row = table.rows.get(hash).filter(|row| row.is_good(now))?;
        Some(Key { caller: Caller { uid: row.uid, gid: row.gid }, id: row.id })
    }

    pub fn has(&self, id: Ulid, now: Timestamp) -> bool {
        self.lock().rows.values().any(|row| row.id == id && row.is_good(now))
    }

    /// Those that are good, oldest first.
    pub fn list(&self, now: Timestamp, keep: impl Fn(&Row) -> bool) -> Vec<Token> {
        let table = self.lock();
        let good = table.rows.values().filter(|row| row.is_good(now));
        let mut rows: Vec<&Row> = good.filter(|row| keep(row)).collect();
        rows.sort_by_key(|row| row.id);
        rows.into_iter().map(Row::shown).collect()
    }

    /// The token that a request with this key has made.
    pub fn made_by(&self, key: &RequestKey) -> Result<Option<Ulid>, Refusal> {
        let table = self.lock();
        for row in table.rows.values() {
            if let Some(known) = &row.requested
                && key.repeats(known)?
            {
                return Ok(Some(row.id));
            }
        }
        Ok(None)
    }

    pub fn add(&self, row: Row, now: Timestamp) -> Result<(), TokensError> {
        let mut table = self.lock();
        let mut next = table.clone();
        next.rows.retain(|_, row| row.is_good(now));
        next.rows.insert(row.hash, row);
        self.write(&next)?;
        *table = next;
        Ok(())
    }

    pub fn remove(&self, id: Ulid, may: impl Fn(&Row) -> bool) -> Result<bool, TokensError> {
        let mut table = self.lock();
        let found = table.rows.values().find(|row| row.id == id && may(row)).map(|row| row.hash);
        let Some(hash) = found else { return Ok(false) };
        let mut next = table.clone();
        next.rows.remove(&hash);
        self.write(&next)?;
        *table = next;
        Ok(true)
    }

    fn write(&self, table: &Table) -> Result<(), TokensError> {
        let mut rows: Vec<&Row> = table.rows.values().collect();
        rows.sort_by_key(|row| row.id);
        let lines = rows.into_iter().map(Row::to_line).chain(table.unknown.iter().cloned());
        let text: String = lines.map(|line| line + "\n").collect();
        replace(&self.path, text.as_bytes()).map_err(|error| TokensError {
            path: self.path.clone(),
            what: "write",
            error,
        })
    }
}

/// Puts the file in place in one step, on disk when this returns.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(MODE).open(&beside)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    fn row(n: u8, uid: u32, expires_at: Option<u64>) -> Row {
        let (id, hash) = (Ulid(u128::from(n)), [n; 32]);
        Row { id, uid, gid: uid, hash, label: None, created_at: 1, expires_at, requested: None }
    }

    #[test]
    fn tokens_are_there_after_a_restart_and_gone_once_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let tokens = Tokens::open(path.clone(), now()).unwrap();
        tokens.add(row(1, 10, None), now()).unwrap();
        tokens.add(row(2, 20, None), now()).unwrap();
        assert!(!tokens.remove(Ulid(2), |row| row.uid == 10).unwrap(), "not theirs to revoke");
        assert!(tokens.remove(Ulid(1), |row| row.uid == 10).unwrap());
        let again = Tokens::open(path.clone(), now()).unwrap();
        assert_eq!(again.find(&[1; 32], now()), None);
        assert_eq!(again.find(&[2; 32], now()).map(|key| key.caller.uid), Some(20));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_token_that_is_too_old_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path().join("tokens"), now()).unwrap();
        tokens.add(row(1, 10, Some(1_000)), now()).unwrap();
        tokens.add(row(2, 10, Some(1_001)), now()).unwrap();
        assert_eq!(tokens.find(&[1; 32], now()), None);
        assert!(tokens.find(&[2; 32], now()).is_some());
    }

    #[test]
    fn tokens_that_are_too_old_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let ids = || -> Vec<u128> {
            let text = std::fs::read_to_string(&path).unwrap();
            text.lines().map(|line| Row::of_line(line).unwrap().id.0).collect()
        };
        let at = Timestamp::from_millis;
        let tokens = Tokens::open(path.clone(), at(0)).unwrap();
        for (n, end) in [(1, Some(10)), (2, Some(20)), (3, None)] {
            tokens.add(row(n, 10, end), at(0)).unwrap();
        }
        assert_eq!(tokens.list(at(10), |_| true).len(), 2, "also before anything is written");
        tokens.add(row(4, 10, None), at(10)).unwrap();
        assert_eq!(ids(), [2, 3, 4], "with the next write");
        Tokens::open(path.clone(), at(20)).unwrap();
        assert_eq!(ids(), [3, 4], "when the daemon starts");
    }

    #[test]
    fn lines_of_a_later_version_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        std::fs::write(&path, "{\"kind\":\"later\"}\n").unwrap();
        Tokens::open(path.clone(), now()).unwrap().add(row(1, 10, None), now()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("later"));
    }
}
