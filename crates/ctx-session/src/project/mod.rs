//! A project: a directory with a project file, registered under a slug. Its log holds the registry entry, and is the
//! place of its issues and todos.
//!
//! ```text
//! (none)     -> registered  add        registered -> registered  relocate
//! registered -> removed     remove     removed    -> registered  add, by the same owner
//! ```
//!
//! Whether a registered project is ready or invalid is not in its log: that follows from its file, each time it is
//! read. What the file last said while it was right is: a project that is invalid for now goes on as that. The rules are pure, like those of a session: [`Project::decide`] gives the records of a command,
//! [`Project::apply`] follows them.

mod issue;
mod issue_rules;
mod problem;
mod record;
mod rules;
mod settings;

pub use issue::{
    Criterion, Issue, IssueChanged, IssueClaimed, IssueCreated, Todo, TodoAdded, TodoChanged, TodoStatus, Who,
};
pub use issue_rules::{Change, IssueCommand, IssueGiven};
pub use problem::{Problem, invalid};
pub use record::{
    IssueBody, ProjectAdded, ProjectBody, ProjectMoved, ProjectRead, ProjectRecord, ProjectRemoved,
    ProjectTrusted, RegistryBody,
};
pub use rules::{ProjectCommand, check_slug};
pub use settings::{Compaction, Delegate, Strategy};

use std::collections::BTreeSet;

use crate::ids::IssueId;
use crate::name::Name;
use crate::request::{RequestKey, Requested, Requests};
use crate::time::Timestamp;

/// The project that every root has: the workspace of the daemon, with the agents that are described by `.d/` files.
pub const DEFAULT_PROJECT: &str = "default";

/// A project as its log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub slug: Name,
    /// None while no record has said what it is.
    pub entry: Option<Entry>,
    /// Its files as they last were right, since it was added.
    pub last: Option<ProjectRead>,
    /// The project files that someone agreed to, by hash and user.
    trusted: BTreeSet<(String, u32)>,
    /// In the order of their numbers.
    issues: Vec<Issue>,
    pub requests: Requests,
    /// The seq that the next record gets.
    pub next_seq: u64,
}

/// What the registry says of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// An absolute path.
    pub directory: String,
    pub owner: u32,
    pub added_at: Timestamp,
    pub updated_at: Timestamp,
    /// It may have no project file.
    pub plain: bool,
    /// None: it is registered.
    pub removed_at: Option<Timestamp>,
}

impl Project {
    /// One of which nothing is known yet.
    pub fn new(slug: Name) -> Project {
        Project {
            slug,
            entry: None,
            last: None,
            trusted: BTreeSet::new(),
            issues: Vec::new(),
            requests: Requests::default(),
            next_seq: 0,
        }
    }

    /// The entry, unless it was removed.
    pub fn registered(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|entry| entry.removed_at.is_none())
    }

    /// Whether this user has agreed to the project file with this hash. What a file grants (its allow rules, programs that
    /// it names, everything about cages) holds for them only then. This is the one place that answers it.
    pub fn trusts(&self, uid: u32, dsl_hash: &str) -> bool {
        self.trusted.contains(&(dsl_hash.to_owned(), uid))
    }

    /// Follows a record. Never fails: what does not fit is taken for what it says and nothing more.
    pub fn apply(&mut self, record: &ProjectRecord) {
        self.next_seq = record.seq + 1;
        match (&record.body, &mut self.entry) {
            (ProjectBody::Registry(RegistryBody::Read(read)), _) => self.last = Some(read.clone()),
            (ProjectBody::Registry(RegistryBody::Added(added)), _) => {
                self.last = None;
                self.entry = Some(Entry {
                    directory: added.directory.clone(),
                    owner: added.owner,
                    added_at: record.time,
                    updated_at: record.time,
                    plain: added.plain,
                    removed_at: None,
                });
            }
            (ProjectBody::Registry(RegistryBody::Moved(moved)), Some(entry)) => {
                entry.directory.clone_from(&moved.directory);
                entry.updated_at = record.time;
            }
            (ProjectBody::Registry(RegistryBody::Removed(_)), Some(entry)) => {
                entry.removed_at = Some(record.time);
                entry.updated_at = record.time;
            }
            (ProjectBody::Registry(RegistryBody::Moved(_) | RegistryBody::Removed(_)), None) => {}
            (ProjectBody::Issue(IssueBody::Created(created)), _) => {
                if self.issue(created.issue_id).is_none() {
                    self.issues.push(Issue::new(created, record.time));
                }
            }
            (ProjectBody::Issue(IssueBody::Changed(changed)), _) => {
                self.with_issue(changed.issue_id, |issue| issue.change(changed, record.time));
            }
            (ProjectBody::Issue(IssueBody::Claimed(claimed)), _) => {
                self.with_issue(claimed.issue_id, |issue| issue.session = Some(claimed.session_id));
            }
            (ProjectBody::Issue(IssueBody::TodoAdded(added)), _) => {
                self.with_issue(added.issue_id, |issue| issue.add_todo(added, record.time));
            }
            (ProjectBody::Registry(RegistryBody::Trusted(trusted)), _) => {
                self.trusted.insert((trusted.dsl_hash.clone(), trusted.by));
            }
            (ProjectBody::Registry(RegistryBody::Requested(requested)), _) => self.requests.add(requested),
            (ProjectBody::Issue(IssueBody::TodoChanged(changed)), _) => {
                self.with_issue(changed.issue_id, |issue| issue.change_todo(changed, record.time));
            }
        }
    }

    /// The records of a command whose request carries a key, and with them that it was done.
    pub fn requested(key: &RequestKey, mut records: Vec<ProjectBody>) -> Vec<ProjectBody> {
        if !records.is_empty() {
            let issue_id = records.iter().find_map(ProjectBody::issue);
            let (turn_id, checkpoint_id) = (None, None);
            let done = Requested { key: key.clone(), turn_id, checkpoint_id, issue_id };
            records.push(ProjectBody::Registry(RegistryBody::Requested(done)));
        }
        records
    }

    fn with_issue(&mut self, id: IssueId, change: impl FnOnce(&mut Issue)) {
        if let Some(issue) = self.issues.iter_mut().find(|issue| issue.id == id) {
            change(issue);
        }
    }

    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    pub fn issue(&self, id: IssueId) -> Option<&Issue> {
        self.issues.iter().find(|issue| issue.id == id)
    }
}
