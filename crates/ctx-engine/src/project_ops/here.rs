//! The project of a client's directory: the nearest one with a project file, else the git work tree, else the directory
//! itself. One that nobody has used becomes a project when it is first asked for.

use std::path::Path;

use ctx_session::project::{DEFAULT_PROJECT, ProjectCommand, check_slug};
use ctx_session::record::Workspace;
use ctx_session::{Code, Name, Refusal};

use super::{invalid, is_same_plain};
use crate::engine::Engine;
use crate::port::{By, Here, Never, Place, ProjectDir};
use crate::projects::{Described, HereView, ProjectView};
use crate::request::Caller;
use crate::shared::Inner;

/// The longest slug that leaves room for a number.
const SLUG_MAX: usize = 58;

/// Where a new session begins.
#[derive(Debug, Clone)]
pub(crate) enum Begin {
    /// Its client has named no directory.
    Anywhere,
    /// In this directory of its client.
    In(String),
    /// As an earlier session did.
    As { dir: Option<String>, workspace: Option<Workspace> },
}

impl Inner {
    /// Where a new session of an agent works. Blocking.
    pub(crate) fn place(
        &self,
        caller: Caller,
        begin: Begin,
        described: Option<&Described>,
    ) -> Result<Place, Refusal> {
        let own = match described {
            Some(Described::Plain(workspace)) => Some(workspace.clone()),
            Some(Described::File { .. }) | None => None,
        };
        match begin {
            Begin::Anywhere => Ok(Place { workspace: own, ..Place::default() }),
            Begin::As { dir, workspace } => {
                let kept = workspace.filter(|_| described.is_none());
                Ok(Place { workspace: own.or(kept), offered: None, dir })
            }
            Begin::In(dir) => {
                let here = self.projects.files.here(&dir, self.whose(caller.uid))?;
                if let Some(described) = described
                    && !Path::new(&here.dir).starts_with(described.directory())
                {
                    let message =
                        format!("{} is not in the project's directory {}", here.dir, described.directory());
                    return Err(Refusal::invalid("dir", message));
                }
                let offered = match (&here.project, described) {
                    // What is in these is nobody's to look through.
                    (Err(Never::Top | Never::CtxRoot), _) | (_, Some(_)) | (Ok(_), None) => None,
                    (Err(Never::Home), None) => {
                        let directory = here.dir.clone();
                        Some(Workspace { directory, read_only: true, described_by: None })
                    }
                };
                Ok(Place { workspace: own, offered, dir: Some(here.dir) })
            }
        }
    }

    fn project_of(&self, caller: Caller, dir: &str) -> Result<HereView, Refusal> {
        let here = self.projects.files.here(dir, self.whose(caller.uid))?;
        let project = match &here.project {
            Err(never) => {
                let warnings = vec![self.never(&here, *never)];
                return Ok(HereView { project: self.default_view(), warnings });
            }
            Ok(project) if project.is_of_default(&here.dir, self.projects.workspace.as_deref()) => {
                self.default_view()
            }
            Ok(project) => {
                let _one = ctx_journal::lock(&self.projects.placing);
                match self.registered_at(caller, project) {
                    Some(slug) => {
                        self.look_at_project(&slug);
                        self.view(caller, &slug)?
                    }
                    None if project.by == By::File => self.add_found(caller, project)?,
                    None => self.add_plain(caller, &project.directory)?,
                }
            }
        };
        Ok(HereView { project, warnings: Vec::new() })
    }

    /// What is so with a session in a directory that is never a project.
    fn never(&self, here: &Here, never: Never) -> String {
        let what = match never {
            Never::Top => "/ is never a project".to_owned(),
            Never::Home => format!("{} is your home directory and never a project", here.dir),
            Never::CtxRoot => format!("{} is in ctx's own root and never a project", here.dir),
        };
        let holds = match (&self.projects.workspace, never) {
            (Some(workspace), _) => format!("the agent works in {workspace}, the --workspace of `ctx serve`"),
            (None, Never::Home) => "the agent can only read here".to_owned(),
            (None, Never::Top | Never::CtxRoot) => "the agent has no files to work on".to_owned(),
        };
        format!("{what}: {holds}; go to a directory of your work, or name one with --dir")
    }

