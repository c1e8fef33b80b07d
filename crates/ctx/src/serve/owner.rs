//! One daemon per root: the lock, and the file that names its holder.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
    let state = root.join(".state");
    make_dir(root, 0o755)?;
    make_dir(&state, 0o711)?;
    // What an umask took away is given back: others must be able to pass through to the API's socket.
    std::fs::set_permissions(&state, Permissions::from_mode(0o711)).map_err(|error| cannot(&state, error))?;
    let path = state.join("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| cannot(&path, error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Owned { state, _lock: lock }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(held(root, &state)),
        Err(error) => Err(cannot(&path, error.into())),
    }
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
        replace(&path, format!("{text}\n").as_bytes(), 0o600).map_err(|error| cannot(&path, error))
    }

    /// Nobody is to look for us any more. The lock goes with the process.
    pub(super) fn leave(&self) {
        let path = self.state.join("daemon.json");
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "daemon.json could not be removed");
        }
    }
}

/// Puts a small file in place in one step.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    std::fs::rename(&beside, path)
}
