//! A directory of one connection on this machine, which its user alone can enter: sockets and what ssh runs.
//!
//! It is the user's, who can put another one or a link in its place at any time. So everything in it is done with the
//! user's rights: whatever is met there, they could have done it themselves.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::error::ShellError;
use crate::local::random::random_bits;
use ctx_cage::rights::Rights;

/// An empty one that is younger may not be held yet.
const LEFT_AGE: Duration = Duration::from_secs(60);
/// What is put into one, and the socket of ssh.
pub(super) const PASSWORD: &str = "password";
pub(super) const ASKPASS: &str = "askpass";
pub(super) const KNOWN: &str = "known";
pub(super) const SOCKET: &str = "s";

/// It goes with all that is in it.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    rights: Rights,
    /// Says that there is someone who removes it.
    _held: OwnedFd,
}

impl PrivateDir {
    /// In the directory for temporary files: the path of a socket must be short.
    pub fn new(rights: Rights) -> Result<PrivateDir, ShellError> {
        let place = std::env::temp_dir();
        let path = place.join(format!("ctx-{:016x}", random_bits() as u64));
        let made = rights.act(|| {
            remove_left_in(&place, rights.uid());
            std::fs::DirBuilder::new().mode(0o700).create(&path)?;
            hold(&path)
        });
        match made.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(held) => Ok(PrivateDir { path, rights, _held: held }),
            Err(source) => Err(ShellError::Spool { path, source }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a file of its user's into it.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), ShellError> {
        let path = self.path.join(name);
        self.act(&path, || {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(&path)?.write_all(bytes)
        })
    }

    pub fn remove(&self, name: &str) {
        // It is there only where there is a password.
        let _ = self.rights.act(|| std::fs::remove_file(self.path.join(name)));
    }

    fn act(&self, path: &Path, work: impl FnOnce() -> io::Result<()>) -> Result<(), ShellError> {
        let done = self.rights.act(work).unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|source| ShellError::Spool { path: path.to_owned(), source })
    }
}

fn hold(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

/// Removes what servers of this user that were killed have left: a password first of all.
pub(crate) fn remove_left(rights: &Rights) {
    // What cannot be removed now is met again by the next connection.
    let _ = rights.act(|| remove_left_in(&std::env::temp_dir(), rights.uid()));
}

fn remove_left_in(place: &Path, uid: u32) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let digits = entry.file_name().to_str().and_then(|name| name.strip_prefix("ctx-").map(str::to_owned));
        let is_named = digits.is_some_and(|it| it.len() == 16 && it.bytes().all(|b| b.is_ascii_hexdigit()));
        let is_left = || {
            let data = entry.metadata()?;
            let is_old = data.modified()?.elapsed().is_ok_and(|age| age > LEFT_AGE);
            // One with something in it was held before that came.
            let is_used = || std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_some());
            Ok::<_, io::Error>(data.uid() == uid && data.is_dir() && (is_old || is_used()))
        };
        if is_named
            && is_left().is_ok_and(|it| it)
            && let Ok(held) = hold(&entry.path())
        {
            for name in [PASSWORD, ASKPASS, KNOWN, SOCKET] {
                // Not all are in every one.
                let _ = rustix::fs::unlinkat(&held, name, AtFlags::empty());
            }
            // One with something else in it stays.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let removed = self.act(&self.path, || std::fs::remove_dir_all(&self.path));
        if let Err(error) = removed {
            tracing::debug!(%error, "the directory of a connection was gone already");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const ANN: u32 = 61_991;

    #[test]
    fn what_killed_servers_have_left_goes_if_it_is_nobodys() {
        let rights = || Rights::of(ANN).unwrap();
        let held = PrivateDir::new(rights()).unwrap();
        held.put(PASSWORD, b"secret", 0o600).unwrap();
        let left = |bits: u64| std::env::temp_dir().join(format!("ctx-{bits:016x}"));
        let dirs = [(); 5].map(|()| left(random_bits() as u64));
        let [empty, new, used, others, anothers] = &dirs;
        for dir in &dirs {
            std::fs::create_dir(dir).unwrap();
        }
        for name in [PASSWORD, ASKPASS, KNOWN, SOCKET] {
            std::fs::write(used.join(name), "").unwrap();
        }
        // What is not ours stays, and the password beside it goes.
        std::fs::write(others.join("notes"), "").unwrap();
        std::fs::write(others.join(PASSWORD), "").unwrap();
        std::fs::write(anothers.join(PASSWORD), "").unwrap();
        for dir in [empty, new, used, others] {
            std::os::unix::fs::chown(dir, Some(ANN), None).unwrap();
        }
        let long_ago = SystemTime::now() - LEFT_AGE * 2;
        for dir in [held.path(), empty, anothers] {
            std::fs::File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        drop(PrivateDir::new(rights()).unwrap());
        assert!(!empty.exists() && !used.exists());
        assert!(new.exists() && held.path().join(PASSWORD).exists() && anothers.join(PASSWORD).exists());
        assert!(others.join("notes").exists() && !others.join(PASSWORD).exists());
        for dir in [new, others, anothers] {
            std::fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn a_link_that_its_user_puts_in_its_place_leads_to_nothing_that_is_not_theirs() {
        let dir = PrivateDir::new(Rights::of(ANN).unwrap()).unwrap();
        dir.put(PASSWORD, b"secret", 0o600).unwrap();
        let made = std::fs::metadata(dir.path().join(PASSWORD)).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o777), (ANN, 0o600));
        let (moved, roots) = (dir.path().with_extension("moved"), tempfile::tempdir().unwrap());
        std::fs::write(roots.path().join("password"), "root's").unwrap();
        std::fs::rename(dir.path(), &moved).unwrap();
        std::os::unix::fs::symlink(roots.path(), dir.path()).unwrap();
        assert!(dir.put("known", b"x", 0o700).is_err());
        dir.remove(PASSWORD);
        let path = dir.path().to_owned();
        drop(dir);
        let left: Vec<_> =
            std::fs::read_dir(roots.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["password"]);
        let _ = std::fs::remove_file(path);
        std::fs::remove_dir_all(moved).unwrap();
    }
}
