//! A directory of one connection on this machine, which its user alone can enter: sockets and what ssh runs.

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::shell::error::ShellError;
use crate::shell::local::random::random_bits;

/// It goes with all that is in it.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    owner: Option<(u32, u32)>,
}

impl PrivateDir {
    /// In the directory for temporary files: the path of a socket must be short.
    pub fn new(owner: Option<(u32, u32)>) -> Result<PrivateDir, ShellError> {
        let path = std::env::temp_dir().join(format!("ctx-{:016x}", random_bits() as u64));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| ShellError::Spool { path: path.clone(), source })?;
        let (uid, gid) = owner.unzip();
        let dir = PrivateDir { path, owner };
        let given = std::os::unix::fs::lchown(&dir.path, uid, gid);
        given.map_err(|source| ShellError::Spool { path: dir.path.clone(), source })?;
        Ok(dir)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a file of its user's into it.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), ShellError> {
        use std::io::Write;
        let path = self.path.join(name);
        let failed = |source| ShellError::Spool { path: path.clone(), source };
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        // By its descriptor: the directory is its user's, who may have put something else under the name.
        let (uid, gid) = self.owner.unzip();
        std::os::unix::fs::fchown(&file, uid, gid).map_err(failed)
    }

    pub fn remove(&self, name: &str) {
        // It is there only where there is a password.
        let _ = std::fs::remove_file(self.path.join(name));
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "the directory of a connection was gone already");
        }
    }
}
