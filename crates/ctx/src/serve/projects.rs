//! Projects on the disk of this machine: their files as the agents' crate reads them, in the engine's words.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ctx_agent::describe;
use ctx_agent::model::Models;
use ctx_agent::project::{self, Found, Looked, PROJECT_FILE, PlainAgent, Shown, Snapshot, Trust};
use ctx_cage::rights::{Rights, RightsError};
use ctx_engine::port::{Here, Look, Plain, ProjectFile, ProjectFiles, ShownAgent, Whose};
use ctx_engine::{Clock, SystemClock};
use ctx_journal::{access, lock};
use ctx_session::project::{Problem, ProjectRead};
use ctx_session::{Code, Limits, Name, Refusal};

use crate::here;

/// The projects that a root's registry names.
pub(super) struct Directories {
    root: PathBuf,
    limits: Arc<Limits>,
    models: Models,
    /// The last look at each directory.
    seen: Mutex<HashMap<Place, Seen>>,
    /// What the tree shows, so that it is written only when that changes.
    shown: Mutex<Option<Vec<ShownKey>>>,
}

/// Looks that are kept; with more, all are made anew.
const SEEN_MAX: usize = 1_000;

/// A directory, and whose files in it count.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    directory: String,
    trust: Trust,
}

/// A look, as it was made and in the engine's words.
#[derive(Clone)]
struct Seen {
    looked: Arc<Looked>,
    look: Look,
}

/// By what it is told whether the tree has to be written.
#[derive(PartialEq, Eq)]
struct ShownKey {
    project: Name,
    status: String,
    snapshot: Option<String>,
}

impl Directories {
    pub fn new(root: &Path, limits: Arc<Limits>) -> Directories {
        let models = Models::new(root, limits.clone());
        Directories { root: root.to_owned(), limits, models, seen: Mutex::default(), shown: Mutex::default() }
    }

    /// Writes what an agent's directory is to show; the agent's name.
    fn show_one(&self, agent: &ShownAgent) -> std::io::Result<Vec<Name>> {
        let described = agent.file.as_ref().filter(|file| file.plain.is_none());
        let snapshot = described.map(|file| (file, Snapshot::from_bytes(&file.snapshot)));
        if let Some(file) = agent.file.as_ref().filter(|file| file.plain.is_some()) {
            let plain: PlainAgent = serde_json::from_slice(&file.snapshot)?;
            self.show_agent(agent, &file.agent, |root, shown| {
                project::show_plain(root, shown, &plain, &agent.directory)
            })?;
            return Ok(vec![file.agent.clone()]);
        }
        let (names, snapshot) = match snapshot {
            Some((file, Ok(snapshot))) => (vec![file.agent.clone()], Some(snapshot)),
            Some((_, Err(error))) => return Err(std::io::Error::other(error)),
            None => {
                let all = describe::agents(&self.root)?;
                let own = |name: &Name| project::shown_for(&self.root, name).as_ref() == Some(&agent.project);
                (all.into_iter().filter(own).collect(), None)
            }
        };
        for name in &names {
            self.show_agent(agent, name, |root, shown| {
                project::show(root, &Shown { snapshot: snapshot.as_ref(), ..*shown })
            })?;
        }
        Ok(names)
    }

