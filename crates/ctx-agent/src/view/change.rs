//! Changing files in a view: where a file is or would be, and replacing what it says, whole or not at all.
//!
//! The new text is written beside the file and takes its place by a rename. What was in that place is compared with what
//! the caller had read, so that nothing is lost that somebody wrote meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ctx_cage::rights::RightsError;
use ctx_session::Code;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Found, View, ViewError, inside, join, show};
use crate::control::mount::Access;

/// The modes of what is made anew: as a common umask leaves them, whatever the daemon's own is.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// A directory of this name is read-only: git runs programs that its files name, outside of any cage.
const GIT: &str = ".git";

/// Two exchanges that both have to be taken back would mix up three files, so there is one at a time.
static EXCHANGE: Mutex<()> = Mutex::new(());

/// The place of a file that may not exist yet.
#[derive(Debug)]
pub struct Spot {
    /// As the agent sees it, without links, `.` and `..`.
    pub path: PathBuf,
    /// What is there.
    pub found: Option<Found>,
    place: usize,
    rel: PathBuf,
}

/// Why a file was not changed. Nothing is, then.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{path} changed since you read it; read it again, then change it")]
    Changed { path: String },
    #[error("{path} was changed twice while it was written; what it said in between is in {kept}, beside it")]
    Kept { path: String, kept: String },
    #[error("{path} is on a read-only mount; write inside a directory that is mounted `rw`")]
    ReadOnly { path: String },
    #[error("{path} is in a .git directory, which agents only read: git runs what its files name")]
    Git { path: String },
    #[error("the session's owner may not write {path}; work in a directory that they can write to")]
    Denied { path: String },
    #[error("no space is left for {path}")]
    Full { path: String },
    #[error("cannot write {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl ChangeError {
    pub fn code(&self) -> Code {
        match self {
            ChangeError::Changed { .. } | ChangeError::Kept { .. } => Code::Ebusy,
            ChangeError::ReadOnly { .. }
            | ChangeError::Git { .. }
            | ChangeError::Denied { .. }
            | ChangeError::Rights(_) => Code::Eacces,
            ChangeError::Full { .. } => Code::Enospc,
            ChangeError::Io { .. } => Code::Eio,
        }
    }
}

impl View {
    /// Where a file is, or would be made: relative paths from `cwd`.
    pub fn spot(&self, cwd: &Path, path: &Path) -> Result<Spot, ViewError> {
        self.rights.act(|| self.find_spot(cwd, path))?
    }

    fn find_spot(&self, cwd: &Path, path: &Path) -> Result<Spot, ViewError> {
        let lost = match self.walk(cwd, path)? {
            Ok(found) => {
                let inside = found.inside.clone().ok_or_else(|| ViewError::Outside { path: show(path) })?;
                let (place, rel) = inside;
                return Ok(Spot { path: found.path.clone(), found: Some(found), place, rel });
            }
            Err(lost) => lost,
        };
        if lost.below_file {
            return Err(ViewError::NotADirectory { path: show(&join(&lost.at)) });
        }
        let names: Vec<OsString> = lost.at.iter().chain(&lost.pending).cloned().collect();
        let holder = self.places.iter().position(|place| names.starts_with(&place.target));
        let place = holder.and_then(|at| Some((at, self.places.get(at)?)));
        match place {
            Some((at, place)) if place.dir.is_ok() && !names.iter().any(|name| name == "..") => {
                let rel = names.iter().skip(place.target.len()).collect();
                Ok(Spot { path: join(&names), found: None, place: at, rel })
            }
            Some(_) | None => Err(self.missing(path, &cwd.join(path), &lost.at, &lost.pending)),
        }
    }

