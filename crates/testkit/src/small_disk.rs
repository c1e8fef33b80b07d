//! A disk that can be filled up or made read-only: a tmpfs. Mounting needs root, which the suite has.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

#[track_caller]
fn run(command: &mut Command) {
    let done = command.output().expect("a command of the system runs");
    assert!(
        done.status.success(),
        "{command:?}: {} (this test needs root)",
        String::from_utf8_lossy(&done.stderr)
    );
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
        run(Command::new("mount").args(["-o", options]).arg(&self.at));
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
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(at));
        covered
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}
