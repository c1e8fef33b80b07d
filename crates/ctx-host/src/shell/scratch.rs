//! Files that the interpreter opens for one command: its stdin, or a command too long to send.

use std::io;
use std::path::{Path, PathBuf};

use super::entropy::random_bits;

/// A private file that goes when it is no longer needed.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Puts bytes into a new file in a private directory.
    pub fn put(dir: &Path, bytes: &[u8]) -> io::Result<Scratch> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        private_dir(dir)?;
        let path = dir.join(format!("{:032x}", random_bits()));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let scratch = Scratch(path);
        file.write_all(bytes)?;
        Ok(scratch)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Makes a directory that is its owner's alone, where there is none yet.
pub(super) fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "a command's file was gone already");
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
        let scratch = Scratch::put(&dir.path().join("scratch"), b"secret").unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(scratch);
        assert!(!path.exists());
    }
}
