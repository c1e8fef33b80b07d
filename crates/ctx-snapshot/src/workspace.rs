//! The door: all stores of a machine, and one workspace with its store and its files.
//!
//! Everything here blocks, and waits while another process works on the same workspace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ctx_session::{IdSource, Timestamp, Ulid};
use sha2::{Digest, Sha256};

use super::SnapshotError;
use super::files::{Files, Walked};
use super::history::Saw;
use super::ignored::{Ignored, RULES_FILE};
use super::local::Local;
use super::plan::{Change, Changed, Plan, Report, Wishes, plan, whole};
use super::restore::{Order, Pending, Prepared, Turns, prepare, recover};
use super::store::{About, Info, Locked, Reason, Store};
use super::take::{Saved, Scope, save};
use super::tree::{Node, PathText, RelPath, Tree, parent, parents};
use ctx_cage::rights::Rights;

/// Checkpoints of shells in one workspace that are kept whatever the budget says.
const SHELL_CHECKPOINTS: usize = 50;

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub files_max: usize,
    /// A longer file is left out.
    pub file_bytes_max: u64,
    /// New content in one snapshot that nobody asked for.
    pub unasked_bytes_max: u64,
    /// The bytes of all stores; the oldest snapshots go when there are more.
    pub budget_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files_max: 1_000_000,
            file_bytes_max: 4 << 30,
            unasked_bytes_max: 1 << 30,
            budget_bytes: 10 << 30,
        }
    }
}

/// Whether a restore that waits for a record in a session's log has it.
pub type IsRecorded = Box<dyn Fn(Pending) -> bool + Send + Sync>;

/// All stores. Cloning it is cheap.
#[derive(Clone)]
pub struct Snapshots {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub dir: PathBuf,
    apart: Vec<PathBuf>,
    pub limits: Limits,
    ids: Mutex<IdSource>,
    is_recorded: IsRecorded,
    /// Bytes written since the stores were measured.
    pub grown: AtomicU64,
}

/// What a snapshot is taken for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub reason: Reason,
    pub label: Option<String>,
    pub session: Option<Ulid>,
    pub run: Option<Ulid>,
    pub keep: bool,
    pub with_ignored: bool,
    /// The snapshot that it is compared with: what that did not ignore is part of this one, too.
    pub since: Option<Box<Info>>,
    /// The stretches of runs that are about to be taken back or brought back.
    pub turns: Turns,
}

impl Ask {
    pub fn new(reason: Reason) -> Ask {
        Ask {
            reason,
            label: None,
            session: None,
            run: None,
            keep: false,
            with_ignored: false,
            since: None,
            turns: Turns::default(),
        }
    }
}

/// What a restore came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub report: Report,
    /// The snapshot that was taken before it.
    pub undo: Info,
}

impl Snapshots {
    /// `dir`: where stores are. `apart`: directories that are never part of a snapshot.
    pub fn new(dir: PathBuf, apart: Vec<PathBuf>, limits: Limits, is_recorded: IsRecorded) -> Snapshots {
        let mut seed = [0u8; 8];
        // Without random bits, ids are still kept apart by the clock.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let ids = Mutex::new(IdSource::new(u64::from_le_bytes(seed)));
        let apart = apart.into_iter().chain([dir.clone()]).collect();
        let grown = AtomicU64::new(u64::MAX / 2);
        Snapshots { inner: Arc::new(Inner { dir, apart, limits, ids, is_recorded, grown }) }
    }

    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// A directory of a user, and the store of its snapshots.
    pub fn open(&self, path: &Path, uid: u32, rights: Rights) -> Result<Workspace, SnapshotError> {
        let path = resolve(path, uid, &rights)?;
        // Made first: the directory of stores is told from the files by what it is.
        let store = self.store(path.clone(), uid)?;
        let files = Local::open(&path, rights, &self.inner.apart)
            .map_err(SnapshotError::io(path.display().to_string()))?;
        Ok(self.over(store, Box::new(files)))
    }

    /// Files that a user reaches in some other way, under the name of their place, and the store of their snapshots.
    pub fn open_over(
        &self,
        path: PathBuf,
        uid: u32,
        files: Box<dyn Files>,
    ) -> Result<Workspace, SnapshotError> {
        Ok(self.over(self.store(path, uid)?, files))
    }

    fn store(&self, path: PathBuf, uid: u32) -> Result<Store, SnapshotError> {
        let name: [u8; 32] =
            Sha256::digest([uid.to_string().as_bytes(), b"\0", path_bytes(&path)].concat()).into();
        let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Store::open(self.inner.dir.join(name), About { path, uid })
    }

