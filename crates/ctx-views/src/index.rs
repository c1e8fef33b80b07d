//! The index of one `session/` directory: `index/list`, `index/current` and `index/by-cwd/<hash>`.
//!
//! It names what a client can resume by that name: no session that has ended, failed or was put away, and none whose name another
//! one has by now. Every line of the index is a
//! directory beside it. `current` is the session last posted to, and a `cwd` belongs to the session that was last at
//! work there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use ctx_journal::Owner;
use ctx_session::Timestamp;
use sha2::{Digest, Sha256};

use crate::dir::{Dir, RootDir};
use crate::error::ViewError;

pub const INDEX: &str = "index";
pub const LIST: &str = "list";
pub const CURRENT: &str = "current";
pub const BY_CWD: &str = "by-cwd";

/// What the index needs to know of a session that can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// The session's name, which is that of its directory.
    pub name: String,
    pub updated_at: Timestamp,
    /// When the last message was posted to it; none ever: it is not `current`.
    pub posted_at: Option<Timestamp>,
    pub cwd: String,
}

/// What the files of an index hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexContents {
    pub list: String,
    /// Nothing before the first message.
    pub current: Option<String>,
    /// By the file's name, which is the hash of the cwd.
    pub by_cwd: BTreeMap<String, String>,
}

