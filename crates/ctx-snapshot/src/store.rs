//! Where the snapshots of one workspace are kept: content by its hash, trees by theirs, and a line about each snapshot.
//!
//! ```text
//! workspace.json     which directory, and whose
//! lock               held while anything here or in the workspace changes
//! objects/ab/cd…     content: at most 4 MiB, zstd, named by the SHA-256 of what it holds
//! trees/abcd…        a tree, zstd, named in the same way
//! snapshots/ID.json  when and why it was taken, and its tree
//! known              the content of files by size, times and inode: a cache
//! restore            a restore under way: see `restore`
//! ```
//!
//! A file appears under its name when it is whole and on disk; what is read is checked against its name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ctx_session::{Timestamp, Ulid};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::SnapshotError;
use super::codec::{Reader, Writer};
use super::files::Stat;
use super::tree::{Hash, Node, PIECE_BYTES, PathText, RelPath, Tree, pieces};

/// Fast: the disk is what one waits for.
pub(super) const LEVEL: i32 = 1;
/// What a file that is being written is called. Who writes one has the lock.
const TEMP: &str = "tmp.";
/// The longest tree that is read: about ten million files.
const TREE_BYTES_MAX: u64 = 2 << 30;
/// A file that was changed so shortly before it was read may change again and look the same.
const RACY_NANOS: i64 = 2_000_000_000;

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Someone asked for it.
    Asked,
    /// `session_checkpoint` of a shell.
    Shell,
    BeforeRun,
    AfterRun,
    /// A checkpoint of a session.
    Checkpoint,
    BeforeRestore,
}

/// A snapshot, without its tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub id: Ulid,
    pub created: Timestamp,
    pub reason: Reason,
    /// The hash of its tree.
    pub tree: String,
    pub files: u64,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Ulid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Ulid>,
    /// Paths that others may have changed, where it was taken after a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<PathText>,
    /// It was taken before the changes since these snapshots were taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<Ulid>,
    /// And before these, which had been taken back, were brought back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redoes: Vec<Ulid>,
    /// It was taken before a restore of this snapshot: what was taken back since then is not taken back any more, and the other
    /// way round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<Ulid>,
    /// Of the changes that were taken back, the paths that were not taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<PathText>,
    /// It was taken before a run whose end could not be saved: what that run changed is not known, and nothing that comes later
    /// counts as its.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_unknown: bool,
    /// A checkpoint needs it: it does not go to make room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// Which directory a store is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub path: PathBuf,
    pub uid: u32,
}

/// The store of one workspace.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    pub about: About,
}

/// Nobody else changes the store or the workspace while this is there.
#[derive(Debug)]
pub struct Locked {
    #[expect(dead_code, reason = "open, it holds the lock")]
    file: File,
    _place: Place,
}

/// How long a store is waited for. A user's file system may never answer whoever has it.
const LOCK_MAX: Duration = Duration::from_secs(60);
const LOCK_AGAIN: Duration = Duration::from_millis(20);
/// Works on snapshots of one user at once: each has a thread of this process.
const PLACES_MAX: usize = 16;
static PLACES: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// One of the places that a user has.
#[derive(Debug)]
struct Place(u32);

impl Place {
    fn take(uid: u32) -> Option<Place> {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = places.entry(uid).or_insert(0);
        (*taken < PLACES_MAX).then(|| {
            *taken += 1;
            Place(uid)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = places.get_mut(&self.0) {
            *taken -= 1;
        }
        places.retain(|_, taken| *taken > 0);
    }
}

pub(super) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    SnapshotError::io(path.display().to_string())
}

pub(super) fn private_dir(path: &Path) -> Result<(), SnapshotError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at(path))
}