    /// A workspace over files that are reached in some other way.
    pub fn over(&self, store: Store, files: Box<dyn Files>) -> Workspace {
        Workspace { all: self.clone(), store, files }
    }

    fn new_id(&self) -> Ulid {
        self.inner.ids.lock().unwrap_or_else(PoisonError::into_inner).next(now())
    }
}

fn path_bytes(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}

pub fn now() -> Timestamp {
    Timestamp::from_millis(u64::try_from(since_epoch().as_millis()).unwrap_or_default())
}

/// The machine's clock, which the disk's times are of.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A path without links, that may be a workspace: a directory, and neither `/` nor one that holds a home directory.
pub fn resolve(path: &Path, uid: u32, rights: &Rights) -> Result<PathBuf, SnapshotError> {
    let refused = |why: String| SnapshotError::NoWorkspace { path: path.to_owned(), why };
    if !path.is_absolute() {
        return Err(refused("the path must be absolute".to_owned()));
    }
    // There, this process is another one than the user's.
    if path.starts_with("/proc") {
        return Err(refused("it is in /proc".to_owned()));
    }
    let found =
        rights.act(|| std::fs::canonicalize(path).and_then(|path| Ok((path.metadata()?.is_dir(), path))))?;
    let (is_dir, path) = found.map_err(|error| refused(error.to_string()))?;
    if !is_dir {
        return Err(refused("it is not a directory".to_owned()));
    }
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.dir);
    let own = (uid == rustix::process::geteuid().as_raw())
        .then(|| std::env::var_os("HOME").map(PathBuf::from))
        .flatten();
    let home = |home: &PathBuf| {
        // A home directory that is `/` is nobody's.
        home.parent().is_some()
            && std::fs::canonicalize(home).unwrap_or_else(|_| home.clone()).starts_with(&path)
    };
    if path.parent().is_none() {
        return Err(refused("it is the root of the file system".to_owned()));
    }
    if user.iter().chain(own.iter()).any(home) {
        return Err(refused("it is a home directory, or holds one; name a directory in it".to_owned()));
    }
    Ok(path)
}

/// A directory, and the store of its snapshots.
pub struct Workspace {
    pub(super) all: Snapshots,
    store: Store,
    files: Box<dyn Files>,
}

impl Workspace {
    pub fn path(&self) -> &Path {
        &self.store.about.path
    }

