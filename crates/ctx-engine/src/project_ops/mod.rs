//! What is asked of projects and done with them: registering, moving and removing one, and who its agent is.
//!
//! Whether a project is ready follows from its files, which are looked at through [`crate::port::ProjectFiles`]. Who may
//! ask is checked here, what may be asked in [`ctx_session::project`].

mod glance;
pub(crate) mod here;
mod look;
mod trust;

use std::sync::Arc;

use ctx_journal::{Owner, lock};
use ctx_session::project::{
    DEFAULT_PROJECT, Entry, Project, ProjectAdded, ProjectBody, ProjectCommand, ProjectRecord, RegistryBody,
    check_slug, invalid,
};
use ctx_session::record::{SessionMeta, Workspace};
use ctx_session::request::RequestKey;
use ctx_session::rules::Dsl;
use ctx_session::{Code, Limits, Name, Refusal, StateName, Timestamp};

use crate::engine::Engine;
use crate::port::{ProjectFile, Whose};
use crate::projects::standing::Standing;
use crate::projects::{Described, LogChange, NewProject, ProjectLog, ProjectView};
use crate::request::Caller;
use crate::shared::Inner;

fn not_there(slug: &Name) -> Refusal {
    Refusal::new(Code::Enoent, format!("no project {slug}"))
}

impl Inner {
    /// Reads the registry. A log that cannot be read is told of and left out.
    pub(crate) fn load_projects(&self) {
        let slugs = crate::projects::log::slugs(&*self.journal)
            .inspect_err(|error| tracing::error!(%error, "the projects cannot be listed"))
            .unwrap_or_default();
        for slug in slugs {
            let read = self
                .project_log(&slug)
                .and_then(|log| log.read().map_err(|error| crate::core::journal_refusal(&error)));
            if let Err(refusal) = read {
                tracing::error!(project = %slug, %refusal, "a project's log cannot be read");
            }
        }
        self.look_at_projects();
    }

    /// The log of a project, whether it is registered or not.
    pub(crate) fn project_log(&self, slug: &Name) -> Result<Arc<ProjectLog>, Refusal> {
        let mut logs = lock(&self.projects.logs);
        if let Some(log) = logs.get(slug) {
            return Ok(log.clone());
        }
        let owner = Owner::user(self.daemon_uid, self.daemon_gid);
        let first = (slug.as_str() == DEFAULT_PROJECT).then(|| {
            ProjectBody::Registry(RegistryBody::Added(ProjectAdded {
                project: slug.clone(),
                directory: self.projects.workspace.clone().unwrap_or_default(),
                owner: self.daemon_uid,
                by: self.daemon_uid,
                plain: false,
            }))
        });
        let log = Arc::new(ProjectLog::new(self.journal.clone(), slug.clone(), owner, first)?);
        logs.insert(slug.clone(), log.clone());
        Ok(log)
    }

    /// The one way a project changes: decide, append, apply, then tell the views and those who listen. Blocking.
    pub(crate) fn perform_project(
        &self,
        log: &ProjectLog,
        now: Timestamp,
        decide: impl FnOnce(&Project) -> Result<Vec<ProjectBody>, Refusal>,
    ) -> Result<Vec<ProjectRecord>, Refusal> {
        log.perform(now, decide, |project, change| match change {
            LogChange::Records(records) => {
                self.behind.project_committed(log.path(), project, records);
                self.tell_issues(project, records);
            }
            LogChange::Reopened => self.behind.project_reopened(log.path(), project),
        })
    }

    /// Every log there is.
    pub(crate) fn project_logs(&self) -> Vec<Arc<ProjectLog>> {
        lock(&self.projects.logs).values().cloned().collect()
    }

    fn whose(&self, owner: u32) -> Whose {
        if owner == self.daemon_uid { Whose::Daemon } else { Whose::User(self.owner_of_uid(owner)) }
    }

    fn registered(&self) -> Vec<(Name, Entry)> {
        let logs = self.project_logs();
        let entry = |log: Arc<ProjectLog>| {
            log.with(|project| Some((project.slug.clone(), project.registered()?.clone())))
        };
        let named = logs.into_iter().filter_map(entry);
        named.filter(|(slug, _)| slug.as_str() != DEFAULT_PROJECT).collect()
    }

    fn standing(&self, slug: &Name) -> Option<Standing> {
        lock(&self.projects.standings).get(slug).cloned()
    }

    /// The project whose primary has this name, if it is ready.
    fn ready_with(&self, agent: &Name) -> Option<(Name, Standing)> {
        let standings = lock(&self.projects.standings);
        let is_it = |standing: &Standing| standing.agent() == Some(agent) && standing.found.is_ok();
        let named = standings.iter().find(|(_, standing)| is_it(standing));
        named.map(|(slug, standing)| (slug.clone(), standing.clone()))
    }

