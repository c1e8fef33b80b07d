//! The same test as root and as a plain user, and a place with a project of the user's.
#![expect(
    clippy::unwrap_used,
    clippy::new_without_default,
    reason = "a test that cannot go on stops; a place is made on the disk"
)]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use rustix::process::{Gid, Uid};

pub const ANN: u32 = 54_411;

/// Who starts the cages of a test. The processes in them are Ann's in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Root,
    Ann,
}

/// Does the same as root and as a plain user: in threads, because ids are a thread's.
pub fn by_both(work: impl Fn(By) + Sync) {
    for by in [By::Root, By::Ann] {
        by_one(by, || work(by));
    }
}

pub fn by_one<T: Send>(by: By, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if by == By::Ann {
                let (uid, gid) = (Uid::from_raw(ANN), Gid::from_raw(ANN));
                rustix::thread::set_thread_groups(&[]).expect("this test needs root");
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A directory with a project of Ann's, and a place of root's beside it.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let place = Place { dir };
        std::fs::create_dir(place.project()).unwrap();
        std::fs::create_dir(place.path("open")).unwrap();
        std::fs::set_permissions(place.path("open"), Permissions::from_mode(0o777)).unwrap();
        chown(place.project(), Some(ANN), Some(ANN)).expect("this test needs root");
        place
    }

    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// A file with this owner and mode.
    pub fn file(&self, below: &str, owner: u32, mode: u32, text: &str) -> PathBuf {
        let path = self.path(below);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        // Changing the owner removes the setuid bit.
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

/// Host processes with this text in their command line.
pub fn processes_with(text: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    pids.filter(has).collect()
}

/// A number that no other test uses, as the argument of a `sleep` that is looked for.
pub fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("1000000.{}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