    fn show_agent(
        &self,
        agent: &ShownAgent,
        name: &Name,
        show: impl FnOnce(&Path, &Shown<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let shown = Shown {
            agent: name,
            project: &agent.project,
            owner: agent.owner.uid,
            let_read: &|fd, is_dir| {
                let kind = if is_dir { access::Kind::Dir } else { access::Kind::File };
                access::let_read(fd, kind, agent.owner)
            },
            status: &agent.status,
            snapshot: None,
        };
        show(&self.root, &shown)
    }

    fn show_all(&self, agents: &[ShownAgent]) -> std::io::Result<()> {
        let mut kept = Vec::new();
        for agent in agents {
            kept.extend(self.show_one(agent)?);
        }
        for name in describe::agents(&self.root)? {
            if !kept.contains(&name) {
                project::forget(&self.root, &name)?;
            }
        }
        Ok(())
    }
}

impl ProjectFiles for Directories {
    fn directory(&self, asked: &str, whose: Whose) -> Result<String, Refusal> {
        let no = |message: String| Refusal::invalid("directory", message);
        if !asked.starts_with('/') {
            return Err(no(format!("`{asked}` must be an absolute path")));
        }
        let look = || std::fs::canonicalize(asked).and_then(|path| Ok((std::fs::metadata(&path)?, path)));
        let found = rights(whose)?.act(look)?;
        let (data, path): (Metadata, PathBuf) = match (found, whose) {
            (Ok((data, path)), Whose::Daemon) => (data, path),
            (Ok((data, path)), Whose::User(user)) if data.uid() == user.uid => (data, path),
            // What the daemon can see and they cannot is not told.
            (_, Whose::User(_)) => return Err(no(format!("no directory {asked} that belongs to you"))),
            (Err(error), Whose::Daemon) => return Err(no(format!("{asked}: {error}"))),
        };
        if !data.is_dir() {
            return Err(no(format!("{asked} is not a directory")));
        }
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| no(format!("{asked} has a name that is not UTF-8 text; use another directory")))
    }

    fn here(&self, asked: &str, whose: Whose) -> Result<Here, Refusal> {
        let no = |message: String| Refusal::invalid("dir", message);
        if !asked.starts_with('/') {
            return Err(no(format!("`{asked}` must be an absolute path")));
        }
        let uid = match whose {
            Whose::Daemon => rustix::process::geteuid().as_raw(),
            Whose::User(user) => user.uid,
        };
        let (homes, root) =
            (here::homes_of(uid), self.root.canonicalize().unwrap_or_else(|_| self.root.clone()));
        rights(whose)?.act(|| {
            let path = std::fs::canonicalize(asked).map_err(|error| no(format!("{asked}: {error}")))?;
            if !path.is_dir() {
                return Err(no(format!("{asked} is not a directory")));
            }
            let Some(dir) = path.to_str().map(str::to_owned) else {
                return Err(no(format!("{asked} has a name that is not UTF-8 text; use another directory")));
            };
            Ok(Here { dir, project: here::locate(&path, uid, &homes, &root) })
        })?
    }

    fn plain(&self) -> Result<Arc<Plain>, Vec<Problem>> {
        let problem =
            |message: String| vec![Problem { file: "agent/coder.d".to_owned(), line: 0, column: 0, message }];
        let agent = PlainAgent::read(&self.root, &self.limits).map_err(|error| problem(error.to_string()))?;
        let shown = serde_json::to_vec(&agent).map_err(|error| problem(error.to_string()))?;
        Ok(Arc::new(Plain { hash: agent.hash(), described_by: agent.described_by, shown: shown.into() }))
    }