    /// Says why a file could not be changed whatever is written to it.
    pub fn may_change(&self, spot: &Spot) -> Result<(), ChangeError> {
        let path = || show(&spot.path);
        if self.places.get(spot.place).is_none_or(|place| place.access == Access::ReadOnly) {
            return Err(ChangeError::ReadOnly { path: path() });
        }
        // Also where the mount itself begins inside of one.
        let source = self.places.get(spot.place).map(|place| place.source.as_path());
        let names = source.into_iter().flat_map(Path::iter).chain(spot.rel.iter());
        if names.into_iter().any(|name| name == GIT) {
            return Err(ChangeError::Git { path: path() });
        }
        Ok(())
    }

    /// Puts `new` in the place of what was read there; `old` is None where nothing was. Keeps the file's mode, and makes
    /// the directories that are missing.
    pub fn replace(&self, spot: &Spot, old: Option<&[u8]>, new: &[u8]) -> Result<(), ChangeError> {
        self.may_change(spot)?;
        let done = self.rights.act(|| self.exchange(spot, old, new))?;
        let path = show(&spot.path);
        done.map_err(|failed| match failed {
            Failed::Changed => ChangeError::Changed { path },
            Failed::Kept(kept) => ChangeError::Kept { path, kept },
            Failed::Errno(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ChangeError::Denied { path },
            Failed::Errno(Errno::NOSPC | Errno::DQUOT) => ChangeError::Full { path },
            Failed::Errno(other) => ChangeError::Io { path, source: other.into() },
        })
    }

    /// Writes the new text beside the file before it takes the lock, so that changes wait for each other's renames and not for the disk.
    fn exchange(&self, spot: &Spot, old: Option<&[u8]>, new: &[u8]) -> Result<(), Failed> {
        let root =
            self.places.get(spot.place).and_then(|place| place.dir.as_ref().ok()).ok_or(Errno::NOENT)?;
        let name = spot.rel.file_name().ok_or(Errno::ISDIR)?;
        let dir = directory(root.as_fd(), spot.rel.parent().unwrap_or(Path::new("")))?;
        let like = match old {
            Some(_) => Some(writable(&dir, name)?),
            None => None,
        };
        let beside = Beside::write(&dir, like, new)?;
        let _one_at_a_time = EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        match old {
            None => beside.put_where_nothing_is(name),
            Some(old) => beside.put_in_place_of(name, old, new),
        }
    }
}

/// Why an exchange was not made.
#[derive(Debug)]
enum Failed {
    Changed,
    /// Another file with this name has what stood there before.
    Kept(String),
    Errno(Errno),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Errno(errno)
    }
}

/// Opens a directory beneath another, and makes what is missing of it.
fn directory(root: BorrowedFd<'_>, rel: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open =
        |dir: BorrowedFd<'_>, name: &Path| rustix::fs::openat2(dir, name, flags, Mode::empty(), inside());
    match open(root, if rel.as_os_str().is_empty() { Path::new(".") } else { rel }) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let mut dir = open(root, Path::new("."))?;
    for name in rel {
        let name = Path::new(name);
        dir = match open(dir.as_fd(), name) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                // The daemon's umask is not the user's. By its descriptor: a link may be in its place by now.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let made = rustix::fs::openat2(&dir, name, flags, Mode::empty(), inside())?;
                let _ = rustix::fs::fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE));
                made
            }
            other => other?,
        };
    }
    Ok(dir)
}

/// The mode and group of a file that may be written to.
fn writable(dir: &OwnedFd, name: &OsStr) -> Result<(u32, u32), Failed> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat2(dir, name, flags, Mode::empty(), inside()) {
        Ok(file) => {
            let stat = rustix::fs::fstat(&file)?;
            Ok((stat.st_mode & 0o777, stat.st_gid))
        }
        // A program that runs can be replaced, not written to.
        Err(Errno::TXTBSY) => Ok((DIRECTORY_MODE, u32::MAX)),
        Err(Errno::NOENT | Errno::LOOP) => Err(Failed::Changed),
        Err(error) => Err(error.into()),
    }
}