    /// How a new session of this agent is described: by a project's file, or (None) by its own control files.
    /// Blocking.
    pub(crate) fn described(&self, caller: Caller, agent: &Name) -> Result<Option<Described>, Refusal> {
        match self.ready_with(agent) {
            Some((slug, _)) => self.look_at_project(&slug),
            // No project can have an agent of that name.
            None if self.is_described(agent) => return Ok(None),
            None => self.look_at_projects(),
        }
        let found = match self.ready_with(agent) {
            Some(found) => Some(found),
            // An agent that is shown for a project whose files are not right now.
            None => self
                .projects
                .files
                .shown_for(agent)
                .map(|slug| {
                    let standing = self.standing(&slug).ok_or_else(|| no_agent(agent))?;
                    Ok::<_, Refusal>((slug, standing))
                })
                .transpose()?,
        };
        let Some((slug, standing)) = found else { return Ok(None) };
        // Nobody works by what someone else wrote, the daemon's owner least of all: their rights would be the prize.
        if caller.uid != standing.entry.owner {
            return Err(no_agent(agent));
        }
        let file = standing.found.map_err(|problems| invalid(slug.as_str(), &problems))?;
        let directory = standing.entry.directory;
        if let Some(plain) = &file.plain {
            let described_by = Some(plain.described_by.clone());
            return Ok(Some(Described::Plain(Workspace { directory, read_only: false, described_by })));
        }
        let log = self.project_log(&slug)?;
        trust::check(&log, caller, &slug, &file)?;
        let dsl = Dsl { hash: file.hash.clone(), snapshot: file.snapshot_hash.clone() };
        Ok(Some(Described::File { dsl, snapshot: file.snapshot.clone(), directory, log }))
    }

    /// The project's files as a session keeps them, if its owner agreed to them. Blocking.
    pub(crate) fn snapshot_of(&self, meta: &SessionMeta) -> Result<Option<Arc<[u8]>>, Refusal> {
        let Some(hash) = &meta.dsl_snapshot else { return Ok(None) };
        self.look_at_limits(&meta.project);
        let log = self.project_log(&meta.project)?;
        let snapshot: Arc<[u8]> = log.get_blob(hash)?.into();
        trust::check_kept(&log, meta, &snapshot, self.projects.files.as_ref())?;
        Ok(Some(snapshot))
    }

    /// The limits that hold for a run of this project.
    pub(crate) fn limits_of(&self, project: &Name) -> Limits {
        let own = self.standing(project).and_then(|standing| standing.running_per_project);
        let limits = (*self.limits).clone();
        Limits { running_per_project: own.unwrap_or(limits.running_per_project), ..limits }
    }

    fn sees(&self, caller: Caller, owner: u32) -> bool {
        caller.uid == owner || caller.uid == self.daemon_uid
    }

    fn view(&self, caller: Caller, slug: &Name) -> Result<ProjectView, Refusal> {
        if slug.as_str() == DEFAULT_PROJECT {
            return Ok(self.default_view());
        }
        let standing = self.standing(slug).filter(|standing| self.sees(caller, standing.entry.owner));
        standing.map(|standing| self.view_of(slug, &standing)).ok_or_else(|| not_there(slug))
    }

    /// The project that is always there.
    fn default_view(&self) -> ProjectView {
        #[expect(clippy::expect_used, reason = "the word is a constant of ours and a good name")]
        let slug = Name::new(DEFAULT_PROJECT).expect("`default` is a name");
        ProjectView {
            slug,
            owner: self.daemon_uid,
            directory: self.projects.workspace.clone().unwrap_or_default(),
            added_at: self.started_at,
            updated_at: self.started_at,
            agent: None,
            dsl: None,
            problems: Vec::new(),
            grants: Vec::new(),
            trusted: true,
        }
    }

    fn view_of(&self, slug: &Name, standing: &Standing) -> ProjectView {
        let dsl = |file: &Arc<ProjectFile>| {
            let dsl = || Dsl { hash: file.hash.clone(), snapshot: file.snapshot_hash.clone() };
            file.plain.is_none().then(dsl)
        };
        let file = standing.found.as_ref().ok();
        let log = self.project_log(slug).ok();
        let trusts = |file: &Arc<ProjectFile>| {
            log.is_some_and(|log| log.with(|project| project.trusts(standing.entry.owner, &file.hash)))
        };
        ProjectView {
            slug: slug.clone(),
            owner: standing.entry.owner,
            directory: standing.entry.directory.clone(),
            added_at: standing.entry.added_at,
            updated_at: standing.entry.updated_at,
            agent: standing.agent().cloned(),
            dsl: file.and_then(dsl),
            problems: standing.found.as_ref().err().cloned().unwrap_or_default(),
            grants: file.map(|file| file.grants.clone()).unwrap_or_default(),
            trusted: file.is_some_and(|file| file.grants.is_empty() || trusts(file)),
        }
    }