    /// The project that a directory is registered as; one with a file comes before one without.
    fn registered_at(&self, caller: Caller, project: &ProjectDir) -> Option<Name> {
        let look = || self.projects.files.look(&project.directory, self.whose(caller.uid));
        let slug_now = (project.by == By::File).then(|| look().slug).flatten();
        let here = |entry: &ctx_session::project::Entry| {
            entry.directory == project.directory && entry.owner == caller.uid
        };
        let mut found: Vec<_> = self.registered().into_iter().filter(|(_, entry)| here(entry)).collect();
        // A file that calls the directory otherwise than it was called without one makes another project of it.
        found.retain(|(slug, entry)| !entry.plain || slug_now.as_ref().is_none_or(|now| now == slug));
        found.sort_by_key(|(_, entry)| entry.plain);
        found.into_iter().next().map(|(slug, _)| slug)
    }

    /// Registers a directory with a project file that nobody has registered.
    fn add_found(&self, caller: Caller, project: &ProjectDir) -> Result<ProjectView, Refusal> {
        let look = self.projects.files.look(&project.directory, self.whose(caller.uid));
        let Some(slug) = look.slug else {
            let problems = look.found.err().unwrap_or_default();
            return Err(invalid(&project.directory, &problems));
        };
        check_slug(&slug)?;
        self.register(caller, &slug, &project.directory, false).map_err(|refusal| match refusal.code {
            Code::Eexist => {
                let message = format!(
                    "the project file in {} has the name {slug}, which another directory has; change `project:` in it",
                    project.directory
                );
                Refusal::new(Code::Eexist, message)
            }
            _ => refusal,
        })?;
        self.view(caller, &slug)
    }

    /// Registers a directory without a project file, under a name that nothing else has.
    fn add_plain(&self, caller: Caller, directory: &str) -> Result<ProjectView, Refusal> {
        let directory = self.projects.files.directory(directory, self.whose(caller.uid))?;
        let base = slug_of(&directory);
        for number in 1u32.. {
            let text = if number == 1 { base.clone() } else { format!("{base}-{number}") };
            let Ok(slug) = Name::new(&text) else { break };
            if self.is_taken(caller, &slug, &directory)? {
                continue;
            }
            self.register(caller, &slug, &directory, true)?;
            return self.view(caller, &slug);
        }
        Err(Refusal::invalid("dir", format!("no project can be named after {directory}")))
    }

    /// Whether a project or an agent has a name already.
    fn is_taken(&self, caller: Caller, slug: &Name, directory: &str) -> Result<bool, Refusal> {
        if slug.as_str() == DEFAULT_PROJECT || self.is_described(slug) {
            return Ok(true);
        }
        let of_agent = |standing: &super::Standing| standing.agent() == Some(slug);
        if ctx_journal::lock(&self.projects.standings).values().any(of_agent) {
            return Ok(true);
        }
        Ok(self.project_log(slug)?.with(|project| {
            // One that was removed comes back under its name, also if a file described it: its sessions are found again.
            project.entry.as_ref().is_some_and(|entry| {
                let is_removed = entry.removed_at.is_some() && entry.owner == caller.uid;
                !(is_same_plain(entry, caller, directory) || is_removed && entry.directory == directory)
            })
        }))
    }

    fn register(&self, caller: Caller, slug: &Name, directory: &str, plain: bool) -> Result<(), Refusal> {
        let directory = self.projects.files.directory(directory, self.whose(caller.uid))?;
        let command = ProjectCommand::Add { directory, owner: caller.uid, by: caller.uid, plain };
        let log = self.project_log(slug)?;
        self.perform_project(&log, self.fresh.now(), |project| project.decide(&command))?;
        self.look_at_projects();
        Ok(())
    }
}

/// What a directory is called, with what a name may not hold replaced.
fn slug_of(directory: &str) -> String {
    let last = directory.rsplit('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let plain: String = last.chars().map(|c| if fits(c) { c } else { '-' }).take(SLUG_MAX).collect();
    let plain = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if Name::new(plain).is_ok() { plain.to_owned() } else { "project".to_owned() }
}

impl Engine {
    /// The project that a client's directory belongs to; it is one from now on.
    pub async fn project_of(&self, caller: Caller, dir: String) -> Result<HereView, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        self.of_projects(move |inner| inner.project_of(caller, &dir)).await
    }
}

#[cfg(test)]
mod tests {
    use super::slug_of;

    #[test]
    fn a_directory_gives_a_name_whatever_it_is_called() {
        for (directory, slug) in [
            ("/home/op/app", "app"),
            ("/home/op/.dotfiles", "dotfiles"),
            ("/srv/my app (old)", "my-app--old"),
            ("/srv/日本", "project"),
            ("/srv/x.sock", "project"),
            ("/srv/index", "index"),
        ] {
            assert_eq!(slug_of(directory), slug, "{directory}");
        }
        assert_eq!(slug_of(&format!("/srv/{}", "a".repeat(90))).len(), super::SLUG_MAX);
    }
}
