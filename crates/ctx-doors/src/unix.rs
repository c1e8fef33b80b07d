//! Unix sockets: binding at any path length, and who is at the other end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ctx_engine::Caller;
use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// Longest path that the kernel takes for a socket.
const SUN_PATH_MAX: usize = 107;

/// A path for the kernel that names the same file, however long `path` is. Keep the directory while it is used.
pub fn short_path(path: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    if path.as_os_str().len() <= SUN_PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let missing =
        || io::Error::new(io::ErrorKind::InvalidInput, "a socket's path needs a directory and a name");
    let (dir, name) = (path.parent().ok_or_else(missing)?, path.file_name().ok_or_else(missing)?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    Ok((Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name), Some(dir)))
}

/// Binds a socket, taking the place of one that an earlier daemon left. Only the root's one daemon may call it.
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (short, _dir) = short_path(path)?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// The user at the other end, as the kernel knows them.
pub fn caller(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    Ok(Caller { uid: credentials.uid(), gid: credentials.gid() })
}