/// The name of a cwd's file: the lower-case hex SHA-256 of the path.
pub fn cwd_hash(cwd: &str) -> String {
    let digest = Sha256::digest(cwd.as_bytes());
    digest.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// What the index of these sessions says. Sessions of the same millisecond are ordered by name, later first.
pub fn contents(entries: &[IndexEntry]) -> IndexContents {
    let mut newest: Vec<&IndexEntry> = entries.iter().collect();
    newest.sort_by_key(|entry| Reverse((entry.updated_at, entry.name.as_str())));

    let mut list = String::new();
    let mut of_cwd: HashMap<&str, &IndexEntry> = HashMap::new();
    for entry in &newest {
        list.push_str(&entry.name);
        list.push('\n');
        of_cwd.entry(&entry.cwd).or_insert(entry);
    }
    let current = newest
        .iter()
        .filter(|entry| entry.posted_at.is_some())
        .max_by_key(|entry| (entry.posted_at, entry.name.as_str()));
    IndexContents {
        list,
        current: current.map(|entry| line(&entry.name)),
        by_cwd: of_cwd.into_iter().map(|(cwd, entry)| (cwd_hash(cwd), line(&entry.name))).collect(),
    }
}

fn line(value: &str) -> String {
    format!("{value}\n")
}

/// Writes the index of one `session/` directory. Only what changed is replaced.
#[derive(Debug)]
pub struct IndexFiles {
    root: RootDir,
    /// The `session/` directory, relative to the root.
    dir: PathBuf,
    owner: Owner,
    /// Fingerprints of the files as they were last written; nothing before the first time and after an error.
    written: Option<Written>,
}

#[derive(Debug, Default)]
struct Written {
    list: Option<u64>,
    current: Option<u64>,
    by_cwd: HashMap<String, u64>,
}

impl IndexFiles {
    pub fn new(root: &RootDir, dir: &Path, owner: Owner) -> IndexFiles {
        IndexFiles { root: root.clone(), dir: dir.to_owned(), owner, written: None }
    }

    /// Says at once which session is current, before the rest of the index follows: what is asked next without
    /// naming a session must go to this one. None: there is none to go on with.
    pub fn write_current(&mut self, name: Option<&str>) -> Result<(), ViewError> {
        let current = name.map(line);
        let print = current.as_ref().map(|text| fingerprint(text.as_bytes()));
        if self.written.as_ref().is_some_and(|written| written.current == print) {
            return Ok(());
        }
        let index = self.root.dir(&self.dir)?.make_dir(INDEX, self.owner)?;
        let by_cwd = index.make_dir(BY_CWD, self.owner)?;
        let mut written = match self.written.take() {
            Some(written) => written,
            None => Written::found(&index, &by_cwd)?,
        };
        put_one(&index, CURRENT, current.as_deref(), &mut written.current, self.owner)?;
        self.written = Some(written);
        Ok(())
    }

    /// Whether this session is the current one as far as is known: what an earlier daemon wrote is not.
    pub fn may_be_current(&self, name: &str) -> bool {
        let print = fingerprint(line(name).as_bytes());
        self.written.as_ref().is_none_or(|written| written.current == Some(print))
    }

    /// Makes the files say what these sessions amount to.
    pub fn write(&mut self, entries: &[IndexEntry]) -> Result<(), ViewError> {
        let contents = contents(entries);
        let index = self.root.dir(&self.dir)?.make_dir(INDEX, self.owner)?;
        let by_cwd = index.make_dir(BY_CWD, self.owner)?;
        let mut written = match self.written.take() {
            Some(written) => written,
            None => Written::found(&index, &by_cwd)?,
        };
        put(&by_cwd, &contents.by_cwd, &mut written.by_cwd, self.owner)?;
        put_one(&index, CURRENT, contents.current.as_deref(), &mut written.current, self.owner)?;
        put_one(&index, LIST, Some(&contents.list), &mut written.list, self.owner)?;
        self.written = Some(written);
        Ok(())
    }
}

impl Written {
    /// What an earlier daemon left, whatever it is.
    fn found(index: &Dir, by_cwd: &Dir) -> Result<Written, ViewError> {
        let print = |dir: &Dir, name: &str| -> Result<Option<u64>, ViewError> {
            Ok(dir.contents(name)?.map(|bytes| fingerprint(&bytes)))
        };
        let mut written =
            Written { list: print(index, LIST)?, current: print(index, CURRENT)?, by_cwd: HashMap::new() };
        for (name, is_dir) in by_cwd.names()? {
            if let Some(print) = print(by_cwd, &name)?.filter(|_| !is_dir) {
                written.by_cwd.insert(name, print);
            }
        }
        Ok(written)
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn put(
    dir: &Dir,
    wanted: &BTreeMap<String, String>,
    written: &mut HashMap<String, u64>,
    owner: Owner,
) -> Result<(), ViewError> {
    for (name, text) in wanted {
        let print = fingerprint(text.as_bytes());
        if written.get(name) != Some(&print) {
            dir.replace(name, text.as_bytes(), owner)?;
            written.insert(name.clone(), print);
        }
    }
    let gone: Vec<String> = written.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    for name in gone {
        dir.remove(&name)?;
        written.remove(&name);
    }
    Ok(())
}

fn put_one(
    dir: &Dir,
    name: &str,
    wanted: Option<&str>,
    written: &mut Option<u64>,
    owner: Owner,
) -> Result<(), ViewError> {
    let print = wanted.map(|text| fingerprint(text.as_bytes()));
    if print == *written {
        return Ok(());
    }
    match wanted {
        Some(text) => dir.replace(name, text.as_bytes(), owner)?,
        None => dir.remove(name)?,
    }
    *written = print;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, updated: u64, posted: Option<u64>, cwd: &str) -> IndexEntry {
        IndexEntry {
            name: name.to_owned(),
            updated_at: Timestamp::from_millis(updated),
            posted_at: posted.map(Timestamp::from_millis),
            cwd: cwd.to_owned(),
        }
    }

    #[test]
    fn the_newest_session_is_listed_first_and_the_last_posted_to_is_current() {
        let said = contents(&[
            entry("a", 10, Some(9), "/work"),
            entry("renamed-later", 30, Some(1), "/x"),
            entry("b", 20, None, "/work"),
        ]);
        assert_eq!(said.list, "renamed-later\nb\na\n");
        assert_eq!(said.current.as_deref(), Some("a\n"));
        assert_eq!(said.by_cwd[&cwd_hash("/work")], "b\n");
        assert_eq!(said.by_cwd[&cwd_hash("/x")], "renamed-later\n");
    }

    #[test]
    fn no_session_means_an_empty_list_and_nothing_else() {
        assert_eq!(contents(&[]), IndexContents::default());
    }

    #[test]
    fn a_place_is_named_by_its_hash_as_sha256sum_prints_it() {
        assert_eq!(cwd_hash("/work"), "0c9a453fad615c83c57d57c2b2be05fa938f0791d7624db43827a033227bf78b");
    }
}
