//! A shell that sits in its own `open` of a named pipe until somebody opens the other end.
//!
//! Every signal breaks that, and bash begins it again each time: what keeps it from its next command is that nobody
//! comes. So where such a shell is to be stopped, we come: for a moment where it wants to read, which is the end of
//! file to it, and for as long as it is held where it wants to write.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::Pid;

use super::fifo;

/// The numbers of `openat` and, where there is one, of `open`.
#[cfg(target_arch = "x86_64")]
const OPEN_CALLS: (&str, Option<&str>) = ("257", Some("2"));
#[cfg(not(target_arch = "x86_64"))]
const OPEN_CALLS: (&str, Option<&str>) = ("56", None);

/// No name is longer to the kernel.
const NAME_BYTES_MAX: usize = 4096;
/// A name is read in pieces that lie within one page, for what follows it may not be there.
const PAGE_BYTES: usize = 4096;

/// What a process has asked the kernel to open.
#[derive(Debug, PartialEq, Eq)]
struct Opening {
    /// The directory that the name begins in; the present one where it is negative.
    dir: i32,
    /// Where the name stands in the process's memory.
    name_at: u64,
    writes: bool,
}

impl Opening {
    /// Reads a call as `/proc` shows it: its number, then its arguments in hexadecimal.
    fn parse(call: &str) -> Option<Opening> {
        let mut words = call.split_whitespace();
        let number = words.next()?;
        let args: Option<Vec<u64>> =
            words.take(3).map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
        let (dir, name_at, flags) = match args?.as_slice() {
            [name_at, flags, ..] if Some(number) == OPEN_CALLS.1 => (-1, *name_at, *flags),
            [dir, name_at, flags] if number == OPEN_CALLS.0 => {
                (u32::try_from(dir & 0xffff_ffff).ok()?.cast_signed(), *name_at, *flags)
            }
            _ => return None,
        };
        // Who wants both waits for nobody.
        let writes = match flags & 3 {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Opening { dir, name_at, writes })
    }
}

/// Comes to the other end of the named pipe that this process waits to open, where it does. What is handed back is to
/// be held until its command has ended.
pub(crate) fn let_through(pid: Pid) -> Option<OwnedFd> {
    let pid = pid.as_raw_nonzero();
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let opening = Opening::parse(&call)?;
    let name = name_at(&std::fs::File::open(format!("/proc/{pid}/mem")).ok()?, opening.name_at)?;
    let from = match opening.dir {
        dir @ 0.. => format!("/proc/{pid}/fd/{dir}"),
        _ => format!("/proc/{pid}/cwd"),
    };
    // An absolute name takes the place of the directory.
    let path = PathBuf::from(from).join(OsStr::from_bytes(&name));
    // Looked at first, and opened only as what was looked at: nothing but a named pipe is touched.
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&found).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return None;
    }
    let access = if opening.writes { OFlags::RDONLY } else { OFlags::WRONLY };
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let end = rustix::fs::open(fifo::path_of(&found), flags, Mode::empty()).ok()?;
    opening.writes.then_some(end)
}

/// The name that ends with a NUL at this place of a process's memory.
fn name_at(memory: &std::fs::File, at: u64) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut bytes = [0; PAGE_BYTES];
    while name.len() < NAME_BYTES_MAX {
        let from = at.checked_add(u64::try_from(name.len()).ok()?)?;
        let page = u64::try_from(PAGE_BYTES).ok()?;
        let len = usize::try_from(page - from % page).ok()?;
        let count = memory.read_at(bytes.get_mut(..len)?, from).ok().filter(|count| *count > 0)?;
        let read = bytes.get(..count)?;
        match read.iter().position(|byte| *byte == 0) {
            Some(end) => {
                name.extend_from_slice(read.get(..end)?);
                return Some(name);
            }
            None => name.extend_from_slice(read),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_tells_a_name() {
        let call = |number: &str, rest: &str| format!("{number} {rest} 0x0 0x0 0x0 0x7f 0x7e");
        let reads = Opening { dir: -100, name_at: 0x55aa, writes: false };
        assert_eq!(Opening::parse(&call(OPEN_CALLS.0, "0xffffff9c 0x55aa 0x80000")), Some(reads));
        let writes = Opening { dir: 7, name_at: 0x55aa, writes: true };
        assert_eq!(Opening::parse(&call(OPEN_CALLS.0, "0x7 0x55aa 0x241")), Some(writes));
        for other in [
            "running",
            "",
            "-1 0x7f 0x7e",
            &call("61", "0x7 0x55aa 0x0"),
            &call(OPEN_CALLS.0, "0x7 0x55aa 0x2"),
        ] {
            assert_eq!(Opening::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_read_to_its_end() {
        let text = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(PAGE_BYTES + 10);
        std::fs::write(text.path(), format!("ab\0{long}\0{long}{long}\0")).unwrap();
        let memory = std::fs::File::open(text.path()).unwrap();
        assert_eq!(name_at(&memory, 0), Some(b"ab".to_vec()));
        assert_eq!(name_at(&memory, 3).map(|name| name.len()), Some(long.len()));
        assert_eq!(name_at(&memory, 3 + PAGE_BYTES as u64 + 11), None, "none is as long");
    }
}
