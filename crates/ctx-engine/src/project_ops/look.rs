//! Looking at the files of projects, and keeping in each project's log how they last were right.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use ctx_journal::lock;
use ctx_session::Name;
use ctx_session::project::{Entry, ProjectCommand, ProjectRead};

use crate::port::{Look, ProjectFile};
use crate::projects::standing;
use crate::shared::Inner;

impl Inner {
    /// Looks at the files of every project, and shows their agents. Blocking.
    pub(crate) fn look_at_projects(&self) {
        let looking = lock(&self.projects.looking);
        self.look_while(&looking);
    }

    /// The same, unless someone is at it already: for those who come again anyway.
    pub(super) fn look_at_projects_if_free(&self) {
        if let Ok(looking) = self.projects.looking.try_lock() {
            self.look_while(&looking);
        }
    }

    /// Looks at one project, whatever another's directory does, and at all of them only if it is not as it last was: what
    /// it says now may concern the others. Blocking.
    pub(super) fn look_at_project(&self, slug: &Name) {
        if !self.is_as_it_was(slug) {
            self.look_at_projects();
        }
    }

    fn is_as_it_was(&self, slug: &Name) -> bool {
        // One that is not registered is not looked at.
        let Some(standing) = self.standing(slug) else { return true };
        // What is wrong with it may be another project's doing.
        let Ok(known) = standing.found else { return false };
        let files = &*self.projects.files;
        let look = self.look_at(slug, &standing.entry);
        let is_same =
            |now: Arc<ProjectFile>| now.hash == known.hash && now.snapshot_hash == known.snapshot_hash;
        look.found.is_ok_and(is_same) && standing::clash_with_root(&known, files).is_none()
    }

    /// Looks at the files of one project.
    pub(super) fn look_at(&self, slug: &Name, entry: &Entry) -> Look {
        standing::look(&*self.projects.files, slug, entry, self.whose(entry.owner), &mut None)
    }

    /// Whether control files of its own describe an agent.
    pub(super) fn is_described(&self, agent: &Name) -> bool {
        let _whole = lock(&self.projects.showing);
        self.projects.files.is_described(agent)
    }

    fn look_while(&self, _: &MutexGuard<'_, ()>) {
        let mut before: BTreeMap<Name, Arc<ProjectFile>> = lock(&self.projects.standings)
            .iter()
            .filter_map(|(slug, standing)| Some((slug.clone(), standing.last.clone()?)))
            .collect();
        let registered = self.registered();
        for (slug, _) in &registered {
            if let (false, Some(file)) = (before.contains_key(slug), self.last_read(slug)) {
                before.insert(slug.clone(), file);
            }
        }
        let files = &*self.projects.files;
        let now = standing::look_at_all(registered, &before, files, |owner| self.whose(owner));
        let shown = standing::shown(&now, |uid| self.owner_of_uid(uid));
        {
            let _whole = lock(&self.projects.showing);
            files.show(&shown);
        }
        for (slug, standing) in &now {
            if let Ok(file) = &standing.found
                && file.plain.is_none()
            {
                self.keep_read(slug, file);
            }
        }
        *lock(&self.projects.standings) = now;
    }

    /// A project's files as they last were right, from its log: what an earlier daemon knew.
    fn last_read(&self, slug: &Name) -> Option<Arc<ProjectFile>> {
        let log = self.project_log(slug).ok()?;
        let read = log.with(|project| project.last.clone())?;
        let kept = log.get_blob(&read.dsl_snapshot).inspect_err(|refusal| {
            tracing::warn!(project = %slug, %refusal, "how the project last was right cannot be read");
        });
        self.projects.files.of_snapshot(kept.ok()?.into(), &read).map(Arc::new)
    }

    /// Keeps a project's files, so that a later daemon knows how they last were right.
    fn keep_read(&self, slug: &Name, file: &ProjectFile) {
        let read = ProjectRead { dsl_hash: file.hash.clone(), dsl_snapshot: file.snapshot_hash.clone() };
        let kept = self.project_log(slug).and_then(|log| {
            if log.with(|project| project.last.as_ref() == Some(&read)) {
                return Ok(());
            }
            log.put_blob(&file.snapshot)?;
            let command = ProjectCommand::Read(read);
            self.perform_project(&log, self.fresh.now(), |project| project.decide(&command)).map(drop)
        });
        if let Err(refusal) = kept {
            tracing::warn!(project = %slug, %refusal, "how the project is now is not kept; it is tried again");
        }
    }

    /// Looks at one project for its limits, which hold as its file is now.
    pub(super) fn look_at_limits(&self, slug: &Name) {
        let Some(entry) = self.standing(slug).map(|standing| standing.entry) else { return };
        let look = self.look_at(slug, &entry);
        if let (Ok(file), Some(standing)) = (look.found, lock(&self.projects.standings).get_mut(slug)) {
            standing.running_per_project = file.running_per_project;
        }
    }
}
