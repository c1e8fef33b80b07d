//! An agent's view of the file system: its root and its mount table, and nothing else.
//!
//! Paths are walked one name at a time as the agent sees them. Each name is looked up by the kernel beneath the
//! directory it belongs to (`openat2` with `RESOLVE_IN_ROOT`, no links), and a link is followed inside the view, so
//! that neither `..` nor a link nor a race leads out of it. A cage later shows exactly the same.
//!
//! Everything is looked up and opened with the rights of the session's owner. So an error says no more of the machine than
//! that user could find out without us.

pub mod change;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use ctx_cage::rights::{Rights, RightsError};
use ctx_session::{Code, Refusal};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::control::mount::{Access, Links, Mount};

/// More links than this on one path is a circle, as for the kernel.
const LINKS_MAX: usize = 40;

/// A directory with more names than this is not listed: they are held in memory.
const ENTRIES_MAX: usize = 200_000;

/// What an agent sees.
#[derive(Debug)]
pub struct View {
    /// The mounts, and the root as the place with an empty target; the deepest target first.
    places: Vec<Place>,
    /// As whom it is looked at.
    rights: Rights,
}

/// A directory of the machine at its place in the view.
#[derive(Debug)]
struct Place {
    target: Vec<OsString>,
    source: PathBuf,
    dir: Result<OwnedFd, Closed>,
    access: Access,
}

/// Why a directory of a view shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// It is not there.
    Gone,
    /// The user may not pass.
    Denied,
    /// A link is in the place of a directory that had none on its path.
    Link,
}

/// A file or directory that was found in a view.
#[derive(Debug)]
pub struct Found {
    /// Its path as the agent sees it, without links, `.` and `..`.
    pub path: PathBuf,
    pub kind: FileType,
    pub access: Access,
    /// Which place it is in and its path there; None for a directory that only leads to a mount.
    inside: Option<(usize, PathBuf)>,
}

/// Why a path leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("{path} does not exist")]
    NotThere { path: String },
    #[error(
        "{path} does not exist: its mount source {source_path} is missing; create it or change the mount table"
    )]
    SourceGone { path: String, source_path: String },
    #[error(
        "{path} cannot be opened: there is a link on the way to its directory {source_path}, which had none when it was registered; put the directory back, or register the project where it is now"
    )]
    SourceIsLink { path: String, source_path: String },
    #[error("{path} is outside what this agent sees; use a path inside its mounts")]
    Outside { path: String },
    #[error("the session's owner may not read {path}; change its mode or owner")]
    Denied { path: String },
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error("{path} is not absolute; write it as the agent sees it, from / on")]
    NotAbsolute { path: String },
    #[error("{path} is not a directory")]
    NotADirectory { path: String },
    #[error("{path} has too many symlinks")]
    TooManyLinks { path: String },
    #[error("cannot look up {path}: {source}")]
    Io { path: String, source: std::io::Error },
}

impl ViewError {
    pub fn code(&self) -> Code {
        match self {
            ViewError::NotThere { .. } | ViewError::SourceGone { .. } => Code::Enoent,
            ViewError::Outside { .. }
            | ViewError::Denied { .. }
            | ViewError::SourceIsLink { .. }
            | ViewError::Rights(_) => Code::Eacces,
            ViewError::NotAbsolute { .. }
            | ViewError::NotADirectory { .. }
            | ViewError::TooManyLinks { .. } => Code::Einval,
            ViewError::Io { .. } => Code::Eio,
        }
    }
}

impl From<ViewError> for Refusal {
    fn from(error: ViewError) -> Refusal {
        Refusal::new(error.code(), error.to_string()).blaming("cwd")
    }
}

/// Where a path was left because nothing is there.
struct Lost {
    /// The name that is missing, with those before it; or the file below which there is nothing.
    at: Vec<OsString>,
    /// The names behind it.
    pending: VecDeque<OsString>,
    below_file: bool,
}

