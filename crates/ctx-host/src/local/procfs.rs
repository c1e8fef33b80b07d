//! What `/proc` shows of an interpreter that it does not report itself.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// The number of `read`.
#[cfg(target_arch = "x86_64")]
const READ_CALL: &str = "0";
#[cfg(not(target_arch = "x86_64"))]
const READ_CALL: &str = "63";

/// Whether a process sits in a read from this pipe, as `/proc` calls it.
pub(crate) fn is_reading(pid: Pid, pipe: &Path) -> bool {
    let pid = pid.as_raw_nonzero();
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    read_from(&call).is_some_and(|descriptor| {
        std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).is_ok_and(|link| link == pipe)
    })
}

/// The descriptor that is read from, where the call is a read: its number, then its arguments in hexadecimal.
fn read_from(call: &str) -> Option<u32> {
    let mut words = call.split_whitespace();
    if words.next()? != READ_CALL {
        return None;
    }
    u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// The memory of a process for its data. It is looked at before every command, so its file is kept open.
pub(crate) struct DataPages(File);

impl DataPages {
    pub fn of(pid: Pid) -> Option<DataPages> {
        File::open(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok().map(DataPages)
    }

    /// In pages; nothing where the process has ended.
    pub fn now(&self) -> Option<u64> {
        let mut text = [0; 128];
        let count = self.0.read_at(&mut text, 0).ok()?;
        let sizes = std::str::from_utf8(text.get(..count)?).ok()?;
        sizes.split_whitespace().nth(5)?.parse().ok()
    }
}

/// Where a process really is, by the name it has for it where that is true: a script may have come there by a
/// link, and may have set `PWD` to anything. `root` is what the process calls `/`.
pub(crate) fn cwd(pid: Pid, said: &Path, root: &Path) -> PathBuf {
    let link = PathBuf::from(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
    let Ok(real) = std::fs::read_link(&link) else { return said.to_owned() };
    // Mostly they are the same, and to compare names takes less than to look both up.
    if real == said {
        return real;
    }
    let place = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let there = root.join(said.strip_prefix("/").unwrap_or(said));
    let is_it = || match (place(&there), place(&link)) {
        (Ok(said), Ok(real)) => said == real,
        (_, Err(_)) => true,
        (Err(_), Ok(_)) => false,
    };
    if said.is_absolute() && is_it() { said.to_owned() } else { without_note(&real) }
}

/// The name of a directory that was removed, without what `/proc` notes behind it.
fn without_note(link: &Path) -> PathBuf {
    let bytes = link.as_os_str().as_bytes();
    let name = bytes.strip_suffix(b" (deleted)").filter(|_| !link.exists()).unwrap_or(bytes);
    PathBuf::from(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_tells_a_descriptor() {
        assert_eq!(read_from(&format!("{READ_CALL} 0xff 0x55 0x1 0x0 0x0 0x0 0x7f 0x7e")), Some(255));
        for other in ["running", "", "-1 0x7f 0x7e", "61 0xff 0x0 0x0 0x0 0x0 0x0 0x7f 0x7e"] {
            assert_eq!(read_from(other), None, "{other}");
        }
    }

    #[test]
    fn a_directory_keeps_the_name_it_was_reached_by_unless_that_is_a_lie() {
        let me = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let real = std::env::current_dir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let root = Path::new("/");
        assert_eq!(cwd(me, &link, root), link);
        for lie in ["/", "", "relative", "/nonexistent"] {
            assert_eq!(cwd(me, Path::new(lie), root), real.canonicalize().unwrap(), "{lie}");
        }
    }
}
