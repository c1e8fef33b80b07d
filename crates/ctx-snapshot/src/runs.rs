//! Snapshots around the runs of sessions: one before the first call of a run that may write, and one when the run ends or is
//! paused. A run that writes nothing costs nothing.
//!
//! A snapshot that cannot be taken stops no run: a notice of the run says so once, and the run has none.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_session::Ulid;

use super::store::{Info, Reason};
use super::tree::{PathText, RelPath};
use super::workspace::{Ask, Snapshots, Workspace, resolve};
use super::{SnapshotError, Tree};
use ctx_cage::rights::Rights;

/// Of the files that a run may not have changed itself, so many are named.
const UNCERTAIN_MAX: usize = 1_000;

/// What a run changed could not be saved.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unsaved {
    /// What was there before it.
    pub before: Ulid,
    pub error: SnapshotError,
}

/// What a call is about to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
    /// This file of the workspace.
    File(RelPath),
    /// Whatever it likes.
    Anything,
}

/// A session's files.
#[derive(Debug, Clone)]
pub struct Place {
    pub path: PathBuf,
    pub uid: u32,
    pub rights: Rights,
}

/// The runs that are under way. Everything but `begin` blocks.
pub struct RunFiles {
    snapshots: Snapshots,
    runs: Mutex<HashMap<Ulid, Known>>,
}

/// What can be asked of a run while its files are saved.
struct Known {
    run: Ulid,
    path: PathBuf,
    touched: Touched,
    state: Arc<Mutex<Run>>,
}

struct Run {
    session: Ulid,
    run: Ulid,
    place: Place,
    stretch: Stretch,
    /// The first of its stretches that could not be saved.
    unsaved: Option<Unsaved>,
}

/// What the calls of a stretch were about to change.
#[derive(Debug, Clone, Default)]
struct Touched {
    own: Calls,
    /// Those of other sessions in the same directory meanwhile.
    others: Calls,
}

#[derive(Debug, Clone, Default)]
struct Calls {
    files: BTreeSet<RelPath>,
    anything: bool,
}

enum Stretch {
    /// It has written nothing yet, or nothing since a pause.
    None,
    Open {
        before: Box<Info>,
    },
    /// It was paused while it may have been writing.
    Paused,
    /// There can be none.
    Off,
}

impl RunFiles {
    pub fn new(snapshots: Snapshots) -> RunFiles {
        RunFiles { snapshots, runs: Mutex::default() }
    }

    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<Ulid, Known>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, session: Ulid) -> Option<Arc<Mutex<Run>>> {
        self.runs().get(&session).map(|known| Arc::clone(&known.state))
    }

    /// A run begins, or goes on.
    pub fn begin(&self, session: Ulid, run: Ulid, place: Place) {
        let mut runs = self.runs();
        if runs.get(&session).is_none_or(|known| known.run != run) {
            let (path, touched) = (place.path.clone(), Touched::default());
            let new = Run { session, run, place, stretch: Stretch::None, unsaved: None };
            runs.insert(session, Known { run, path, touched, state: Arc::new(Mutex::new(new)) });
        }
    }

    /// A stretch begins. A command of another session may be under way.
    fn begin_touched(&self, session: Ulid) {
        let mut runs = self.runs();
        let Some(path) = runs.get(&session).map(|known| known.path.clone()) else { return };
        let mut others = runs.iter().filter(|(other, known)| **other != session && known.path == path);
        let others =
            Calls { anything: others.any(|(_, known)| known.touched.own.anything), ..Calls::default() };
        runs.entry(session).and_modify(|known| known.touched = Touched { others, ..Touched::default() });
    }

    fn add_touched(&self, session: Ulid, touch: &Touch) {
        let mut runs = self.runs();
        let Some(path) = runs.get(&session).map(|known| known.path.clone()) else { return };
        for (other, known) in runs.iter_mut().filter(|(_, known)| known.path == path) {
            let touched = &mut known.touched;
            if *other == session { &mut touched.own } else { &mut touched.others }.add(touch);
        }
    }

    fn touched(&self, session: Ulid) -> Touched {
        self.runs().get(&session).map(|known| known.touched.clone()).unwrap_or_default()
    }

    /// Something of a run is about to write. An error: the files cannot be saved, and from here on the run has no snapshots.
    pub fn before(&self, session: Ulid, touch: Touch) -> Result<(), SnapshotError> {
        let Some(run) = self.run(session) else { return Ok(()) };
        let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(run.stretch, Stretch::None | Stretch::Paused) {
            self.begin_touched(session);
            run.open(&self.snapshots).inspect_err(|_| self.add_touched(session, &touch))?;
        }
        self.add_touched(session, &touch);
        Ok(())
    }

    /// A run has ended. An error: what it changed, or some of it before a pause, is not known.
    pub fn after(&self, session: Ulid) -> Result<(), Unsaved> {
        let Some(state) = self.run(session) else { return Ok(()) };
        let mut run = state.lock().unwrap_or_else(PoisonError::into_inner);
        run.close(self, Reason::AfterRun);
        let unsaved = run.unsaved.take();
        let mut runs = self.runs();
        // Not before: whoever finds no end of it and no run takes it for cut off.
        if runs.get(&session).is_some_and(|known| known.run == run.run) {
            runs.remove(&session);
        }
        unsaved.map_or(Ok(()), Err)
    }

    /// What is there now, if the stretch that began with this snapshot is under way.
    pub fn so_far(&self, workspace: &Workspace, before: &Info) -> Result<Option<Info>, SnapshotError> {
        let Some(run) = before.session.and_then(|session| self.run(session)) else { return Ok(None) };
        let run = run.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&run.stretch, Stretch::Open { before: open } if open.id == before.id) {
            return Ok(None);
        }
        let ask = Ask { since: Some(Box::new(before.clone())), ..run.ask(Reason::AfterRun) };
        let touched = self.touched(run.session);
        // The run does not wait for the look.
        drop(run);
        let after = workspace.look(ask)?;
        Ok(Some(Info { uncertain: touched.uncertain(workspace, before, &after)?, ..after }))
    }

    /// A session was paused: what is there now belongs to its checkpoint. Where it cannot be saved, the end of the run says so.
    pub fn pause(&self, session: Ulid) {
        let Some(run) = self.run(session) else { return };
        let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
        run.close(self, Reason::Checkpoint);
    }

    /// A paused session goes on: what is there now is not its doing.
    pub fn resumed(&self, session: Ulid) {
        let Some(run) = self.run(session) else { return };
        let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(run.stretch, Stretch::Paused) {
            self.begin_touched(session);
            // The next call that writes tries it again, and says so.
            if run.open(&self.snapshots).is_err() {
                run.stretch = Stretch::Paused;
            }
        }
    }

    /// Whether the files of a session that runs can be saved.
    pub fn check(&self, session: Ulid) -> Result<(), SnapshotError> {
        let Some(run) = self.run(session) else { return Ok(()) };
        let place = run.lock().unwrap_or_else(PoisonError::into_inner).place.clone();
        resolve(&place.path, place.uid, &place.rights).map(drop)
    }
}