    /// The project that a request with this key has registered, if it still is.
    fn added_by(&self, key: &RequestKey) -> Result<Option<Name>, Refusal> {
        for log in self.project_logs() {
            let found = log.with(|project| {
                let is_it = project.requests.find(key)?.is_some_and(|done| done.issue_id.is_none());
                Ok(project.registered().filter(|_| is_it).map(|_| project.slug.clone()))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn add(&self, caller: Caller, new: &NewProject) -> Result<ProjectView, Refusal> {
        if let Some(slug) = new.key.as_ref().map_or(Ok(None), |key| self.added_by(key))? {
            self.look_at_projects();
            return self.view(caller, &slug);
        }
        let directory = self.projects.files.directory(&new.directory, self.whose(caller.uid))?;
        let look = self.projects.files.look(&directory, self.whose(caller.uid));
        if !look.is_there {
            let message = format!("no project file in {directory}; `ctx project init` writes one");
            return Err(Refusal::invalid("directory", message));
        }
        let slug = new.slug.clone().or(look.slug).or_else(|| slug_of_directory(&directory));
        let slug = slug.ok_or_else(|| Refusal::invalid("id", "the project needs a name; pass an id"))?;
        check_slug(&slug)?;
        self.refuse_taken(caller, &directory, &slug)?;
        let log = self.project_log(&slug)?;
        if log.with(|project| {
            project.registered().is_some_and(|entry| is_same_plain(entry, caller, &directory))
        }) {
            // It was a project before it had a file.
            self.look_at_projects();
            return self.view(caller, &slug);
        }
        let command = ProjectCommand::Add { directory, owner: caller.uid, by: caller.uid, plain: false };
        self.perform_project(&log, self.fresh.now(), |project| {
            let records = project.decide(&command)?;
            Ok(match &new.key {
                Some(key) => Project::requested(key, records),
                None => records,
            })
        })?;
        self.look_at_projects();
        self.view(caller, &slug)
    }

    /// A directory is one project.
    fn refuse_taken(&self, caller: Caller, directory: &str, slug: &Name) -> Result<(), Refusal> {
        let taken = self.registered().into_iter().find(|(other, entry)| {
            // A file may call a directory otherwise than it was called without one.
            let is_fixed = !entry.plain;
            entry.directory == directory && other != slug && is_fixed && self.sees(caller, entry.owner)
        });
        match taken {
            None => Ok(()),
            Some((other, _)) => Err(Refusal::new(
                Code::Eexist,
                format!("{directory} is already registered as project {other}"),
            )),
        }
    }

    /// The log of a project that the caller may change.
    fn own_log(&self, caller: Caller, slug: &Name) -> Result<Arc<ProjectLog>, Refusal> {
        if slug.as_str() == DEFAULT_PROJECT {
            let message =
                "the project `default` belongs to the daemon: `ctx serve --workspace DIR` sets its directory";
            return Err(Refusal::new(Code::Eacces, message));
        }
        self.view(caller, slug)?;
        self.project_log(slug)
    }

    fn relocate(&self, caller: Caller, slug: &Name, directory: &str) -> Result<ProjectView, Refusal> {
        let log = self.own_log(caller, slug)?;
        let owner = self.view(caller, slug)?.owner;
        let directory = self.projects.files.directory(directory, self.whose(owner))?;
        self.refuse_taken(caller, &directory, slug)?;
        let command = ProjectCommand::Relocate { directory, by: caller.uid };
        self.perform_project(&log, self.fresh.now(), |project| project.decide(&command))?;
        self.look_at_projects();
        self.view(caller, slug)
    }

    fn remove(&self, caller: Caller, slug: &Name) -> Result<(), Refusal> {
        let log = self.own_log(caller, slug)?;
        let is_busy = |state: StateName| state != StateName::Idle && !state.is_over();
        let of_project =
            self.registry.select(|summary| summary.meta.project == *slug && is_busy(summary.state));
        let command = ProjectCommand::Remove { by: caller.uid, busy: of_project.len() };
        self.perform_project(&log, self.fresh.now(), |project| project.decide(&command))?;
        self.look_at_projects();
        Ok(())
    }
}

fn no_agent(agent: &Name) -> Refusal {
    // As of one that was never there: whose it is must not be told by the words.
    let message = format!("no agent `{agent}`: agent/{agent}.d does not exist");
    Refusal::new(Code::Enoent, message).blaming("agent")
}

/// What a directory is called, as far as that can be a name.
fn slug_of_directory(directory: &str) -> Option<Name> {
    let last = directory.rsplit('/').next()?;
    Name::new(last.trim_start_matches('.')).ok()
}

fn is_same_plain(entry: &Entry, caller: Caller, directory: &str) -> bool {
    entry.plain && entry.owner == caller.uid && entry.directory == directory
}

/// Project files are on the disk: every question is asked off the async threads.
impl Engine {
    async fn of_projects<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let inner = self.inner.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&inner)).await;
        asked.unwrap_or_else(|error| Err(Refusal::new(Code::Eio, format!("asking a project broke: {error}"))))
    }

    /// The projects that the caller may see, by slug; `default` is always among them.
    pub async fn projects(&self, caller: Caller) -> Result<Vec<ProjectView>, Refusal> {
        self.of_projects(move |inner| {
            inner.look_at_projects();
            let standings = lock(&inner.projects.standings).clone();
            let own = standings.iter().filter(|(_, standing)| inner.sees(caller, standing.entry.owner));
            let mut views: Vec<ProjectView> =
                own.map(|(slug, standing)| inner.view_of(slug, standing)).collect();
            views.push(inner.default_view());
            views.sort_by(|a, b| a.slug.cmp(&b.slug));
            Ok(views)
        })
        .await
    }

    /// A project as it is now; others' do not exist.
    pub async fn project(&self, caller: Caller, slug: &Name) -> Result<ProjectView, Refusal> {
        let slug = slug.clone();
        self.of_projects(move |inner| {
            inner.look_at_project(&slug);
            inner.view(caller, &slug)
        })
        .await
    }

    /// Registers a project. It may be invalid: then it says so, and refuses sessions until it is put right.
    pub async fn add_project(&self, caller: Caller, new: NewProject) -> Result<ProjectView, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        self.of_projects(move |inner| inner.add(caller, &new)).await
    }