    fn scope(&self) -> Scope<'static> {
        let limits = self.all.inner.limits;
        Scope {
            began: i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX),
            with_ignored: false,
            also: None,
            earlier: None,
            files_max: limits.files_max,
            file_bytes_max: limits.file_bytes_max,
            new_bytes_max: u64::MAX,
        }
    }

    /// Waits for others, and finishes what one of them left undone.
    pub(super) fn lock(&self) -> Result<Locked, SnapshotError> {
        let locked = self.store.lock()?;
        recover(&self.store, &locked, &*self.files, self.scope(), &self.all.inner.is_recorded)?;
        Ok(locked)
    }

    /// Finishes or takes back a restore that was cut short.
    pub fn recover(&self) -> Result<(), SnapshotError> {
        self.lock().map(drop)
    }

    /// Saves what is there.
    pub fn take(&self, ask: Ask) -> Result<Info, SnapshotError> {
        let locked = self.lock()?;
        let saved = self.saved(&locked, &ask)?;
        let info = self.keep(&saved.walked.tree, ask)?;
        if info.reason == Reason::Shell {
            self.let_go_of_old()?;
        }
        drop(locked);
        self.all.grew(saved.written);
        Ok(info)
    }

    /// What is there now, as a snapshot that is not kept.
    pub fn look(&self, ask: Ask) -> Result<Info, SnapshotError> {
        let locked = self.lock()?;
        self.described(&self.saved(&locked, &ask)?.walked.tree, ask)
    }

    fn saved(&self, locked: &Locked, ask: &Ask) -> Result<Saved, SnapshotError> {
        let new_bytes_max = match ask.reason {
            Reason::BeforeRun | Reason::AfterRun | Reason::Checkpoint => {
                self.all.inner.limits.unasked_bytes_max
            }
            Reason::Asked | Reason::Shell | Reason::BeforeRestore => u64::MAX,
        };
        let earlier = ask.since.as_ref().map(|since| self.rules(&self.tree(since)?)).transpose()?;
        let with_ignored = ask.with_ignored;
        let scope = Scope { with_ignored, earlier: earlier.as_ref(), new_bytes_max, ..self.scope() };
        save(&self.store, locked, &*self.files, scope)
    }

    fn keep(&self, tree: &Tree, ask: Ask) -> Result<Info, SnapshotError> {
        let info = self.described(tree, ask)?;
        self.store.put_info(&info)?;
        Ok(info)
    }

    fn described(&self, tree: &Tree, ask: Ask) -> Result<Info, SnapshotError> {
        Ok(Info {
            id: self.all.new_id(),
            created: now(),
            reason: ask.reason,
            tree: self.store.put_tree(tree)?.to_string(),
            files: tree.files(),
            bytes: tree.bytes(),
            label: ask.label,
            session: ask.session,
            run: ask.run,
            uncertain: Vec::new(),
            undoes: ask.turns.undoes,
            redoes: ask.turns.redoes,
            restores: ask.turns.restores,
            kept: Vec::new(),
            end_unknown: false,
            keep: ask.keep,
        })
    }

    /// Of many checkpoints of shells, the oldest may go to make room.
    fn let_go_of_old(&self) -> Result<(), SnapshotError> {
        let infos = self.infos()?;
        let kept: Vec<&Info> = infos.iter().filter(|info| info.keep && info.session.is_none()).collect();
        let old = kept.len().saturating_sub(SHELL_CHECKPOINTS);
        kept.into_iter()
            .take(old)
            .try_for_each(|info| self.store.put_info(&Info { keep: false, ..info.clone() }))
    }

    /// Says something else of a snapshot.
    pub fn change(&self, info: Info) -> Result<(), SnapshotError> {
        let _locked = self.store.lock()?;
        self.store.put_info(&info)
    }

    /// Notes of a snapshot before a run that the run's end could not be saved. It stays, and whoever asks can restore it: what
    /// the run destroyed may be nowhere else. But a later snapshot is not its end.
    pub fn end_is_unknown(&self, before: &Info) -> Result<(), SnapshotError> {
        self.change(Info { end_unknown: true, ..before.clone() })
    }

    /// A snapshot that nobody will ask for; what it holds goes with the next prune.
    pub fn forget(&self, info: &Info) -> Result<(), SnapshotError> {
        self.store.remove_info(info.id)
    }

    /// All snapshots, the oldest first.
    pub fn infos(&self) -> Result<Vec<Info>, SnapshotError> {
        self.store.infos()
    }

    pub fn info(&self, id: Ulid) -> Result<Info, SnapshotError> {
        self.store.info(id)
    }

    pub fn tree(&self, info: &Info) -> Result<Tree, SnapshotError> {
        self.store.tree(&info.tree)
    }

    /// The content of a file of a snapshot, if it is not longer than that.
    pub fn text(&self, node: &Node, bytes_max: u64) -> Result<Option<Vec<u8>>, SnapshotError> {
        let Node::File { size, pieces, .. } = node else { return Ok(None) };
        if *size > bytes_max {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend(self.store.piece(*piece)?);
        }
        Ok(Some(bytes))
    }

    /// What is there now that a snapshot has or would have had.
    fn walked_for(&self, locked: &Locked, target: &Tree, rules: &Ignored) -> Result<Walked, SnapshotError> {
        self.walked(locked, target.with_ignored, &target.nodes.keys().cloned().collect(), Some(rules))
    }

    /// What is there now. Its content is saved; that nothing points to it yet is no harm.
    fn walked(
        &self,
        locked: &Locked,
        with_ignored: bool,
        also: &BTreeSet<RelPath>,
        earlier: Option<&Ignored>,
    ) -> Result<Walked, SnapshotError> {
        let scope = Scope { with_ignored, also: Some(also), earlier, ..self.scope() };
        let mut walked = save(&self.store, locked, &*self.files, scope)?.walked;
        let rules = self.rules(&walked.tree)?;
        let is_absent = |path: &&RelPath| !with_ignored && walked.tree.get(path).is_none();
        let ignored = |path: &&RelPath| rules.has_within(path, false) || rules.has_within(path, true);
        walked.tree.absent = also.iter().filter(is_absent).filter(ignored).cloned().collect();
        Ok(walked)
    }

    /// What differs between a snapshot and now, in the words of the way from the one to the other.
    pub fn since(&self, info: &Info) -> Result<Report, SnapshotError> {
        let target = self.tree(info)?;
        let rules = self.rules(&target)?;
        let now = self.walked_for(&self.lock()?, &target, &rules)?;
        let wishes = whole(&target, &rules, &now.tree);
        let path = |path: &RelPath| {
            let change = Change::between(target.get(path), now.tree.get(path))?;
            Some(Changed { path: PathText(path.clone()), change })
        };
        Ok(Report { changed: wishes.keys().filter_map(path).collect(), kept: Vec::new() })
    }

    /// The rules of a tree's own ignore files.
    fn rules(&self, tree: &Tree) -> Result<Ignored, SnapshotError> {
        let is_rules =
            |(path, _): &(&RelPath, &Node)| path.rsplit(|byte| *byte == b'/').next() == Some(RULES_FILE);
        let mut files: Vec<(&RelPath, &Node)> = tree.nodes.iter().filter(is_rules).collect();
        // In the order of their names, `-a/.gitignore` comes before `.gitignore`.
        files.sort_by_key(|(path, _)| parents(path).count());
        let mut rules = Ignored::above(&tree.outer);
        for (path, node) in files {
            if let Some(text) = self.text(node, 1 << 20)? {
                rules.add(parent(path).unwrap_or_default(), &text);
            }
        }
        Ok(rules)
    }

    pub(super) fn saw(&self, info: &Info) -> Result<Saw, SnapshotError> {
        let tree = self.tree(info)?;
        Ok(Saw { rules: self.rules(&tree)?, tree: Arc::new(tree) })
    }

    /// What differs between two snapshots.
    pub fn between(&self, from: &Info, to: &Info) -> Result<Report, SnapshotError> {
        let (from, to) = (self.saw(from)?, self.saw(to)?);
        let changed = from.differing(&to).filter_map(|path| {
            let change = Change::between(from.tree.get(path), to.tree.get(path))?;
            Some(Changed { path: PathText(path.clone()), change })
        });
        Ok(Report { changed: changed.collect(), kept: Vec::new() })
    }

    /// What a restore of a snapshot would do.
    pub fn preview(&self, info: &Info) -> Result<Report, SnapshotError> {
        let locked = self.lock()?;
        let target = self.tree(info)?;
        let (_, plan) = self.plan_whole(&locked, &target)?;
        Ok(plan.report())
    }

    /// Makes all files as they were.
    pub fn restore(&self, info: &Info) -> Result<Restored, SnapshotError> {
        let locked = self.lock()?;
        let target = self.tree(info)?;
        let (now, plan) = self.plan_whole(&locked, &target)?;
        let mut ask = Ask::new(Reason::BeforeRestore);
        ask.label = Some(format!("before the restore of {}", info.id));
        ask.keep = info.keep;
        // What an undo took back is the session's change again, and the other way round.
        let mut turns = Turns { undoes: info.redoes.clone(), redoes: info.undoes.clone(), restores: None };
        turns.restores = (!turns.is_empty()).then_some(info.id);
        ask.session = info.session.filter(|_| !turns.is_empty());
        let undo = self.keep(&now.tree, ask)?;
        let (id, with_ignored) = (self.all.new_id(), target.with_ignored);
        let order = Order { id, undo: undo.id, session: None, turns, with_ignored };
        let report = prepare(&self.store, locked, &*self.files, plan, order)?.apply()?;
        Ok(Restored { report, undo })
    }

    fn plan_whole(&self, locked: &Locked, target: &Tree) -> Result<(Walked, Plan), SnapshotError> {
        let rules = self.rules(target)?;
        let now = self.walked_for(locked, target, &rules)?;
        let wishes = whole(target, &rules, &now.tree);
        let plan = plan(&wishes, &now, target);
        Ok((now, plan))
    }

    /// What fulfilling some wishes would do.
    pub fn preview_wishes(&self, wishes: &Wishes, modes: &Tree) -> Result<Report, SnapshotError> {
        let locked = self.lock()?;
        let now = self.walked(&locked, modes.with_ignored, &wishes.keys().cloned().collect(), None)?;
        Ok(plan(wishes, &now, modes).report())
    }

    /// Gets ready what fulfils some wishes. With `waits`, it is done only if the log of the session has a record that names
    /// it.
    pub fn prepare(
        &self,
        wishes: &Wishes,
        modes: &Tree,
        mut ask: Ask,
        waits: bool,
    ) -> Result<(Prepared<'_>, Info), SnapshotError> {
        let locked = self.lock()?;
        let now = self.walked(&locked, modes.with_ignored, &wishes.keys().cloned().collect(), None)?;
        let plan = plan(wishes, &now, modes);
        let session = ask.session.filter(|_| waits);
        let turns = std::mem::take(&mut ask.turns);
        let undo = self.keep(&now.tree, ask)?;
        let (id, with_ignored) = (self.all.new_id(), modes.with_ignored);
        let order = Order { id, undo: undo.id, session, turns, with_ignored };
        Ok((prepare(&self.store, locked, &*self.files, plan, order)?, undo))
    }
}
