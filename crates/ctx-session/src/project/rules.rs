//! What may be done to a project in the registry, and what it writes.

use super::record::{ProjectAdded, ProjectBody, ProjectMoved, ProjectRead, ProjectRemoved, ProjectTrusted};
use super::{DEFAULT_PROJECT, Project};
use crate::code::{Code, Refusal};
use crate::name::Name;
use crate::project::RegistryBody;

/// What is asked of a project. The engine has checked the directory and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectCommand {
    Add {
        directory: String,
        owner: u32,
        by: u32,
        /// It may have no project file.
        plain: bool,
    },
    /// The directory was moved.
    Relocate { directory: String, by: u32 },
    /// The operator agrees to the project file with this hash.
    Trust { dsl_hash: String, by: u32 },
    /// Its files are right; the snapshot is stored already.
    Read(ProjectRead),
    Remove {
        by: u32,
        /// Sessions of it that run or wait in the queue.
        busy: usize,
    },
}

/// Whether a project may be registered under this slug.
pub fn check_slug(slug: &Name) -> Result<(), Refusal> {
    if slug.as_str() == DEFAULT_PROJECT {
        let message = "the project name `default` is reserved for the daemon; use another name";
        return Err(Refusal::new(Code::Eexist, message));
    }
    Ok(())
}

impl Project {
    /// Decides a command. A refusal writes nothing.
    pub fn decide(&self, command: &ProjectCommand) -> Result<Vec<ProjectBody>, Refusal> {
        match command {
            ProjectCommand::Add { directory, owner, by, plain } => self.add(directory, *owner, *by, *plain),
            ProjectCommand::Trust { dsl_hash, by } => self.trust(dsl_hash, *by),
            ProjectCommand::Relocate { directory, by } => self.relocate(directory, *by),
            ProjectCommand::Remove { by, busy } => self.remove(*by, *busy),
            ProjectCommand::Read(read) => Ok(self.read(read)),
        }
    }

    fn add(&self, directory: &str, owner: u32, by: u32, plain: bool) -> Result<Vec<ProjectBody>, Refusal> {
        match &self.entry {
            // What the log has besides, its issues, is for its owner's eyes; so is whether it is registered now.
            Some(entry) if entry.owner != owner => {
                let message = format!("the name {} is taken; give the project another id", self.slug);
                return Err(Refusal::new(Code::Eexist, message));
            }
            Some(entry) if entry.removed_at.is_none() => {
                let message = format!("the project {} is registered; `ctx project ls` shows it", self.slug);
                return Err(Refusal::new(Code::Eexist, message));
            }
            Some(_) | None => {}
        }
        let (project, directory) = (self.slug.clone(), directory.to_owned());
        let added = ProjectAdded { project, directory, owner, by, plain };
        Ok(vec![ProjectBody::Registry(RegistryBody::Added(added))])
    }

    fn read(&self, read: &ProjectRead) -> Vec<ProjectBody> {
        let is_new = self.registered().is_some() && self.last.as_ref() != Some(read);
        is_new.then(|| ProjectBody::Registry(RegistryBody::Read(read.clone()))).into_iter().collect()
    }

    fn trust(&self, dsl_hash: &str, by: u32) -> Result<Vec<ProjectBody>, Refusal> {
        match self.registered() {
            None => Err(self.not_there()),
            Some(_) if self.trusts(by, dsl_hash) => Ok(Vec::new()),
            Some(_) => {
                let trusted = ProjectTrusted { dsl_hash: dsl_hash.to_owned(), by };
                Ok(vec![ProjectBody::Registry(RegistryBody::Trusted(trusted))])
            }
        }
    }

    fn relocate(&self, directory: &str, by: u32) -> Result<Vec<ProjectBody>, Refusal> {
        match self.registered() {
            None => Err(self.not_there()),
            Some(entry) if entry.directory == directory => Ok(Vec::new()),
            Some(_) => Ok(vec![ProjectBody::Registry(RegistryBody::Moved(ProjectMoved {
                directory: directory.to_owned(),
                by,
            }))]),
        }
    }

    fn remove(&self, by: u32, busy: usize) -> Result<Vec<ProjectBody>, Refusal> {
        if self.registered().is_none() {
            return Err(self.not_there());
        }
        if busy > 0 {
            let message = match busy {
                1 => format!("1 session runs or waits in {}; cancel or end it first", self.slug),
                _ => format!("{busy} sessions run or wait in {}; cancel or end them first", self.slug),
            };
            return Err(Refusal::new(Code::Ebusy, message));
        }
        Ok(vec![ProjectBody::Registry(RegistryBody::Removed(ProjectRemoved { by }))])
    }

    fn not_there(&self) -> Refusal {
        Refusal::new(Code::Enoent, format!("no project {}", self.slug))
    }
}
