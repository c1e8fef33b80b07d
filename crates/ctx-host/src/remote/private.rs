//! A directory of one connection on this machine, which its user alone can enter: sockets and what ssh runs.
//!
//! It is the user's, who can put another one or a link in its place at any time. So everything in it is done with the
//! user's rights: whatever is met there, they could have done it themselves.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::ShellError;
use crate::local::random::random_bits;
use ctx_cage::rights::Rights;

/// It goes with all that is in it.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    rights: Rights,
}

impl PrivateDir {
    /// In the directory for temporary files: the path of a socket must be short.
    pub fn new(rights: Rights) -> Result<PrivateDir, ShellError> {
        let path = std::env::temp_dir().join(format!("ctx-{:016x}", random_bits() as u64));
        let dir = PrivateDir { path, rights };
        dir.act(&dir.path, || std::fs::DirBuilder::new().mode(0o700).create(&dir.path))?;
        Ok(dir)
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
    use std::os::unix::fs::MetadataExt;

    const ANN: u32 = 61_991;

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
