//! Bringing files back, so that a crash in the middle loses nothing.
//!
//! First what is there is saved, and the steps are written down. Then every new file is written beside its place under
//! a name of its own: a full disk shows here, and nothing has changed yet. Then the steps are declared ready, and only
//! then are files removed, put in their places and given their modes. Whoever opens the store and finds a restore that
//! is not ready takes it back; one that is ready is finished, unless it waits for a record in a log that was never
//! written. What others changed in between is kept, and so is what cannot be changed (it is immutable, a mount point or in a
//! directory of someone else): one such path neither refuses the others nor leaves a restore open.

use std::collections::{BTreeMap, BTreeSet};

use ctx_session::Ulid;
use serde::{Deserialize, Serialize};

use super::SnapshotError;
use super::codec::{Reader, Writer};
use super::doing::{Doing, Refused, at, cannot, is_refused, is_someone_else, remove_temp};
use super::files::Files;
use super::ignored::STAGED;
use super::plan::{Guard, Kept, Opened, Plan, Report, Step, Wish, Wishes, plan};
use super::store::{Info, Locked, Store};
use super::take::{Saved, Scope, save};
use super::tree::{Node, PathText, RelPath, Tree, join, parents, shown};

/// A restore that waits for its record in a session's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub session: Ulid,
    /// The record names it.
    pub restore: Ulid,
    /// Whose workspace it is.
    pub uid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Staging,
    Ready,
}

/// Which restore it is.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub id: Ulid,
    /// The snapshot that was taken before it.
    pub undo: Ulid,
    /// It waits for a record in the log of this session that names `id`.
    pub session: Option<Ulid>,
    /// As the snapshot before it says from when the restore is written down.
    pub turns: Turns,
    /// Ignored files are part of it.
    pub with_ignored: bool,
}

/// The stretches of runs, by their first snapshots, that a restore takes back and brings back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    pub undoes: Vec<Ulid>,
    pub redoes: Vec<Ulid>,
    /// The snapshot that is restored, where the turns are those of an earlier restore backwards.
    pub restores: Option<Ulid>,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.undoes.is_empty() && self.redoes.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    id: Ulid,
    undo: Ulid,
    phase: Phase,
    #[serde(default)]
    session: Option<Ulid>,
    #[serde(default)]
    with_ignored: bool,
    staged: Vec<PathText>,
    opened: Vec<Opened>,
}

/// A restore as it is written down: what was at each path, and what should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Journal {
    head: Head,
    before: Tree,
    want: Tree,
}

impl Journal {
    fn write(&self, store: &Store) -> Result<(), SnapshotError> {
        let head =
            serde_json::to_vec(&self.head).map_err(|error| SnapshotError::io("restore")(error.into()))?;
        let mut to = Writer::default();
        to.bytes(&head);
        to.bytes(&self.before.encode());
        to.bytes(&self.want.encode());
        store.put_restore(&to.0)
    }

    fn read(bytes: &[u8]) -> Option<Journal> {
        let from = &mut Reader(bytes);
        let head = serde_json::from_slice(from.bytes()?).ok()?;
        Some(Journal { head, before: Tree::decode(from.bytes()?)?, want: Tree::decode(from.bytes()?)? })
    }
}

/// A restore of which everything is ready, and nothing is done.
pub struct Prepared<'a> {
    store: &'a Store,
    locked: Locked,
    files: &'a dyn Files,
    journal: Journal,
    plan: Plan,
    staged: BTreeMap<RelPath, RelPath>,
    /// The paths that cannot be written, as the staging has shown, and why.
    refused: Refused,
}

/// Gets a restore ready.
pub(super) fn prepare<'a>(
    store: &'a Store,
    locked: Locked,
    files: &'a dyn Files,
    plan: Plan,
    order: Order,
) -> Result<Prepared<'a>, SnapshotError> {
    let (mut before, mut want) = (Tree::default(), Tree::default());
    for Step { path, before: was, want: wanted, .. } in &plan.steps {
        before.nodes.extend(was.clone().map(|node| (path.clone(), node)));
        want.nodes.extend(wanted.clone().map(|node| (path.clone(), node)));
    }
    let Order { id, undo, session, turns, with_ignored } = order;
    let staged = staged_names(&plan, id);
    let head = Head {
        id,
        undo,
        phase: Phase::Staging,
        session,
        with_ignored,
        staged: staged.values().cloned().map(PathText).collect(),
        opened: plan.opened.clone(),
    };
    let journal = Journal { head, before, want };
    let mut prepared = Prepared { store, locked, files, journal, plan, staged, refused: Refused::default() };
    if prepared.plan.steps.is_empty() {
        undone(store, undo, turns, &prepared.plan)?;
        return Ok(prepared);
    }
    prepared.journal.write(store)?;
    // Not before: a restore that nobody knows of would count as done.
    let marked = undone(store, undo, turns, &prepared.plan);
    let staged =
        marked.and_then(|()| stage(store, files, &prepared.plan, &prepared.staged)).and_then(|refused| {
            prepared.refused = refused;
            prepared.journal.head.phase = Phase::Ready;
            prepared.journal.write(store)
        });
    match staged {
        Ok(()) => Ok(prepared),
        Err(error) => {
            // If this fails too, whoever opens the store next does it.
            let _ = take_back(store, files, &prepared.journal.head);
            Err(error)
        }
    }
}

