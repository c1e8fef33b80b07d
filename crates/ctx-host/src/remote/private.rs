//! A directory of one connection on this machine, which its user alone can enter: sockets and what ssh runs.
//!
//! It is the user's, who can put another one or a link in its place at any time. So everything in it is done with the
//! user's rights: whatever is met there, they could have done it themselves.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::ShellError;
use crate::local::random::random_bits;
use ctx_cage::rights::Rights;

/// One that is younger may not be held yet.
const LEFT_AGE: Duration = Duration::from_secs(60);

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
            remove_left(&place, rights.uid());
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

/// Removes the empty directories that servers which were killed have left.
fn remove_left(place: &Path, uid: u32) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let digits = entry.file_name().to_str().and_then(|name| name.strip_prefix("ctx-").map(str::to_owned));
        let is_named = digits.is_some_and(|it| it.len() == 16 && it.bytes().all(|b| b.is_ascii_hexdigit()));
        let is_left = || {
            let data = entry.metadata()?;
            Ok::<_, io::Error>(
                data.uid() == uid && data.modified()?.elapsed().is_ok_and(|age| age > LEFT_AGE),
            )
        };
        if is_named && is_left().is_ok_and(|it| it) && hold(&entry.path()).is_ok() {
            // One with something in it stays.
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
    fn what_killed_servers_have_left_goes_if_it_is_empty_and_nobodys() {
        let rights = || Rights::of(ANN).unwrap();
        let held = PrivateDir::new(rights()).unwrap();
        let left = |bits: u64| std::env::temp_dir().join(format!("ctx-{bits:016x}"));
        let [empty, full, anothers] = [random_bits(), random_bits(), random_bits()].map(|n| left(n as u64));
        for dir in [&empty, &full, &anothers] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(full.join("known"), "").unwrap();
        for dir in [&empty, &full] {
            std::os::unix::fs::chown(dir, Some(ANN), None).unwrap();
        }
        let long_ago = SystemTime::now() - LEFT_AGE * 2;
        for dir in [held.path(), &empty, &full, &anothers] {
            std::fs::File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        drop(PrivateDir::new(rights()).unwrap());
        assert!(!empty.exists());
        assert!(held.path().exists() && full.exists() && anothers.exists());
        std::fs::remove_dir_all(full).unwrap();
        std::fs::remove_dir(anothers).unwrap();
    }

    #[test]
    fn a_link_that_its_user_puts_in_its_place_leads_to_nothing_that_is_not_theirs() {
        let dir = PrivateDir::new(Rights::of(ANN).unwrap()).unwrap();
        dir.put("password", b"secret", 0o600).unwrap();
        let made = std::fs::metadata(dir.path().join("password")).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o777), (ANN, 0o600));
        let (moved, roots) = (dir.path().with_extension("moved"), tempfile::tempdir().unwrap());
        std::fs::write(roots.path().join("password"), "root's").unwrap();
        std::fs::rename(dir.path(), &moved).unwrap();
        std::os::unix::fs::symlink(roots.path(), dir.path()).unwrap();
        assert!(dir.put("known", b"x", 0o700).is_err());
        dir.remove("password");
        let path = dir.path().to_owned();
        drop(dir);
        let left: Vec<_> =
            std::fs::read_dir(roots.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["password"]);
        let _ = std::fs::remove_file(path);
        std::fs::remove_dir_all(moved).unwrap();
    }
}
