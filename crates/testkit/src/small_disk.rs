//! A disk that can be filled up or made read-only: a tmpfs. Mounting needs root, which the suite has.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::until;

#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

#[track_caller]
fn run(command: &mut Command) {
    let said = fails(command);
    assert!(said.is_none(), "{command:?}: {} (this test needs root)", said.unwrap_or_default());
}

/// What a command says when it fails.
fn fails(command: &mut Command) -> Option<String> {
    let done = command.output().expect("a command of the system runs");
    (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Asks again while someone writes there: a mount with a file open to be written cannot become read-only.
fn run_when_free(command: &mut Command) {
    until("a mount that nobody writes to", || match fails(command) {
        Some(said) if said.contains("busy") => None,
        Some(said) => panic!("{command:?}: {said} (this test needs root)"),
        None => Some(()),
    });
}

impl SmallDisk {
    pub fn mount(at: &Path, kib: usize) -> SmallDisk {
        std::fs::create_dir_all(at).expect("a place for the disk");
        let options = format!("size={kib}k,mode=755");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "ctx-test"]).arg(at));
        SmallDisk { at: at.to_owned() }
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Takes every byte that is left.
    pub fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.ballast()).expect("the ballast");
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).expect("the ballast goes");
    }

    pub fn read_only(&self, read_only: bool) {
        let options = if read_only { "remount,ro" } else { "remount,rw" };
        run_when_free(Command::new("mount").args(["-o", options]).arg(&self.at));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a daemon that is about to be killed may still hold files on it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

/// A directory that cannot be written to, as long as this lives.
#[derive(Debug)]
pub struct ReadOnly {
    at: PathBuf,
}

impl ReadOnly {
    pub fn cover(at: &Path) -> ReadOnly {
        run(Command::new("mount").arg("--bind").args([at, at]));
        let covered = ReadOnly { at: at.to_owned() };
        run_when_free(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(at));
        covered
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}
