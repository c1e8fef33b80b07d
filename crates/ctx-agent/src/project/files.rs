//! A project's files on the disk: found beneath its directory, read whole, and put together as the snapshot that a
//! session keeps.
//!
//! The project file and every prompt are opened beneath the directory (`openat2`): a path or a link that leads out of
//! it is a problem, not a file. The directory was resolved when it was registered, so a link on the way to it is a problem
//! too. A prompt is looked for beside the project file, then from the project's directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ctx_session::project::{Delegate, Problem};
use ctx_session::{Name, Timestamp};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::parse::{Named, Parsed, PromptAt, parse_with_names, problem_at, slug_of};
use super::spec::ProjectSpec;
use super::yaml::At;
use super::{PROJECT_FILE, yaml};
use crate::sha256_hex;
use crate::view::open_without_links;

/// Files that were changed less than this before they were read may change again without showing it.
const SETTLED_MS: u64 = 2_000;

/// Whose files are taken for the project's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The daemon's owner decides for themselves.
    Anyone,
    /// Only this user's: the daemon can read more than they can.
    Owner(u32),
}

/// A project file and its prompts, as they were at one moment: what a session keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Where the project was.
    pub directory: String,
    /// The text of the project file.
    pub file: String,
    pub spec: ProjectSpec,
    /// The texts of the prompts, by their path as written.
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
    /// The owner of the project file, where it names a command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_by: Option<u32>,
}

/// A project whose files are right.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub snapshot: Snapshot,
    /// The snapshot as it is stored, and the SHA-256 of that.
    pub bytes: Arc<[u8]>,
    pub hash: String,
    /// The SHA-256 of the project file alone.
    pub file_hash: String,
    pub project_at: At,
    pub agent_at: At,
    pub model_at: At,
}

/// What a look at a project's directory gave.
#[derive(Debug)]
pub struct Looked {
    pub found: Result<Arc<Found>, Vec<Problem>>,
    /// What the file calls the project, even if it is wrong otherwise.
    pub slug: Option<Name>,
    /// What else it names, even if it is wrong otherwise.
    pub named: Named,
    /// Whether there is a project file at all.
    pub is_there: bool,
    /// Whether the directory is there and has no project file.
    pub lacks_file: bool,
    /// Every path that was tried.
    stamps: Vec<(String, Option<Stamp>)>,
    is_settled: bool,
}

/// By what a changed file is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }

    fn changed_ms(&self) -> u64 {
        u64::try_from(self.changed.0.saturating_mul(1_000) + self.changed.1 / 1_000_000).unwrap_or(0)
    }
}