impl Store {
    /// Opens a store, and makes it where there is none.
    pub fn open(dir: PathBuf, about: About) -> Result<Store, SnapshotError> {
        let store = Store { dir, about };
        let file = store.dir.join("workspace.json");
        if !file.exists() {
            for part in ["objects", "trees", "snapshots"] {
                private_dir(&store.dir.join(part))?;
            }
            let _locked = store.lock()?;
            let text = serde_json::to_vec(&store.about)
                .map_err(|error| SnapshotError::io("workspace.json")(error.into()))?;
            store.put_file(&file, &text)?;
        }
        Ok(store)
    }

    /// A store that is there already.
    pub fn existing(dir: PathBuf) -> Result<Store, SnapshotError> {
        let file = dir.join("workspace.json");
        let text = std::fs::read(&file).map_err(io_at(&file))?;
        let damaged = |error: serde_json::Error| SnapshotError::Damaged {
            what: format!("{}: {error}", file.display()),
        };
        Ok(Store { about: serde_json::from_slice(&text).map_err(damaged)?, dir })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until nobody else has it, for a while. What a process that was killed was writing is removed.
    pub fn lock(&self) -> Result<Locked, SnapshotError> {
        let locked = self.wait()?;
        for name in names_in(&self.dir)?.into_iter().filter(|name| name.starts_with(TEMP)) {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        Ok(locked)
    }

    fn wait(&self) -> Result<Locked, SnapshotError> {
        let busy = || SnapshotError::Busy { path: self.about.path.clone() };
        let place = Place::take(self.about.uid).ok_or_else(busy)?;
        let path = self.dir.join("lock");
        let mut options = std::fs::OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io_at(&path))?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked { file, _place: place }),
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOCK_MAX => {
                    std::thread::sleep(LOCK_AGAIN);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy()),
                Err(error) => return Err(io_at(&path)(error.into())),
            }
        }
    }

    /// Writes a file as a whole.
    fn put_file(&self, path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
        let (temp, mut file) = self.temp(path)?;
        let written =
            file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&temp, path));
        let written = written.and_then(|()| sync_dir(path));
        written.inspect_err(|_| drop(std::fs::remove_file(&temp))).map_err(io_at(path))
    }

    pub(super) fn temp(&self, path: &Path) -> Result<(PathBuf, File), SnapshotError> {
        let mut random = [0u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| io_at(path)(error.into()))?;
        let temp = self.dir.join(format!("{TEMP}{:032x}", u128::from_le_bytes(random)));
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp);
        file.map(|file| (temp, file)).map_err(io_at(path))
    }

    pub(super) fn object_path(&self, hash: Hash) -> PathBuf {
        let name = hash.to_string();
        let (dir, rest) = name.split_at(2);
        self.dir.join("objects").join(dir).join(rest)
    }

    /// Content by its name.
    pub fn piece(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        read_named(&self.object_path(hash), hash, PIECE_BYTES as u64)
    }

    /// The content of a file, piece by piece.
    pub fn content<'a>(&'a self, pieces: &'a [Hash]) -> Content<'a> {
        Content { store: self, pieces: pieces.iter(), now: io::Cursor::default() }
    }

    pub fn tree(&self, name: &str) -> Result<Tree, SnapshotError> {
        let path = self.dir.join("trees").join(name);
        let damaged = || SnapshotError::Damaged { what: format!("{} is not a tree", path.display()) };
        let hash = Hash::parse(name).ok_or_else(damaged)?;
        Tree::decode(&read_named(&path, hash, TREE_BYTES_MAX)?).ok_or_else(damaged)
    }

    /// Keeps a tree whose content is kept already.
    pub fn put_tree(&self, tree: &Tree) -> Result<Hash, SnapshotError> {
        let bytes = tree.encode();
        let hash = Hash::of(&bytes);
        let path = self.dir.join("trees").join(hash.to_string());
        if !path.exists() {
            let packed = zstd::bulk::compress(&bytes, LEVEL).map_err(io_at(&path))?;
            self.put_file(&path, &packed)?;
        }
        Ok(hash)
    }

    pub fn put_info(&self, info: &Info) -> Result<(), SnapshotError> {
        let path = self.info_path(info.id);
        let text = serde_json::to_vec(info).map_err(|error| io_at(&path)(error.into()))?;
        self.put_file(&path, &text)
    }

    fn info_path(&self, id: Ulid) -> PathBuf {
        self.dir.join("snapshots").join(format!("{id}.json"))
    }

    pub fn info(&self, id: Ulid) -> Result<Info, SnapshotError> {
        let path = self.info_path(id);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let workspace = self.about.path.display().to_string();
                return Err(SnapshotError::NoSnapshot { id: id.to_string(), workspace });
            }
            text => text.map_err(io_at(&path))?,
        };
        serde_json::from_slice(&text)
            .map_err(|error| SnapshotError::Damaged { what: format!("{}: {error}", path.display()) })
    }

    pub fn remove_info(&self, id: Ulid) -> Result<(), SnapshotError> {
        let path = self.info_path(id);
        std::fs::remove_file(&path).map_err(io_at(&path))
    }

    /// All snapshots, the oldest first. One that cannot be read is left out.
    pub fn infos(&self) -> Result<Vec<Info>, SnapshotError> {
        let mut infos: Vec<Info> = self.ids()?.into_iter().filter_map(|id| self.info(id).ok()).collect();
        infos.sort_by_key(|info| info.id);
        Ok(infos)
    }

    pub(super) fn ids(&self) -> Result<Vec<Ulid>, SnapshotError> {
        let names = names_in(&self.dir.join("snapshots"))?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
    }

    /// All snapshots, the oldest first. An error where one of them cannot be read: what it needs is not known, so nothing may go.
    pub fn all_infos(&self) -> Result<Vec<Info>, SnapshotError> {
        let mut infos = Vec::new();
        for id in self.ids()? {
            match self.info(id) {
                // It was removed meanwhile.
                Err(SnapshotError::NoSnapshot { .. }) => {}
                info => infos.push(info?),
            }
        }
        infos.sort_by_key(|info: &Info| info.id);
        Ok(infos)
    }

    pub fn put_restore(&self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.put_file(&self.dir.join("restore"), bytes)
    }

    pub fn restore(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let path = self.dir.join("restore");
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_at(&path)(error)),
        }
    }

    pub fn end_restore(&self) -> Result<(), SnapshotError> {
        let path = self.dir.join("restore");
        std::fs::remove_file(&path).and_then(|()| sync_dir(&path)).map_err(io_at(&path))
    }

    pub fn known(&self) -> Known {
        let read = || {
            let packed = std::fs::read(self.dir.join("known")).ok()?;
            let mut bytes = Vec::new();
            zstd::stream::Decoder::new(packed.as_slice())
                .ok()?
                .take(TREE_BYTES_MAX)
                .read_to_end(&mut bytes)
                .ok()?;
            Known::decode(&bytes)
        };
        read().unwrap_or_default()
    }

    pub fn put_known(&self, known: &Known) -> Result<(), SnapshotError> {
        let path = self.dir.join("known");
        let packed = zstd::bulk::compress(&known.encode(), LEVEL).map_err(io_at(&path))?;
        self.put_file(&path, &packed)
    }

    /// Removes the trees and content that no snapshot has any more.
    pub fn collect(&self, _: &Locked) -> Result<(), SnapshotError> {
        let trees: HashSet<String> = self.all_infos()?.into_iter().map(|info| info.tree).collect();
        let mut live: HashSet<Hash> = HashSet::new();
        for tree in &trees {
            live.extend(self.tree(tree)?.pieces());
        }
        let dir = self.dir.join("trees");
        for name in names_in(&dir)?.into_iter().filter(|name| !trees.contains(name)) {
            let path = dir.join(name);
            std::fs::remove_file(&path).map_err(io_at(&path))?;
        }
        let mut known = self.known();
        let before = known.files.len();
        known.files.retain(|_, (_, pieces)| pieces.iter().all(|piece| live.contains(piece)));
        if known.files.len() != before {
            self.put_known(&known)?;
        }
        let objects = self.dir.join("objects");
        for outer in names_in(&objects)? {
            let dir = objects.join(&outer);
            for name in names_in(&dir)? {
                if Hash::parse(&format!("{outer}{name}")).is_none_or(|hash| !live.contains(&hash)) {
                    let path = dir.join(name);
                    std::fs::remove_file(&path).map_err(io_at(&path))?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of all files of the store.
    pub fn bytes(&self) -> u64 {
        fn bytes(dir: &Path) -> u64 {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let size = |entry: std::fs::DirEntry| match entry.metadata() {
                Ok(data) if data.is_dir() => bytes(&entry.path()),
                Ok(data) => data.len(),
                Err(_) => 0,
            };
            entries.map(size).sum()
        }
        bytes(&self.dir)
    }
}

pub(super) fn names_in(dir: &Path) -> Result<Vec<String>, SnapshotError> {
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            let name = |entry: io::Result<std::fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
            entries.filter_map(|entry| name(entry).transpose()).collect::<io::Result<_>>().map_err(io_at(dir))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io_at(dir)(error)),
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Reads a packed file and holds it against its name.
fn read_named(path: &Path, hash: Hash, max: u64) -> Result<Vec<u8>, SnapshotError> {
    let packed = std::fs::read(path).map_err(io_at(path))?;
    let mut bytes = Vec::new();
    let read = zstd::stream::Decoder::new(packed.as_slice())
        .and_then(|decoder| decoder.take(max + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if Hash::of(&bytes) == hash => Ok(bytes),
        _ => Err(SnapshotError::Damaged {
            what: format!("{} does not hold what its name says", path.display()),
        }),
    }
}

/// The content of a file.
pub struct Content<'a> {
    store: &'a Store,
    pieces: std::slice::Iter<'a, Hash>,
    now: io::Cursor<Vec<u8>>,
}

impl Read for Content<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.now.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let Some(piece) = self.pieces.next() else { return Ok(0) };
            // Of a kind of its own: that the store cannot be read says nothing of the file that is written.
            let bytes = self.store.piece(*piece).map_err(io::Error::other)?;
            self.now = io::Cursor::new(bytes);
        }
    }
}