/// Where each new file is written first: in the nearest directory that is there and stays.
fn staged_names(plan: &Plan, id: Ulid) -> BTreeMap<RelPath, RelPath> {
    let gone: BTreeSet<&[u8]> = plan
        .steps
        .iter()
        .filter(|step| step.removes() || step.before.is_none())
        .map(|step| step.path.as_slice())
        .collect();
    let is_put = |step: &&Step| step.want.as_ref().is_some_and(|want| !want.is_dir());
    let name = |(n, step): (usize, &Step)| {
        let dir = parents(&step.path).find(|dir| !gone.contains(dir)).unwrap_or_default();
        let name = [STAGED, format!("{id}.{n}").as_bytes()].concat();
        (step.path.clone(), join(dir, &name))
    };
    plan.steps.iter().filter(is_put).enumerate().map(name).collect()
}

impl Prepared<'_> {
    /// What names it.
    pub fn id(&self) -> Ulid {
        self.journal.head.id
    }

    /// What it will do.
    pub fn report(&self) -> Report {
        report(&self.plan, &self.refused)
    }

    /// Does it. An error leaves it to whoever opens the store next.
    pub fn apply(self) -> Result<Report, SnapshotError> {
        if self.plan.steps.is_empty() {
            return Ok(self.report());
        }
        let mut doing = Doing::new(self.files, self.refused);
        doing.all(&self.plan, &self.staged, &self.journal.head.opened)?;
        self.files.sync().map_err(at(b""))?;
        also_kept(self.store, self.journal.head.undo, doing.kept.keys())?;
        self.store.end_restore()?;
        drop(self.locked);
        Ok(report(&self.plan, &doing.kept))
    }

    /// Takes it back: nothing has changed.
    pub fn discard(self) -> Result<(), SnapshotError> {
        if self.plan.steps.is_empty() {
            return not_undone(self.store, self.journal.head.undo);
        }
        take_back(self.store, self.files, &self.journal.head)
    }
}

/// What a plan does but for what is kept.
fn report(plan: &Plan, also_kept: &BTreeMap<RelPath, String>) -> Report {
    let mut report = plan.report();
    report.changed.retain(|changed| !also_kept.contains_key(&changed.path.0));
    let kept = |(path, why): (&RelPath, &String)| Kept { path: PathText(path.clone()), why: why.clone() };
    report.kept.extend(also_kept.iter().map(kept));
    report
}

/// Writes every new file beside its place, but for those that cannot be written.
fn stage(
    store: &Store,
    files: &dyn Files,
    plan: &Plan,
    staged: &BTreeMap<RelPath, RelPath>,
) -> Result<Refused, SnapshotError> {
    for opened in &plan.opened {
        match files.set_mode(&opened.path.0, opened.before | 0o700) {
            // What is in it says so itself.
            Err(error) if is_refused(&error) => {}
            set => set.map_err(at(&opened.path.0))?,
        }
    }
    let mut refused = Refused::default();
    for step in &plan.steps {
        let Some(temp) = staged.get(&step.path) else { continue };
        let written = match &step.want {
            Some(Node::File { mode, pieces, .. }) => files.write(temp, *mode, &mut store.content(pieces)),
            Some(Node::Link { target }) => files.link(temp, target),
            Some(Node::Dir { .. }) | None => Ok(()),
        };
        match written {
            Err(error) if is_refused(&error) => drop(refused.insert(step.path.clone(), cannot(&error))),
            written => written.map_err(at(&step.path))?,
        }
    }
    files.sync().map_err(at(b""))?;
    Ok(refused)
}

fn remove_staged(files: &dyn Files, head: &Head) -> Result<(), SnapshotError> {
    head.staged.iter().try_for_each(|temp| remove_temp(files, &temp.0))
}

/// Undoes a restore of which no step was done.
fn take_back(store: &Store, files: &dyn Files, head: &Head) -> Result<(), SnapshotError> {
    remove_staged(files, head)?;
    for opened in head.opened.iter().rev() {
        match files.set_mode(&opened.path.0, opened.before) {
            Err(error) if is_someone_else(&error) || is_refused(&error) => {}
            set => set.map_err(at(&opened.path.0))?,
        }
    }
    not_undone(store, head.undo)?;
    store.end_restore()
}

fn undone(store: &Store, undo: Ulid, turns: Turns, plan: &Plan) -> Result<(), SnapshotError> {
    if turns.is_empty() {
        return Ok(());
    }
    let kept = plan.kept.iter().map(|kept| kept.path.clone()).collect();
    let Turns { undoes, redoes, restores } = turns;
    store.put_info(&Info { undoes, redoes, restores, kept, ..store.info(undo)? })
}

