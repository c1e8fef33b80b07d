//! The steps of a restore, done one by one: what others changed meanwhile is kept, and so is what cannot be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::io::Errno;

use super::SnapshotError;
use super::files::{Files, Stat};
use super::plan::{Opened, Plan, Step};
use super::tree::{Node, RelPath, parents, shown};
use ctx_cage::rights::RightsError;

/// The paths that cannot be changed, and why.
pub(super) type Refused = BTreeMap<RelPath, String>;

pub(super) fn at(path: &[u8]) -> impl FnOnce(io::Error) -> SnapshotError {
    SnapshotError::io(if path.is_empty() { "the workspace".to_owned() } else { shown(path) })
}

const MEANWHILE: &str = "it was changed while files were restored";

pub(super) struct Doing<'a> {
    files: &'a dyn Files,
    /// What stays as it is, and why.
    pub kept: Refused,
    /// The files by device and inode that have lost a name here, which changes their time of change.
    unlinked: BTreeSet<(u64, u64)>,
}

impl<'a> Doing<'a> {
    pub(super) fn new(files: &'a dyn Files, refused: Refused) -> Doing<'a> {
        Doing { files, kept: refused, unlinked: BTreeSet::new() }
    }

    fn is_kept(&self, step: &Step) -> bool {
        self.kept.contains_key(&step.path)
    }

    pub(super) fn all(
        &mut self,
        plan: &Plan,
        staged: &BTreeMap<RelPath, RelPath>,
        opened: &[Opened],
    ) -> Result<(), SnapshotError> {
        for step in plan.steps.iter().rev().filter(|step| step.removes()) {
            let is_dir = step.before.as_ref().is_some_and(Node::is_dir);
            if !self.is_kept(step) && (is_dir || self.is_as_planned(step)?) {
                let removed = self.files.remove(&step.path, is_dir);
                self.done(step, removed)?;
            }
        }
        for step in &plan.steps {
            match &step.want {
                Some(Node::Dir { mode })
                    if !self.is_kept(step) && (step.removes() || step.before.is_none()) =>
                {
                    let made = self.files.make_dir(&step.path, mode | 0o700);
                    self.done(step, made)?;
                }
                _ => {}
            }
        }
        for step in &plan.steps {
            let Some(temp) = staged.get(&step.path) else { continue };
            if !self.is_kept(step) && (step.removes() || self.is_as_planned(step)?) {
                let put = self.files.rename(temp, &step.path);
                self.done(step, put)?;
            }
            if self.is_kept(step) {
                remove_temp(self.files, temp)?;
            }
        }
        let wanted =
            plan.steps.iter().filter(|step| !self.is_kept(step)).filter_map(|step| match &step.want {
                Some(Node::Dir { mode }) => Some((step.path.as_slice(), *mode)),
                _ => None,
            });
        let closed = opened.iter().filter_map(|opened| Some((opened.path.0.as_slice(), opened.after?)));
        let modes: BTreeMap<&[u8], u32> = closed.chain(wanted).collect();
        for (dir, mode) in modes.into_iter().rev() {
            match self.files.set_mode(dir, mode) {
                Err(error) if is_someone_else(&error) => {}
                // One that was opened only is as it was.
                Err(error) if is_refused(&error) => {
                    if plan.steps.iter().any(|step| step.path == dir) {
                        self.kept.insert(dir.to_vec(), cannot(&error));
                    }
                }
                set => set.map_err(at(dir))?,
            }
        }
        Ok(())
    }

    /// Whether at a path is still what was saved; if not, it is kept.
    fn is_as_planned(&mut self, step: &Step) -> Result<bool, SnapshotError> {
        let now: Option<Stat> = match self.files.look(&step.path) {
            Err(error) if is_refused(&error) => {
                self.kept.insert(step.path.clone(), cannot(&error));
                return Ok(false);
            }
            found => found.map_err(at(&step.path))?.map(|found| found.stat),
        };
        let told = |stat: Stat| match self.unlinked.contains(&(stat.dev, stat.ino)) {
            true => Stat { ctime: 0, ..stat },
            false => stat,
        };
        let is = now.map(told) == step.stat.map(told);
        if !is {
            self.kept.insert(step.path.clone(), MEANWHILE.to_owned());
        }
        Ok(is)
    }

    /// What others did meanwhile is kept, and what cannot be changed; other errors end it here.
    fn done(&mut self, step: &Step, done: io::Result<()>) -> Result<(), SnapshotError> {
        match done {
            Ok(()) => {
                self.unlinked.extend(step.stat.map(|stat| (stat.dev, stat.ino)));
                Ok(())
            }
            Err(error) if is_someone_else(&error) => {
                // Its directory may be what was kept.
                let why = parents(&step.path).find_map(|dir| self.kept.get(dir)).cloned();
                self.kept.insert(step.path.clone(), why.unwrap_or_else(|| MEANWHILE.to_owned()));
                Ok(())
            }
            Err(error) if is_refused(&error) => {
                self.kept.insert(step.path.clone(), cannot(&error));
                Ok(())
            }
            Err(error) => Err(at(&step.path)(error)),
        }
    }
}

/// Whether an error says that something else is at a path than was found there.
pub(super) fn is_someone_else(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let kinds = [K::NotFound, K::NotADirectory, K::AlreadyExists, K::DirectoryNotEmpty, K::IsADirectory];
    kinds.contains(&error.kind()) || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Whether an error says that this one path cannot be changed: it is immutable, a mount point, in a directory that the user
/// may not write to, or too long.
pub(super) fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let kinds = [
        K::PermissionDenied,
        K::ResourceBusy,
        K::ReadOnlyFilesystem,
        K::ExecutableFileBusy,
        K::InvalidFilename,
    ];
    // Without the user's rights nothing at all can be changed.
    let no_rights = error.get_ref().is_some_and(|inner| inner.is::<RightsError>());
    kinds.contains(&error.kind()) && !no_rights
}

pub(super) fn cannot(error: &io::Error) -> String {
    format!("it cannot be changed: {}", error.kind())
}

pub(super) fn remove_temp(files: &dyn Files, temp: &[u8]) -> Result<(), SnapshotError> {
    match files.remove(temp, false) {
        Err(error) if is_someone_else(&error) || is_refused(&error) => Ok(()),
        removed => removed.map_err(at(temp)),
    }
}