impl Snapshot {
    /// The prompt of the primary.
    pub fn prompt(&self) -> &str {
        let path = self.spec.primary.prompt.as_deref();
        path.and_then(|path| self.prompts.get(path)).map_or("", String::as_str)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Snapshot, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// Reads a project's files, with the rights that the thread has. Blocks on the disk.
pub fn read_project(directory: &Path, trust: Trust, bytes_max: usize, now: Timestamp) -> Looked {
    let mut reading = Reading { trust, bytes_max, stamps: Vec::new(), unseen: false };
    let (mut slug, mut named) = (None, Named::default());
    let found = reading.project(directory, &mut slug, &mut named);
    let newest = reading.stamps.iter().filter_map(|(_, stamp)| stamp.map(|stamp| stamp.changed_ms())).max();
    let is_settled =
        !reading.unseen && newest.is_none_or(|newest| newest.saturating_add(SETTLED_MS) < now.as_millis());
    let is_there = reading.stamps.iter().any(|(path, stamp)| path == PROJECT_FILE && stamp.is_some());
    let lacks_file = reading.stamps.iter().any(|(path, stamp)| path == PROJECT_FILE && stamp.is_none());
    Looked {
        found: found.map(Arc::new),
        slug,
        named,
        is_there,
        lacks_file,
        stamps: reading.stamps,
        is_settled,
    }
}

/// Whether a look would give the same again, told without reading anything.
pub fn looked_like(directory: &Path, looked: &Looked) -> bool {
    let Ok(dir) = open_without_links(directory, OFlags::PATH | OFlags::DIRECTORY) else { return false };
    let same = |(path, stamp): &(String, Option<Stamp>)| {
        let opened = rustix::fs::openat2(
            &dir,
            path.as_str(),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            beneath(),
        );
        opened.and_then(rustix::fs::fstat).ok().map(|stat| Stamp::of(&stat)) == *stamp
    };
    looked.is_settled && looked.stamps.iter().all(same)
}

struct Reading {
    trust: Trust,
    bytes_max: usize,
    stamps: Vec<(String, Option<Stamp>)>,
    /// Something could not even be looked at: whether it has changed cannot be told without another look.
    unseen: bool,
}

/// Why a file's text cannot be had.
enum NoText {
    NotThere,
    Problem(At, String),
}

impl Reading {
    /// Reads the project file and its prompts. The prompts are read also where the file is wrong, so that one look reports the problems of both;
    /// `slug` and `named` are filled in either case.
    fn project(
        &mut self,
        directory: &Path,
        slug: &mut Option<Name>,
        named: &mut Named,
    ) -> Result<Found, Vec<Problem>> {
        let start = |message: String| vec![problem_at(At::START, message)];
        let dir = self.open_dir(directory).map_err(|message| {
            self.unseen = true;
            start(message)
        })?;
        let Some(place) = directory.to_str() else {
            return Err(start("the directory's name is not UTF-8; use another directory".to_owned()));
        };
        let (text, owner) = self.text(&dir, PROJECT_FILE).map_err(|error| match error {
            NoText::NotThere => start(format!("no {PROJECT_FILE} in {place}; `ctx project init` writes one, `ctx project rm` goes on without one")),
            NoText::Problem(at, message) => vec![problem_at(at, message)],
        })?;
        *slug = slug_of(&text);
        let parsed = parse_with_names(&text);
        *named = match &parsed {
            Ok(parsed) => parsed.named.clone(),
            Err((_, named)) => named.clone(),
        };
        let prompts = self.prompts(&dir, &named.prompts);
        let (Parsed { spec, project_at, agent_at, .. }, prompts) = match (parsed, prompts) {
            (Ok(parsed), Ok(prompts)) => (parsed, prompts),
            (parsed, prompts) => {
                let of_file = parsed.err().map(|(problems, _)| problems);
                return Err(in_order([of_file, prompts.err()].into_iter().flatten().flatten().collect()));
            }
        };
        let file_hash = sha256_hex(text.as_bytes());
        let has_command = matches!(spec.primary.compaction.delegate, Some(Delegate::Command(_)));
        let commands_by = has_command.then_some(owner);
        let snapshot = Snapshot { directory: place.to_owned(), file: text, spec, prompts, commands_by };
        let bytes = serde_json::to_vec(&snapshot)
            .map_err(|error| start(format!("the project cannot be written down: {error}")))?;
        let hash = sha256_hex(&bytes);
        let model_at = named.model.as_ref().map_or(project_at, |(_, at)| *at);
        Ok(Found { snapshot, bytes: bytes.into(), hash, file_hash, project_at, agent_at, model_at })
    }

    /// Opens the project's directory. The owner of the opened descriptor is checked and not that of the path, which may lead elsewhere by then.
    fn open_dir(&self, directory: &Path) -> Result<OwnedFd, String> {
        let shown = directory.display();
        let dir = open_without_links(directory, OFlags::PATH | OFlags::DIRECTORY).map_err(|error| match error {
            Errno::LOOP => format!(
                "there is a link on the way to the project's directory {shown}, which had none when it was registered; put the directory back, or register it where it is now"
            ),
            other => format!("the project's directory {shown} cannot be opened: {other}"),
        })?;
        let stat = rustix::fs::fstat(&dir).map_err(|error| format!("{shown}: {error}"))?;
        match self.trust {
            Trust::Owner(uid) if stat.st_uid != uid => {
                Err(format!("the project's directory {shown} does not belong to uid {uid}"))
            }
            Trust::Owner(_) | Trust::Anyone => Ok(dir),
        }
    }

    /// The texts of the prompts, or what is wrong with each.
    fn prompts(
        &mut self,
        dir: &OwnedFd,
        named: &[PromptAt],
    ) -> Result<BTreeMap<String, String>, Vec<Problem>> {
        let mut texts = BTreeMap::new();
        let mut problems = Vec::new();
        for PromptAt { path, at } in named {
            if texts.contains_key(path) {
                continue;
            }
            match self.prompt(dir, path) {
                Ok(text) => drop(texts.insert(path.clone(), text)),
                Err(message) => problems.push(problem_at(*at, message)),
            }
        }
        if problems.is_empty() { Ok(texts) } else { Err(problems) }
    }

    fn prompt(&mut self, dir: &OwnedFd, path: &str) -> Result<String, String> {
        for place in [format!(".ctx/{path}"), path.to_owned()] {
            match self.text(dir, &place) {
                Ok((text, _)) => return Ok(text),
                Err(NoText::NotThere) => {}
                Err(NoText::Problem(_, message)) => return Err(message),
            }
        }
        Err(format!("no prompt {path} in .ctx/ or in the project's directory"))
    }

    /// The text of a file, and whose it is.
    fn text(&mut self, dir: &OwnedFd, path: &str) -> Result<(String, u32), NoText> {
        let problem = |message: String| NoText::Problem(At::START, message);
        // Not blocking: a pipe in the place of a file must not hang the daemon.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat2(dir, path, flags, Mode::empty(), beneath()) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                self.stamps.push((path.to_owned(), None));
                return Err(NoText::NotThere);
            }
            Err(error) => {
                self.unseen = true;
                return Err(problem(match error {
                    Errno::XDEV | Errno::LOOP => {
                        format!("{path} is outside of the project's directory; move the file inside")
                    }
                    other => format!("{path} cannot be read: {other}"),
                }));
            }
        };
        let stat = rustix::fs::fstat(&opened).map_err(|error| problem(format!("{path}: {error}")))?;
        self.stamps.push((path.to_owned(), Some(Stamp::of(&stat))));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(problem(format!("{path} is not a regular file")));
        }
        match self.trust {
            Trust::Owner(uid) if stat.st_uid != uid => {
                return Err(problem(format!("{path} does not belong to uid {uid}")));
            }
            Trust::Owner(_) | Trust::Anyone => {}
        }
        let mut bytes = Vec::new();
        let max = self.bytes_max;
        let read = File::from(opened).take(max as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| problem(format!("{path} cannot be read: {error}")))?;
        if bytes.len() > max {
            return Err(problem(format!("{path} has more than {max} bytes; make it smaller")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = yaml::place_of(error.as_bytes(), error.utf8_error().valid_up_to());
            NoText::Problem(at, format!("{path} is not UTF-8 here; rewrite it"))
        })?;
        Ok((text, stat.st_uid))
    }
}

/// Problems of one file in the order of their places.
pub fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems
}

/// Links may be followed as long as they stay inside.
fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS
}