/// What was kept while it was done was not taken back either.
fn also_kept<'a>(
    store: &Store,
    undo: Ulid,
    paths: impl Iterator<Item = &'a RelPath>,
) -> Result<(), SnapshotError> {
    let paths: Vec<PathText> = paths.cloned().map(PathText).collect();
    match store.info(undo) {
        Ok(mut info) if !paths.is_empty() && !info.undoes.is_empty() => {
            info.kept.extend(paths);
            store.put_info(&info)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Nothing was taken back after all.
fn not_undone(store: &Store, undo: Ulid) -> Result<(), SnapshotError> {
    match store.info(undo) {
        Ok(info) if !(info.undoes.is_empty() && info.redoes.is_empty()) => {
            let Turns { undoes, redoes, restores } = Turns::default();
            store.put_info(&Info { undoes, redoes, restores, kept: Vec::new(), ..info })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Finishes a restore that was cut short, or takes it back.
pub(super) fn recover(
    store: &Store,
    locked: &Locked,
    files: &dyn Files,
    scope: Scope<'_>,
    is_recorded: &dyn Fn(Pending) -> bool,
) -> Result<(), SnapshotError> {
    let Some(bytes) = store.restore()? else { return Ok(()) };
    let damaged =
        || SnapshotError::Damaged { what: "the restore that was cut short cannot be read".to_owned() };
    let mut journal = Journal::read(&bytes).ok_or_else(damaged)?;
    let Head { id, phase, session, with_ignored, .. } = journal.head;
    let is_recorded =
        session.is_none_or(|session| is_recorded(Pending { session, restore: id, uid: store.about.uid }));
    let workspace = store.about.path.display();
    if phase == Phase::Staging || !is_recorded {
        tracing::info!(%workspace, restore = %id, "a restore was cut short before it changed anything; it is taken back");
        return take_back(store, files, &journal.head);
    }
    tracing::info!(%workspace, restore = %id, "a restore was cut short; it is finished");
    remove_staged(files, &journal.head)?;
    let paths: BTreeSet<RelPath> =
        journal.before.nodes.keys().chain(journal.want.nodes.keys()).cloned().collect();
    let Saved { walked, .. } =
        save(store, locked, files, Scope { also: Some(&paths), with_ignored, ..scope })?;
    let wish = |path: RelPath| {
        let (want, was) = (journal.want.get(&path).cloned(), journal.before.get(&path).cloned());
        (path, Wish { want, guard: Guard::IsOrGone(was) })
    };
    let wishes: Wishes = paths.into_iter().map(wish).collect();
    let plan = plan(&wishes, &walked, &journal.want);
    let staged = staged_names(&plan, id);
    journal.head.staged = staged.values().cloned().map(PathText).collect();
    for opened in &plan.opened {
        if !journal.head.opened.iter().any(|known| known.path == opened.path) {
            journal.head.opened.push(opened.clone());
        }
    }
    journal.write(store)?;
    let Head { undo, opened, .. } = journal.head;
    let again = Again { store, files, plan, staged, undo, opened };
    again.finish()
}

/// A restore that is done for the second time.
struct Again<'a> {
    store: &'a Store,
    files: &'a dyn Files,
    plan: Plan,
    staged: BTreeMap<RelPath, RelPath>,
    undo: Ulid,
    opened: Vec<Opened>,
}

impl Again<'_> {
    fn finish(self) -> Result<(), SnapshotError> {
        let refused = stage(self.store, self.files, &self.plan, &self.staged)?;
        let mut doing = Doing::new(self.files, refused);
        doing.all(&self.plan, &self.staged, &self.opened)?;
        self.files.sync().map_err(at(b""))?;
        let kept = self.plan.kept.iter().map(|kept| &kept.path.0).chain(doing.kept.keys());
        also_kept(self.store, self.undo, kept)?;
        self.store.end_restore()?;
        for kept in report(&self.plan, &doing.kept).kept {
            tracing::warn!(
                path = shown(&kept.path.0),
                why = kept.why,
                "a file was kept by a restore that was finished"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_back() {
        let head = Head {
            id: "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            undo: "01ARZ3NDEKTSV4RRFFQ69G5FAW".parse().unwrap(),
            phase: Phase::Ready,
            session: None,
            with_ignored: true,
            staged: vec![PathText(b"a\xff".to_vec())],
            opened: vec![Opened { path: PathText(Vec::new()), before: 0o555, after: None }],
        };
        let mut before = Tree::default();
        before.nodes.insert(b"x".to_vec(), Node::Dir { mode: 0 });
        let journal = Journal { head, before, want: Tree::default() };
        let dir = tempfile::tempdir().unwrap();
        let about = super::super::store::About { path: "/w".into(), uid: 0 };
        let store = Store::open(dir.path().join("s"), about).unwrap();
        journal.write(&store).unwrap();
        let bytes = store.restore().unwrap().unwrap();
        assert_eq!(Journal::read(&bytes), Some(journal));
        assert_eq!(Journal::read(bytes.get(..bytes.len() - 1).unwrap()), None);
    }
}