    /// Says where a project is now.
    pub async fn move_project(
        &self,
        caller: Caller,
        slug: &Name,
        directory: String,
    ) -> Result<ProjectView, Refusal> {
        let slug = slug.clone();
        self.of_projects(move |inner| inner.relocate(caller, &slug, &directory)).await
    }

    /// Takes a project out of the registry. Its directory, its log and its sessions stay.
    pub async fn remove_project(&self, caller: Caller, slug: &Name) -> Result<(), Refusal> {
        let slug = slug.clone();
        self.of_projects(move |inner| inner.remove(caller, &slug)).await
    }

    /// The log of a project that the caller may see, `default` included: for what a project keeps besides its entry.
    /// The log's own methods block.
    pub async fn project_log(&self, caller: Caller, slug: &Name) -> Result<Arc<ProjectLog>, Refusal> {
        let slug = slug.clone();
        self.of_projects(move |inner| {
            inner.view(caller, &slug)?;
            inner.project_log(&slug)
        })
        .await
    }

    /// Refuses a project that is not there for the caller and of which they have no session: one that was removed keeps
    /// its sessions. Its files are not looked at.
    pub fn has_sessions_of(&self, caller: Caller, slug: &Name) -> Result<(), Refusal> {
        let registered = self.inner.view(caller, slug).is_ok();
        if registered || !self.list(caller, |summary| summary.meta.project == *slug).is_empty() {
            return Ok(());
        }
        Err(not_there(slug))
    }

    /// Whether the caller may see an agent: one of someone else's project does not exist for them.
    pub fn sees_agent(&self, caller: Caller, agent: &str) -> bool {
        let standings = lock(&self.inner.projects.standings);
        let hidden = standings.values().any(|standing| {
            standing.agent().is_some_and(|own| own.as_str() == agent)
                && !self.inner.sees(caller, standing.entry.owner)
        });
        !hidden
    }

    /// Whose project an agent is of: they alone may address it. None: it is no project's, and everyone may.
    pub fn owner_of_agent(&self, agent: &Name) -> Option<Owner> {
        let standings = lock(&self.inner.projects.standings);
        let found = standings.values().find(|standing| standing.agent() == Some(agent));
        let owner = found.map(|standing| standing.entry.owner);
        drop(standings);
        // One that is shown for a project which is not there is nobody's.
        let of_nobody = || self.inner.projects.files.shown_for(agent).map(|_| self.inner.daemon_uid);
        owner.or_else(of_nobody).map(|uid| self.inner.owner_of_uid(uid))
    }

    /// Looks at the files of every project, and shows their agents as they are now, unless that is being done.
    pub async fn look_at_projects(&self) -> Result<(), Refusal> {
        self.of_projects(|inner| {
            inner.look_at_projects_if_free();
            Ok(())
        })
        .await
    }
}