/// What the view has at a path.
enum Look {
    Missing,
    /// A directory that is nowhere on disk and only leads to a mount.
    Leads,
    There {
        place: usize,
        rel: PathBuf,
        fd: OwnedFd,
        kind: FileType,
    },
}

/// Checks a working directory: it must be a directory inside the view. Gives its path without links and dots.
pub fn resolve_cwd(view: &View, path: &str) -> Result<String, ViewError> {
    let shown = || path.to_owned();
    if !path.starts_with('/') {
        return Err(ViewError::NotAbsolute { path: shown() });
    }
    let found = view.find(Path::new("/"), Path::new(path))?;
    if found.kind != FileType::Directory {
        return Err(ViewError::NotADirectory { path: shown() });
    }
    // A context record is JSON, so a directory whose name is not text cannot be worked in.
    found.path.to_str().map(str::to_owned).ok_or_else(|| ViewError::NotThere { path: shown() })
}

impl View {
    /// Opens the directories of a view with a user's rights. One that is not there, or not theirs to see, shows as
    /// missing, it does not hide the others.
    pub fn open(root: &Path, mounts: &[Mount], rights: Rights) -> Result<View, ViewError> {
        let places = rights.act(|| open_places(root, mounts))??;
        Ok(View { places, rights })
    }

    /// Finds a path, relative ones from `cwd`.
    pub fn find(&self, cwd: &Path, path: &Path) -> Result<Found, ViewError> {
        // Why nothing is there is asked with the same rights, because the answer says what the machine has.
        self.rights.act(|| {
            let found = self.walk(cwd, path)?;
            found.map_err(|lost| self.missing(path, &cwd.join(path), &lost.at, &lost.pending))
        })?
    }

