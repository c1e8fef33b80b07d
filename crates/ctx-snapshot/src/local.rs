//! The files of a directory of this machine, opened with the rights of the user whose they are.
//!
//! Every path is resolved beneath the directory, and no symbolic link is followed: what stands in the way of a path is an
//! error, not a detour.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::files::{Files, Found, FoundKind, PATH_BYTES_MAX, Stat, TOO_LONG, Walk, WalkOptions};
use super::ignored::{GIT, Ignored, RULES_FILE, is_never_part};
use super::tree::{Outer, RelPath, join, parent, parents};
use ctx_cage::rights::Rights;

/// The most bytes of ignore rules that hold in one directory, with those of the directories above it; further ones do not.
const RULES_BYTES_MAX: u64 = 1 << 20;
/// Directories in directories; each holds a file descriptor open while it is walked.
const DEPTH_MAX: usize = 200;
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory of this machine.
pub struct Local {
    path: PathBuf,
    root: OwnedFd,
    rights: Rights,
    /// Directories by device and inode that are never part of it: where snapshots are kept.
    apart: Vec<(u64, u64)>,
}

impl Local {
    pub fn open(path: &Path, rights: Rights, apart: &[PathBuf]) -> io::Result<Local> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = act(&rights, || Ok(rustix::fs::open(path, flags, Mode::empty())?))?;
        let place = |path: &PathBuf| {
            let stat = rustix::fs::stat(path).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        Ok(Local { path: path.to_owned(), root, rights, apart: apart.iter().filter_map(place).collect() })
    }

    /// The directory of a path, and the path's last name.
    fn dir_of<'p>(&self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let dir = parent(path).unwrap_or(b".");
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        Ok((self.resolve(dir, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), BENEATH)?)
    }

    fn look_at(&self, path: &[u8]) -> io::Result<Option<Found>> {
        let found = self.dir_of(path).and_then(|(dir, name)| found(&dir, name));
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The rules of the repository that the workspace is in, from outside of it.
    fn outer(&self) -> Vec<Outer> {
        let Some(top) =
            self.path.ancestors().find(|dir| dir.join(OsStr::from_bytes(GIT)).symlink_metadata().is_ok())
        else {
            return Vec::new();
        };
        let mut outer = Vec::new();
        let mut add = |file: PathBuf, dir: &Path| {
            let below = self.path.strip_prefix(dir).map(|below| below.as_os_str().as_bytes().to_vec());
            if let (Ok(below), Some(text)) = (below, small_file(open_rules(&file), RULES_BYTES_MAX / 16)) {
                outer.push(Outer { below, text });
            }
        };
        add(top.join(".git/info/exclude"), top);
        let above: Vec<&Path> =
            self.path.ancestors().skip(1).take_while(|dir| dir.starts_with(top)).collect();
        for dir in above.into_iter().rev() {
            add(dir.join(OsStr::from_bytes(RULES_FILE)), dir);
        }
        outer
    }
}

/// With someone's rights; that these cannot be had is an error like others.
fn act<T>(rights: &Rights, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    rights.act(work).map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?
}

fn found(dir: &OwnedFd, name: &[u8]) -> io::Result<Found> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FoundKind::File,
        FileType::Directory => FoundKind::Dir,
        FileType::Symlink => {
            FoundKind::Link { target: rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes() }
        }
        _ => FoundKind::Other,
    };
    Ok(Found { kind, mode: stat.st_mode & 0o7777, stat: stat_of(&stat) })
}

fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    let nanos = |secs: i64, nanos: u64| secs.saturating_mul(1_000_000_000).saturating_add_unsigned(nanos);
    Stat {
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
        ino: stat.st_ino,
        dev: stat.st_dev,
    }
}

/// Its user can put a pipe there that nobody writes to.
fn open_rules(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// None where it has more bytes than this.
fn small_file(file: io::Result<File>, bytes_max: u64) -> Option<Vec<u8>> {
    let fits = |file: &File| file.metadata().is_ok_and(|data| data.is_file() && data.len() <= bytes_max);
    let file = file.ok().filter(fits)?;
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text).ok()?;
    Some(text)
}