    fn look(&self, directory: &str, whose: Whose) -> Look {
        let path = Path::new(directory);
        let trust = match whose {
            Whose::Daemon => Trust::Anyone,
            Whose::User(user) => Trust::Owner(user.uid),
        };
        let place = Place { directory: directory.to_owned(), trust };
        // Nobody waits for a disk that does not answer: it is looked at without the lock.
        let last = lock(&self.seen).get(&place).cloned();
        let bytes_max = self.limits.control_file_bytes;
        let looked = rights(whose).and_then(|rights| {
            rights.act(|| match last.filter(|last| project::looked_like(path, &last.looked)) {
                Some(last) => Err(last.look),
                None => Ok(project::read_project(path, trust, bytes_max, SystemClock.now())),
            })
        });
        let looked = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(same)) => return same,
            Err(error) => return unseen(&error),
        };
        let look = Look {
            found: looked.found.as_ref().map(|found| Arc::new(in_words(found))).map_err(Clone::clone),
            slug: looked.slug.clone(),
            is_there: looked.is_there,
            lacks_file: looked.lacks_file,
        };
        let mut seen = lock(&self.seen);
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(place, Seen { looked: Arc::new(looked), look: look.clone() });
        look
    }

    fn of_snapshot(&self, snapshot: Arc<[u8]>, read: &ProjectRead) -> Option<ProjectFile> {
        let spec = Snapshot::from_bytes(&snapshot).ok()?.spec;
        let grants = project::grants(&spec);
        let nowhere =
            || Problem { file: PROJECT_FILE.to_owned(), line: 0, column: 0, message: String::new() };
        Some(ProjectFile {
            slug: spec.project,
            agent: spec.primary.name,
            model: spec.primary.model,
            slug_at: nowhere(),
            agent_at: nowhere(),
            model_at: nowhere(),
            hash: read.dsl_hash.clone(),
            snapshot,
            snapshot_hash: read.dsl_snapshot.clone(),
            running_per_project: spec.limits.running_per_project,
            grants,
            plain: None,
        })
    }

    fn is_described(&self, agent: &Name) -> bool {
        let dir = self.root.join(describe::control_dir(agent));
        dir.is_dir() && project::shown_for(&self.root, agent).is_none()
    }

    fn lacks_model(&self, model: &str) -> Option<String> {
        self.models.resolve(model).err().map(|error| error.to_string())
    }

    fn shown_for(&self, agent: &Name) -> Option<Name> {
        project::shown_for(&self.root, agent)
    }

    fn show(&self, agents: &[ShownAgent]) {
        let key = |agent: &ShownAgent| ShownKey {
            project: agent.project.clone(),
            status: agent.status.clone(),
            snapshot: agent.file.as_ref().map(|file| file.snapshot_hash.clone()),
        };
        let keys: Vec<ShownKey> = agents.iter().map(key).collect();
        let mut shown = lock(&self.shown);
        if shown.as_ref() == Some(&keys) {
            return;
        }
        match self.show_all(agents) {
            Ok(()) => *shown = Some(keys),
            // Tried again at the next look.
            Err(error) => {
                tracing::warn!(%error, "the control files of projects' agents could not be written")
            }
        }
    }
}

/// The rights with which a project's files are opened.
fn rights(whose: Whose) -> Result<Rights, RightsError> {
    match whose {
        Whose::Daemon => Ok(Rights::own()),
        Whose::User(user) => Rights::of(user.uid),
    }
}

/// A project that could not be looked at.
fn unseen(error: &RightsError) -> Look {
    let problem = Problem { file: PROJECT_FILE.to_owned(), line: 0, column: 0, message: error.to_string() };
    Look { found: Err(vec![problem]), slug: None, is_there: false, lacks_file: false }
}

fn in_words(found: &Found) -> ProjectFile {
    let spec = &found.snapshot.spec;
    let at = |(line, column): (u64, u64)| Problem {
        file: PROJECT_FILE.to_owned(),
        line,
        column,
        message: String::new(),
    };
    ProjectFile {
        slug: spec.project.clone(),
        agent: spec.primary.name.clone(),
        model: spec.primary.model.clone(),
        slug_at: at(found.project_at.pair()),
        agent_at: at(found.agent_at.pair()),
        model_at: at(found.model_at.pair()),
        hash: found.file_hash.clone(),
        snapshot: found.bytes.clone(),
        snapshot_hash: found.hash.clone(),
        running_per_project: spec.limits.running_per_project,
        grants: project::grants(spec),
        plain: None,
    }
}

/// The snapshot that a session keeps.
pub(super) fn snapshot(bytes: &[u8]) -> Result<Snapshot, Refusal> {
    Snapshot::from_bytes(bytes).map_err(|error| {
        Refusal::new(Code::Eio, format!("the project file that this session keeps cannot be read: {error}"))
    })
}
