//! Starts a daemon in the background and waits until it serves.
//!
//! The daemon is the same program with `--detached`: it leaves the terminal's session, writes its log to a file, and
//! says on a pipe that it is up. The caller waits for that word or for the end of the process, not for a time.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// The option of the process in the background. Not for people.
pub const FLAG: &str = "--detached";
/// What the process says when its sockets are open.
const UP: &str = "up";
/// A log above this is set aside when the next daemon starts.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How a start went.
pub enum Started {
    /// It serves; its process id.
    Up(u32),
    /// It has ended, and this is what it said.
    Ended { exit: u8, said: String },
}

impl Started {
    /// The process id, or what the daemon said, passed on.
    pub fn up(self) -> Result<u32, Failure> {
        match self {
            Started::Up(pid) => Ok(pid),
            Started::Ended { exit, said } => {
                let _ = std::io::stderr().write_all(said.as_bytes());
                Err(Failure::Told { exit })
            }
        }
    }
}

/// Starts `ctx serve` with these arguments on a root and waits until it serves or ends.
pub fn start(root: &Path, args: &[OsString]) -> Result<Started, Failure> {
    let state = root.join(".state");
    // Everybody may look at a root that the daemon makes, as at one that it makes itself; its state is its own.
    for (dir, mode) in [(root, 0o755), (state.as_path(), 0o711)] {
        let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
        made.map_err(|error| Failure::io(dir.display(), error))?;
    }
    let (mut log, before) = open_log(root)?;
    let program = std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
    // What the caller has open, such as the lock of a script, must not stay open as long as the daemon runs.
    ctx_cage::keep_descriptors();
    let mut child = Command::new(&program)
        .arg("serve")
        .args(args)
        .arg(FLAG)
        .env("CTX_ROOT", root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone().map_err(|error| Failure::io("the log", error))?)
        .spawn()
        .map_err(|error| Failure::io(program.display(), error))?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        // A pipe that breaks says the same as one that ends: the daemon is gone.
        let _ = BufReader::new(stdout).read_line(&mut said);
    }
    if said.trim() == UP {
        return Ok(Started::Up(child.id()));
    }
    let ended = child.wait().map_err(|error| Failure::io("the daemon", error))?;
    let mut said = String::new();
    let read = log.seek(SeekFrom::Start(before)).and_then(|_| log.read_to_string(&mut said));
    read.map_err(|error| Failure::io(log_path(root).display(), error))?;
    Ok(Started::Ended { exit: ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(70), said })
}

/// The log of a daemon in the background.
pub fn log_path(root: &Path) -> PathBuf {
    root.join(".state/daemon.log")
}

/// The log, and its length before this start.
fn open_log(root: &Path) -> Result<(File, u64), Failure> {
    let path = log_path(root);
    if std::fs::metadata(&path).is_ok_and(|data| data.len() > LOG_BYTES_MAX) {
        std::fs::rename(&path, path.with_extension("log.old"))
            .map_err(|error| Failure::io(path.display(), error))?;
    }
    let log = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path);
    let log = log.map_err(|error| Failure::io(path.display(), error))?;
    let length = log.metadata().map_err(|error| Failure::io(path.display(), error))?.len();
    Ok((log, length))
}

/// In the background: leaves the session of the terminal, whose end must not reach the daemon.
pub fn leave_terminal() {
    // It fails only for a process that leads a group, which has no terminal to leave.
    let _ = rustix::process::setsid();
}

/// In the background: tells whoever started this process that it serves.
pub fn say_up() {
    // Nobody may be waiting any more.
    let _ = writeln!(std::io::stdout(), "{UP}");
}
