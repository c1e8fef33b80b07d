//! Files that the interpreter opens for one command: its stdin, or a command too long to send.

use std::io;
use std::path::{Path, PathBuf};

use super::random::random_bits;
use crate::error::ShellError;

/// Where such files go, and who must be able to read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScratchDir {
    pub path: PathBuf,
    /// The user whose shell reads them, where that is not us. The directory stays ours: in one that is theirs they
    /// could lead us elsewhere.
    pub reader: Option<u32>,
    /// What the interpreter calls the directory, where that is not its path.
    pub inside: Option<PathBuf>,
}

impl ScratchDir {
    /// What the interpreter calls a file in the directory.
    pub fn seen(&self, path: &Path) -> PathBuf {
        match (&self.inside, path.file_name()) {
            (Some(inside), Some(name)) => inside.join(name),
            _ => path.to_owned(),
        }
    }

    pub fn make(&self) -> io::Result<()> {
        let Some(_) = self.reader else { return private_dir(&self.path) };
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&self.path)?;
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o711))
    }

    /// Puts bytes into a new file that the interpreter can open.
    pub fn put(&self, bytes: &[u8]) -> Result<Scratch, ShellError> {
        Scratch::put(self, bytes).map_err(|source| ShellError::Spool { path: self.path.clone(), source })
    }
}

/// A private file that goes when it is no longer needed.
pub(crate) struct Scratch {
    seen: PathBuf,
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Scratch {
    /// Puts bytes into a new file in a private directory.
    pub fn put(dir: &ScratchDir, bytes: &[u8]) -> io::Result<Scratch> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        dir.make()?;
        let path = dir.path.join(format!("{:032x}", random_bits()));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let scratch = Scratch::elsewhere(dir.seen(&path), move || remove(&path));
        if let Some(uid) = dir.reader {
            rustix::fs::fchown(&file, Some(rustix::fs::Uid::from_raw(uid)), None)?;
        }
        file.write_all(bytes)?;
        Ok(scratch)
    }

    /// A file that was put where the interpreter can open it, and how it is removed.
    pub fn elsewhere(seen: PathBuf, remove: impl FnOnce() + Send + Sync + 'static) -> Scratch {
        Scratch { seen, remove: Some(Box::new(remove)) }
    }

    /// As the interpreter calls it.
    pub fn path(&self) -> &Path {
        &self.seen
    }
}

/// Makes a directory that is its owner's alone, where there is none yet.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "a command's file was gone already");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_scratch_file_is_private_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let place = ScratchDir { path: dir.path().join("scratch"), reader: None, inside: None };
        let scratch = Scratch::put(&place, b"secret").unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(scratch);
        assert!(!path.exists());
    }
}