impl Files for Local {
    fn walk(&self, options: WalkOptions<'_>) -> io::Result<Walk> {
        act(&self.rights, || {
            let outer = if options.with_ignored { Vec::new() } else { self.outer() };
            let mut walking = Walking {
                local: self,
                rules: Ignored::above(&outer),
                walk: Walk { outer, ..Walk::default() },
                rules_left: RULES_BYTES_MAX,
                options,
            };
            let root = self.resolve(b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
            let names = names(&root)?;
            walking.dir(&root, names, Vec::new(), 0)?;
            walking.also()?;
            Ok(walking.walk)
        })
    }

    fn open(&self, path: &[u8]) -> io::Result<(Box<dyn Read>, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(act(&self.rights, || self.resolve(path, flags))?);
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file any more"));
        }
        Ok((Box::new(file), stat_of(&stat)))
    }

    fn look(&self, path: &[u8]) -> io::Result<Option<Found>> {
        act(&self.rights, || self.look_at(path))
    }

    fn write(&self, path: &[u8], mode: u32, content: &mut dyn Read) -> io::Result<()> {
        let file = act(&self.rights, || {
            let (dir, name) = self.dir_of(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?)
        })?;
        let mut file = File::from(file);
        copy_sparse(content, &mut file)?;
        act(&self.rights, || Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?))
    }

    fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        act(&self.rights, || {
            let (dir, name) = self.dir_of(path)?;
            Ok(rustix::fs::symlinkat(target, dir, name)?)
        })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        act(&self.rights, || {
            let ((from_dir, from), (to_dir, to)) = (self.dir_of(from)?, self.dir_of(to)?);
            Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
        })
    }

    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        act(&self.rights, || {
            let (dir, name) = self.dir_of(path)?;
            Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode))?)
        })
    }

    fn remove(&self, path: &[u8], is_dir: bool) -> io::Result<()> {
        act(&self.rights, || {
            let (dir, name) = self.dir_of(path)?;
            let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            Ok(rustix::fs::unlinkat(dir, name, flags)?)
        })
    }

    fn set_mode(&self, dir: &[u8], mode: u32) -> io::Result<()> {
        act(&self.rights, || {
            let dir = self.resolve(dir, OFlags::PATH | OFlags::DIRECTORY)?;
            // It may be a directory that its owner cannot read: only its path can be opened.
            let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
            Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }
}

/// What is in a directory.
fn names(dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Copies, and leaves holes where there are only zeroes.
fn copy_sparse(from: &mut dyn Read, to: &mut File) -> io::Result<()> {
    let mut piece = vec![0; 128 << 10];
    let mut length = 0u64;
    let mut ends_with_hole = false;
    loop {
        let read = from.read(&mut piece)?;
        let bytes = piece.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        length += read as u64;
        ends_with_hole = read >= 4096 && bytes.iter().all(|byte| *byte == 0);
        match ends_with_hole {
            true => drop(to.seek(SeekFrom::Start(length))?),
            false => to.write_all(bytes)?,
        }
    }
    if ends_with_hole { to.set_len(length) } else { Ok(()) }
}

/// A walk under way.
struct Walking<'a> {
    local: &'a Local,
    rules: Ignored,
    walk: Walk,
    rules_left: u64,
    options: WalkOptions<'a>,
}

impl Walking<'_> {
    fn dir(&mut self, fd: &OwnedFd, names: Vec<Vec<u8>>, path: RelPath, depth: usize) -> io::Result<()> {
        let (rules, rules_left) = (self.rules.len(), self.rules_left);
        if !self.options.with_ignored && names.iter().any(|name| name == RULES_FILE) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(fd, RULES_FILE, flags, Mode::empty());
            if let Some(text) = small_file(file.map(File::from).map_err(Into::into), rules_left) {
                self.rules_left = rules_left.saturating_sub(text.len() as u64);
                self.rules.add(&path, &text);
            }
        }
        for name in names {
            self.entry(fd, &path, &name, depth)?;
        }
        self.rules.truncate(rules);
        self.rules_left = rules_left;
        Ok(())
    }

    fn entry(&mut self, fd: &OwnedFd, dir: &[u8], name: &[u8], depth: usize) -> io::Result<()> {
        if is_never_part(name) {
            self.walk.crowded.insert(dir.to_vec());
            return Ok(());
        }
        let path = join(dir, name);
        let met = match found(fd, name) {
            Ok(met) => met,
            // It went while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.leave_out(dir, path, error.to_string());
                return Ok(());
            }
        };
        let is_dir = met.kind == FoundKind::Dir;
        if self.options.leaves(&self.rules, &path, is_dir) {
            self.walk.crowded.insert(dir.to_vec());
            return Ok(());
        }
        if self.walk.found.len() >= self.options.files_max {
            let max = self.options.files_max;
            let message = format!("it has more than {max} files; ignore some in .gitignore");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        match met.kind {
            _ if path.len() > PATH_BYTES_MAX => self.leave_out(dir, path, TOO_LONG.to_owned()),
            FoundKind::Dir if self.local.apart.contains(&(met.stat.dev, met.stat.ino)) => {
                self.leave_out(dir, path, "ctx keeps its own files here".to_owned());
            }
            FoundKind::Dir if depth >= DEPTH_MAX => {
                self.leave_out(dir, path, format!("more than {DEPTH_MAX} directories deep"));
            }
            FoundKind::Dir => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = rustix::fs::openat(fd, name, flags, Mode::empty());
                // Without `x` a directory can be opened, and nothing in it can be looked at.
                match inner.map_err(io::Error::from).and_then(|inner| Ok((names(&inner)?, inner))) {
                    Ok((names, inner)) => {
                        self.walk.found.insert(path.clone(), met);
                        self.dir(&inner, names, path, depth + 1)?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => self.walk.add_closed(path, met, error.to_string()),
                }
            }
            FoundKind::Other => {
                self.leave_out(dir, path, "a socket, a pipe or a device".to_owned());
            }
            FoundKind::File | FoundKind::Link { .. } => drop(self.walk.found.insert(path, met)),
        }
        Ok(())
    }

    fn leave_out(&mut self, dir: &[u8], path: RelPath, why: String) {
        self.walk.crowded.insert(dir.to_vec());
        self.walk.left_out.insert(path, why);
    }

    /// Whether all that is in a directory was met or is looked at by name.
    fn holds_only(&self, path: &[u8], looked_at: &BTreeSet<RelPath>) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(entries) = self.local.resolve(path, flags).and_then(|dir| Ok(Dir::read_from(dir)?)) else {
            return false;
        };
        entries.into_iter().all(|entry| {
            let Ok(entry) = entry else { return false };
            let name = entry.file_name().to_bytes();
            let inner = join(path, name);
            name == b"."
                || name == b".."
                || looked_at.contains(&inner)
                || self.walk.found.contains_key(&inner)
        })
    }

    /// Paths that are asked for by name, and the directories that they are in.
    fn also(&mut self) -> io::Result<()> {
        let Some(also) = self.options.also else { return Ok(()) };
        let mut missing: BTreeSet<RelPath> = BTreeSet::new();
        for path in also {
            for path in std::iter::once(path.as_slice()).chain(parents(path)) {
                if !self.walk.found.contains_key(path) {
                    missing.insert(path.to_vec());
                }
            }
        }
        for path in missing.iter().cloned() {
            let dir = parent(&path).unwrap_or_default().to_vec();
            let is_left_out = |path: &[u8]| self.walk.left_out.contains_key(path);
            if is_left_out(&path) || parents(&path).any(is_left_out) {
                continue;
            }
            match self.local.look_at(&path) {
                Ok(None) => {}
                Ok(Some(met)) if met.kind == FoundKind::Other => {
                    self.leave_out(&dir, path, "a socket, a pipe or a device".to_owned());
                }
                Ok(Some(met)) => {
                    if met.kind == FoundKind::Dir && !self.holds_only(&path, &missing) {
                        // What else is in it was not looked at.
                        self.walk.crowded.insert(path.clone());
                    }
                    self.walk.found.insert(path, met);
                }
                Err(error) => self.leave_out(&dir, path, error.to_string()),
            }
        }
        Ok(())
    }
}