/// A file that was written beside another one. It goes when it is dropped.
struct Beside<'a> {
    dir: &'a OwnedFd,
    name: String,
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove.
        let _ = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}

impl<'a> Beside<'a> {
    /// Writes it with the mode and group of the one that it is to replace.
    fn write(dir: &'a OwnedFd, like: Option<(u32, u32)>, text: &[u8]) -> Result<Beside<'a>, Failed> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!(".ctx-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(dir, &name, flags, Mode::from_raw_mode(0o600), inside())?;
        let beside = Beside { dir, name };
        let mut file = File::from(fd);
        file.write_all(text).map_err(|error| errno(&error))?;
        let (mode, group) = like.unwrap_or((FILE_MODE, u32::MAX));
        if group != u32::MAX {
            // Where the user is not in the group, the file gets theirs.
            let _ = rustix::fs::fchown(&file, None, Some(Gid::from_raw(group)));
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        rustix::fs::fdatasync(&file)?;
        Ok(beside)
    }

    fn rename(&self, to: &OsStr, how: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.dir, &self.name, self.dir, to, how)
    }

    fn put_where_nothing_is(&self, name: &OsStr) -> Result<(), Failed> {
        let done = match self.rename(name, RenameFlags::NOREPLACE) {
            // Some file systems cannot do it at once.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(self.dir, &self.name, self.dir, name, AtFlags::empty())
            }
            other => other,
        };
        done.map_err(|error| if error == Errno::EXIST { Failed::Changed } else { error.into() })
    }

    /// Somebody wrote the file twice: before our text stood there, and in its place. The newest stays, and the other is kept
    /// beside it.
    fn keep_both(&self, name: &OsStr) -> Result<(), Failed> {
        self.rename(name, RenameFlags::EXCHANGE)?;
        let kept = format!("{}{}.orig", name.to_string_lossy(), self.name);
        self.rename(OsStr::new(&kept), RenameFlags::empty())?;
        Err(Failed::Kept(kept))
    }

    /// Exchanges the two names, so that a change made since the check can be seen and undone. File systems without that get a plain rename,
    /// and such a change is lost.
    fn put_in_place_of(&self, name: &OsStr, old: &[u8], new: &[u8]) -> Result<(), Failed> {
        // Most changes are seen here, and then nothing moves.
        if !holds(self.dir, name, old) {
            return Err(Failed::Changed);
        }
        match self.rename(name, RenameFlags::EXCHANGE) {
            Ok(()) if holds(self.dir, OsStr::new(&self.name), old) => Ok(()),
            // Somebody else wrote it after it was read: theirs goes back.
            Ok(()) => {
                self.rename(name, RenameFlags::EXCHANGE)?;
                match holds(self.dir, OsStr::new(&self.name), new) {
                    true => Err(Failed::Changed),
                    false => self.keep_both(name),
                }
            }
            Err(Errno::INVAL | Errno::NOSYS) => Ok(self.rename(name, RenameFlags::empty())?),
            Err(Errno::NOENT) => Err(Failed::Changed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a file holds exactly this.
fn holds(dir: &OwnedFd, name: &OsStr, text: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat2(dir, name, flags, Mode::empty(), inside()) else { return false };
    let mut found = Vec::new();
    let most = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1);
    File::from(fd).take(most).read_to_end(&mut found).is_ok() && found == text
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left when somebody saved over the text that stood there for a moment: theirs is the newest.
    #[test]
    fn a_file_that_was_written_twice_loses_neither() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), "before").unwrap();
        let dir = OwnedFd::from(File::open(place.path()).unwrap());
        let beside = Beside::write(&dir, None, b"newest").unwrap();
        let Err(Failed::Kept(kept)) = beside.keep_both(OsStr::new("f")) else { panic!("it is kept") };
        drop(beside);
        let text = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!((text("f").as_str(), text(&kept).as_str()), ("newest", "before"));
        assert!(kept.starts_with("f.ctx-"), "{kept}");
    }
}