    /// Follows a path to its end, or to where nothing is.
    fn walk(&self, cwd: &Path, path: &Path) -> Result<Result<Found, Lost>, ViewError> {
        let full = cwd.join(path);
        let mut at: Vec<OsString> = Vec::new();
        let mut pending: VecDeque<OsString> = names(&full).collect();
        let mut links = 0;
        let mut last = self.look(&at, path)?;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                at.pop();
                last = self.look(&at, path)?;
                continue;
            }
            at.push(name);
            last = self.look(&at, path)?;
            match &last {
                Look::Missing => return Ok(Err(Lost { at, pending, below_file: false })),
                Look::Leads => {}
                Look::There { fd, kind: FileType::Symlink, .. } => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ViewError::TooManyLinks { path: show(path) });
                    }
                    let target = read_link(fd).map_err(|error| self.io(path, error))?;
                    at.pop();
                    if target.is_absolute() {
                        at.clear();
                    }
                    for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                        pending.push_front(name);
                    }
                    last = self.look(&at, path)?;
                }
                Look::There { kind: FileType::Directory, .. } => {}
                Look::There { .. } if pending.is_empty() => {}
                // Below a file there is nothing.
                Look::There { .. } => return Ok(Err(Lost { at, pending, below_file: true })),
            }
        }
        self.found(at, last, path).map(Ok)
    }

    /// What a directory has under one of the names that [`View::list`] gave, which is of this kind.
    pub fn child(&self, dir: &Found, name: &OsStr, kind: FileType) -> Result<Found, ViewError> {
        let path = dir.path.join(name);
        match (&dir.inside, kind) {
            (Some((place, rel)), FileType::RegularFile) => {
                Ok(Found { path, kind, access: dir.access, inside: Some((*place, rel.join(name))) })
            }
            // It may be a mount, or a place that is not to be looked into.
            _ => self.find(Path::new("/"), &path),
        }
    }

    /// What the kernel says of a file; None for a directory that only leads to a mount.
    pub fn stat(&self, found: &Found) -> Result<Option<rustix::fs::Stat>, ViewError> {
        if found.inside.is_none() {
            return Ok(None);
        }
        let stat = self
            .rights
            .act(|| self.reopen(found, OFlags::PATH | OFlags::NOFOLLOW).and_then(rustix::fs::fstat))?;
        stat.map(Some).map_err(|error| self.io(&found.path, error))
    }

    /// Where the mount that holds this begins: the project, for most agents.
    pub fn mount_of(&self, found: &Found) -> PathBuf {
        let place = found.inside.as_ref().and_then(|(place, _)| self.places.get(*place));
        place.map_or_else(|| found.path.clone(), |place| join(&place.target))
    }

    /// Opens a regular file for reading, without ever following a link or waiting for a pipe.
    pub fn open_file(&self, found: &Found) -> Result<File, ViewError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.rights.act(|| self.reopen(found, flags))?;
        opened.map(File::from).map_err(|error| self.io(&found.path, error))
    }

    /// The names in a directory, with what they are, in order; mounts below it included.
    pub fn list(&self, found: &Found) -> Result<Vec<(OsString, FileType)>, ViewError> {
        let io = |error: Errno| self.io(&found.path, error);
        let mut entries = Vec::new();
        if found.inside.is_some() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let dir = self.rights.act(|| self.reopen(found, flags))?.map_err(io)?;
            for entry in rustix::fs::Dir::new(dir).map_err(io)? {
                let entry = entry.map_err(io)?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
                if name != "." && name != ".." {
                    entries.push((name, entry.file_type()));
                }
                if entries.len() > ENTRIES_MAX {
                    return Err(io(Errno::FBIG));
                }
            }
        }
        let here: Vec<OsString> = names(&found.path).collect();
        for place in &self.places {
            if let Some(below) = below(&here, &place.target) {
                entries.retain(|(name, _)| name != below);
                entries.push((below.to_owned(), FileType::Directory));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn reopen(&self, found: &Found, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (place, rel) = found.inside.as_ref().ok_or(Errno::ISDIR)?;
        let dir = self.places.get(*place).and_then(|place| place.dir.as_ref().ok()).ok_or(Errno::NOENT)?;
        rustix::fs::openat2(dir, rel, flags | OFlags::CLOEXEC, Mode::empty(), inside())
    }

    /// What is at a path without links and dots.
    fn look(&self, at: &[OsString], asked: &Path) -> Result<Look, ViewError> {
        let leads = self.places.iter().any(|place| below(at, &place.target).is_some()) || at.is_empty();
        let absent = if leads { Look::Leads } else { Look::Missing };
        let Some(place) = self.places.iter().position(|place| at.starts_with(&place.target)) else {
            return Ok(absent);
        };
        let Some((target_len, dir)) =
            self.places.get(place).and_then(|p| Some((p.target.len(), p.dir.as_ref().ok()?)))
        else {
            return Ok(absent);
        };
        let mut rel: PathBuf = at.iter().skip(target_len).collect();
        if rel.as_os_str().is_empty() {
            rel.push(".");
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat2(dir, &rel, flags, Mode::empty(), inside()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(absent),
            Err(error) => return Err(self.io(asked, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| self.io(asked, error))?;
        let system = rustix::fs::fstatfs(&fd).map_err(|error| self.io(asked, error))?;
        // `/proc` shows a process to itself whatever its ids are: here that is the daemon, with its environment.
        if system.f_type == rustix::fs::PROC_SUPER_MAGIC {
            return Err(ViewError::Outside { path: show(asked) });
        }
        match FileType::from_raw_mode(stat.st_mode) {
            // A mount below wins over a file or link in its way.
            kind if leads && kind != FileType::Directory => Ok(Look::Leads),
            kind => Ok(Look::There { place, rel, fd, kind }),
        }
    }

    fn found(&self, at: Vec<OsString>, last: Look, asked: &Path) -> Result<Found, ViewError> {
        let path = join(&at);
        match last {
            Look::Missing => Err(ViewError::NotThere { path: show(asked) }),
            Look::Leads => {
                Ok(Found { path, kind: FileType::Directory, access: Access::ReadOnly, inside: None })
            }
            Look::There { place, rel, kind, .. } => {
                let access = self.places.get(place).map_or(Access::ReadOnly, |place| place.access);
                Ok(Found { path, kind, access, inside: Some((place, rel)) })
            }
        }
    }

    /// Tells "not there" from "there, but outside the view".
    fn missing(&self, asked: &Path, full: &Path, at: &[OsString], rest: &VecDeque<OsString>) -> ViewError {
        let path = show(asked);
        if let Some(place) = self.places.iter().find(|place| at.starts_with(&place.target))
            && let Err(closed) = &place.dir
            && !place.target.is_empty()
        {
            let source_path = show(&place.source);
            return match closed {
                Closed::Gone => ViewError::SourceGone { path, source_path },
                Closed::Denied => ViewError::Denied { path },
                Closed::Link => ViewError::SourceIsLink { path, source_path },
            };
        }
        // The ways in which the path could be meant on the machine itself: as it is written, as it stands after
        // links and dots were taken inside the view, and from the directory behind its mount.
        let mut meant = join(at);
        meant.extend(rest);
        let full_names: Vec<OsString> = names(full).collect();
        let behind = self.places.iter().find(|place| full_names.starts_with(&place.target)).map(|place| {
            let rest: PathBuf = full_names.iter().skip(place.target.len()).collect();
            place.source.join(rest)
        });
        let candidates = [Some(full.to_owned()), Some(meant), behind];
        if candidates.into_iter().flatten().any(|candidate| exists(&candidate)) {
            ViewError::Outside { path }
        } else {
            ViewError::NotThere { path }
        }
    }

    fn io(&self, path: &Path, error: Errno) -> ViewError {
        let path = show(path);
        match error {
            Errno::ACCESS | Errno::PERM => ViewError::Denied { path },
            Errno::NOENT => ViewError::NotThere { path },
            Errno::LOOP => ViewError::TooManyLinks { path },
            other => ViewError::Io { path, source: other.into() },
        }
    }
}

/// Opens the mounts, the deepest target first: the first that a path begins with is the mount that the path is on.
fn open_places(root: &Path, mounts: &[Mount]) -> Result<Vec<Place>, ViewError> {
    let mut places = vec![Place::open(root, Path::new("/"), Links::Follow, Access::ReadWrite)?];
    for mount in mounts {
        // A mount on / stands in for the root.
        if mount.target == Path::new("/") {
            places.clear();
        }
        places.push(Place::open(&mount.source, &mount.target, mount.links, mount.access)?);
    }
    places.sort_by_key(|place| std::cmp::Reverse(place.target.len()));
    Ok(places)
}

impl Place {
    fn open(source: &Path, target: &Path, links: Links, access: Access) -> Result<Place, ViewError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match links {
            Links::Follow => rustix::fs::open(source, flags, Mode::empty()),
            Links::Refuse => open_without_links(source, flags),
        };
        let dir = match opened {
            Ok(dir) => Ok(dir),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(Closed::Gone),
            Err(Errno::ACCESS | Errno::PERM) => Err(Closed::Denied),
            Err(Errno::LOOP) => Err(Closed::Link),
            Err(error) => return Err(ViewError::Io { path: show(source), source: error.into() }),
        };
        Ok(Place { target: names(target).collect(), source: source.to_owned(), dir, access })
    }
}

/// Opens a path that was resolved before: where a link is on it now, somebody put it there.
pub(crate) fn open_without_links(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )
}

/// The next name on the way from `at` down to `target`, when there is one.
fn below<'a>(at: &[OsString], target: &'a [OsString]) -> Option<&'a OsString> {
    target.strip_prefix(at)?.first()
}

/// The names of a path, `..` included.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn join(names: &[OsString]) -> PathBuf {
    let mut path = PathBuf::from("/");
    path.extend(names);
    path
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn read_link(link: &OwnedFd) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(link, "", Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// Whether something is at a path of the machine; also when the user may not look.
fn exists(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

fn inside() -> ResolveFlags {
    ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}