impl Run {
    fn workspace(&self, snapshots: &Snapshots) -> Result<Workspace, SnapshotError> {
        snapshots.open(&self.place.path, self.place.uid, self.place.rights.clone())
    }

    fn ask(&self, reason: Reason) -> Ask {
        Ask {
            session: Some(self.session),
            run: Some(self.run),
            keep: reason == Reason::Checkpoint,
            ..Ask::new(reason)
        }
    }

    fn open(&mut self, snapshots: &Snapshots) -> Result<(), SnapshotError> {
        self.stretch = Stretch::Off;
        let taken =
            self.workspace(snapshots).and_then(|workspace| workspace.take(self.ask(Reason::BeforeRun)));
        let before = taken.inspect_err(|error| {
            tracing::warn!(session = %self.session, %error, "the files are not saved before this run");
        })?;
        self.stretch = Stretch::Open { before: Box::new(before) };
        Ok(())
    }

    fn close(&mut self, runs: &RunFiles, reason: Reason) {
        let snapshots = &runs.snapshots;
        let before = match std::mem::replace(&mut self.stretch, Stretch::None) {
            Stretch::Open { before } => Some(*before),
            Stretch::None | Stretch::Paused => None,
            Stretch::Off => {
                self.stretch = Stretch::Off;
                return;
            }
        };
        if before.is_none() && reason == Reason::AfterRun {
            return;
        }
        let was_open = before.is_some();
        if let Err(error) = self.try_close(runs, before.clone(), reason) {
            tracing::warn!(session = %self.session, %error, "the files are not saved after this run");
            if let Some(before) = before {
                let marked =
                    self.workspace(snapshots).and_then(|workspace| workspace.end_is_unknown(&before));
                if let Err(error) = marked {
                    tracing::warn!(session = %self.session, %error, "the snapshot before this run waits for an end");
                }
                self.unsaved.get_or_insert(Unsaved { before: before.id, error });
            }
        }
        runs.begin_touched(self.session);
        if reason == Reason::Checkpoint && was_open {
            self.stretch = Stretch::Paused;
        }
    }

    fn try_close(&self, runs: &RunFiles, before: Option<Info>, reason: Reason) -> Result<(), SnapshotError> {
        let workspace = self.workspace(&runs.snapshots)?;
        let since = before.clone().map(Box::new);
        let after = workspace.take(Ask { since, ..self.ask(reason) })?;
        let Some(before) = before else { return Ok(()) };
        if before.tree == after.tree {
            // Nothing was changed: there is no stretch to remember.
            workspace.forget(&before)?;
            if reason == Reason::AfterRun {
                workspace.forget(&after)?;
            }
            return Ok(());
        }
        match runs.touched(self.session).uncertain(&workspace, &before, &after)? {
            uncertain if uncertain.is_empty() => Ok(()),
            uncertain => workspace.change(Info { uncertain, ..after }),
        }
    }
}

impl Calls {
    fn add(&mut self, touch: &Touch) {
        match touch {
            Touch::File(path) => drop(self.files.insert(path.clone())),
            Touch::Anything => self.anything = true,
        }
    }

    /// Whether a file was named. A directory comes with the file that is put into it.
    fn name(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        self.files.contains(path) || self.files.iter().any(|touched| touched.starts_with(&inside))
    }
}

impl Touched {
    /// The changes that no call accounts for, or that a call of another session may have made.
    fn uncertain(
        &self,
        workspace: &Workspace,
        before: &Info,
        after: &Info,
    ) -> Result<Vec<PathText>, SnapshotError> {
        let Touched { own, others } = self;
        if own.anything && !others.anything && others.files.is_empty() {
            return Ok(Vec::new());
        }
        let (was, is): (Tree, Tree) = (workspace.tree(before)?, workspace.tree(after)?);
        let may_be_own = |path: &[u8]| own.name(path) || (own.anything && !others.anything);
        let uncertain = was.differing(&is).into_iter().filter(|path| others.name(path) || !may_be_own(path));
        Ok(uncertain.take(UNCERTAIN_MAX).cloned().map(PathText).collect())
    }
}
