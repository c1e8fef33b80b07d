//! One daemon per root: the lock, and the file that names its holder.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_api::http::DaemonFile;
use ctx_session::{Code, Timestamp};
use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;

/// A root that belongs to this process until it is dropped or dies.
pub(super) struct Owned {
    state: PathBuf,
    _lock: File,
}

/// Makes the root and its `.state` where they are missing, and locks it.
pub(super) fn take(root: &Path) -> Result<Owned, Failure> {
    let state = make_state(root)?;
    let path = state.join("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| cannot(&path, error))?;
    let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).or_else(|_| {
        // A client that looks whether the lock is free holds it for a moment.
        std::thread::sleep(Duration::from_millis(20));
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
    });
    match locked {
        Ok(()) => Ok(Owned { state, _lock: lock }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(held(root, &state)),
        Err(error) => Err(cannot(&path, error.into())),
    }
}

/// Who can rename what is in the root can put anything in its place.
fn keep_others_out(root: &Path) -> Result<(), Failure> {
    const STICKY: u32 = 0o1000;
    let data = std::fs::metadata(root).map_err(|error| cannot(root, error))?;
    let own = rustix::process::geteuid().as_raw();
    if data.uid() != own && data.uid() != 0 {
        let message =
            format!("{} belongs to uid {}, who could change anything in it", root.display(), data.uid());
        return Err(Failure::new(Code::Eacces, message)
            .hint("start the daemon as that user, give the directory to the daemon's user, or name another root with --root"));
    }
    if data.mode() & 0o022 == 0 || data.mode() & STICKY != 0 {
        return Ok(());
    }
    let mode = data.mode() & 0o7755;
    tracing::warn!(root = %root.display(), "others could write the root; its mode is {mode:04o} from now on");
    std::fs::set_permissions(root, Permissions::from_mode(mode)).map_err(|error| cannot(root, error))
}

/// Makes the root and its `.state` where they are missing.
pub(super) fn make_state(root: &Path) -> Result<PathBuf, Failure> {
    let state = root.join(".state");
    make_dir(root, 0o755)?;
    make_dir(&state, 0o711)?;
    keep_others_out(root)?;
    // What an umask took away is given back: others must be able to pass through to the API's socket.
    std::fs::set_permissions(&state, Permissions::from_mode(0o711)).map_err(|error| cannot(&state, error))?;
    Ok(state)
}

fn held(root: &Path, state: &Path) -> Failure {
    // A daemon that was killed leaves its file: whether its process is there tells.
    let alive = |daemon: &DaemonFile| Path::new("/proc").join(daemon.pid.to_string()).exists();
    match read(state).filter(alive) {
        Some(daemon) => {
            let message = format!("another daemon (pid {}) owns {}", daemon.pid, root.display());
            Failure::new(Code::Ehostdown, message)
                .hint("use that one, stop it first, or name another root with --root")
        }
        None => {
            let message = format!(
                "{} is in use: a daemon is starting or stopping, or `ctx reindex` is running",
                root.display()
            );
            Failure::new(Code::Ehostdown, message).hint("try again later, or name another root with --root")
        }
    }
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|error| cannot(path, error))
}

/// The root cannot be used; the message names the file, the hint says what is needed.
pub(super) fn cannot(path: &Path, error: std::io::Error) -> Failure {
    let denied = matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied);
    if denied {
        return Failure::new(Code::Eacces, format!("{}: {error}", path.display()))
            .hint("the daemon must be able to write its root; name another one with --root or CTX_ROOT");
    }
    Failure::io(path.display(), error)
}

fn read(state: &Path) -> Option<DaemonFile> {
    let mut text = String::new();
    File::open(state.join("daemon.json")).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

impl Owned {
    /// Says who owns the root and where to reach it; there before the first agent socket answers.
    pub(super) fn announce(
        &self,
        started_at: Timestamp,
        address: std::net::SocketAddr,
    ) -> Result<(), Failure> {
        let daemon = DaemonFile {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: Some(address.to_string()),
            started_at: started_at.as_millis(),
            api: "api.sock".to_owned(),
        };
        let path = self.state.join("daemon.json");
        let text =
            serde_json::to_string(&daemon).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let text = format!("{text}\n");
        match replace(&path, text.as_bytes(), 0o600) {
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                // A full disk is served too. The file of an earlier daemon has room of its own; without it, clients find
                // the socket and not the address.
                if overwrite(&path, text.as_bytes()).is_err() {
                    tracing::warn!(path = %path.display(), %error, "daemon.json could not be written");
                }
                Ok(())
            }
            replaced => replaced.map_err(|error| cannot(&path, error)),
        }
    }

    /// Nobody is to look for us any more. The lock goes with the process.
    pub(super) fn leave(&self) {
        let path = self.state.join("daemon.json");
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "daemon.json could not be removed");
        }
    }
}

/// Writes over a small file that is there, in the room that it has.
fn overwrite(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// Puts a small file of the daemon's in place in one step; it is on disk when this returns.
pub(super) fn replace_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = write_beside(path, bytes, 0o600)?;
    File::open(&beside)?.sync_all()?;
    std::fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Puts a small file in place in one step.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    std::fs::rename(write_beside(path, bytes, mode)?, path)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<PathBuf> {
    // A name that nothing else in the directory can have.
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.new"));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(beside)
}