/// The content of files that were read before, by what a look at them tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// When the last walk began, in nanoseconds since the epoch.
    pub began: i64,
    pub files: HashMap<RelPath, (Stat, Vec<Hash>)>,
}

impl Known {
    /// The content of a file that cannot have changed since it was read.
    pub fn get(&self, path: &[u8], stat: &Stat) -> Option<&Vec<Hash>> {
        let (known, pieces) = self.files.get(path)?;
        let settled = stat.ctime.max(stat.mtime) < self.began.saturating_sub(RACY_NANOS);
        (known == stat && settled).then_some(pieces)
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.number(self.began.cast_unsigned());
        for (path, (stat, pieces)) in &self.files {
            to.bytes(path);
            for number in
                [stat.size, stat.mtime.cast_unsigned(), stat.ctime.cast_unsigned(), stat.ino, stat.dev]
            {
                to.number(number);
            }
            to.number(pieces.len() as u64);
            pieces.iter().for_each(|piece| to.0.extend_from_slice(&piece.0));
        }
        to.0
    }

    fn decode(bytes: &[u8]) -> Option<Known> {
        let from = &mut Reader(bytes);
        let mut known = Known { began: from.number()?.cast_signed(), files: HashMap::new() };
        while !from.is_empty() {
            let path = from.bytes()?.to_vec();
            let stat = Stat {
                size: from.number()?,
                mtime: from.number()?.cast_signed(),
                ctime: from.number()?.cast_signed(),
                ino: from.number()?,
                dev: from.number()?,
            };
            known.files.insert(path, (stat, pieces(from)?));
        }
        Some(known)
    }
}

/// The kind of a node in one word.
pub fn kind_of(node: &Node) -> &'static str {
    match node {
        Node::Dir { .. } => "dir",
        Node::File { .. } => "file",
        Node::Link { .. } => "link",
    }
}
