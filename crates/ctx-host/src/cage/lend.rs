//! Lends root's files to a cage of root's.
//!
//! The processes of a cage never have root's rights, so a cage of root's is nobody's, and nobody could not change root's own
//! project, or reach it below `/root`. So the sources in [`Cage::lent`] are mounted once more, for this cage alone, with root
//! and nobody exchanged (an idmapped mount): inside, root's files are the agent's, and what it makes is root's on the disk. Files
//! outside of them stay unreadable. It needs a kernel and a file system that can do this, and root; else the cage is as it is
//! without.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
};

use super::value::{Access, Cage};

/// Where the mounts are, each seen by one cage alone. Its parent is root's, so nobody puts anything else there.
const PLACE: &str = "/run/ctx-lent";
/// Root and nobody exchanged, all others as they are.
const EXCHANGED: &str = "0 65534 1\n1 1 65533\n65534 0 1\n65535 65535 4294901760\n";

/// The cage with the places of its lent sources instead of the sources, and the sources with their places.
pub(super) fn with_places(cage: &Cage) -> (Cage, Vec<(PathBuf, PathBuf)>) {
    let places: Vec<(PathBuf, PathBuf)> = cage
        .lent
        .iter()
        .enumerate()
        .map(|(n, source)| (source.clone(), Path::new(PLACE).join(n.to_string())))
        .collect();
    let mut placed = Cage { lent: Vec::new(), ..cage.clone() };
    for mount in placed.mounts.iter_mut().filter(|mount| mount.access != Access::Link) {
        let below =
            |(source, place): &(PathBuf, PathBuf)| Some(place.join(mount.source.strip_prefix(source).ok()?));
        if let Some(placed) = places.iter().find_map(below) {
            mount.source = placed;
        }
    }
    (placed, places)
}

/// Mounts the sources at their places, for this thread and what it starts.
pub(super) fn mount(places: &[(PathBuf, PathBuf)]) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let exchange = exchange()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| failed("cannot make a mount namespace", &error))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| failed("cannot keep mounts apart", &error))?;
    for (source, place) in places {
        let shown = source.display().to_string();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, source, flags | OpenTreeFlags::AT_RECURSIVE)
            .map_err(|error| failed(&shown, &error))?;
        // A file system that is mounted below may not be able to: it is shown as it is.
        set_exchange(&tree, &exchange, libc::AT_RECURSIVE)
            .or_else(|_| set_exchange(&tree, &exchange, 0))
            .map_err(|error| failed(&shown, &error))?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(place)
            .map_err(|error| failed(&place.display().to_string(), &error))?;
        move_mount(tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| failed(&shown, &error))?;
    }
    Ok(())
}

/// A user namespace that says who is exchanged with whom. It is made once and is nothing but that: no process is in it.
fn exchange() -> Result<OwnedFd, String> {
    static MADE: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let failed = |error: std::io::Error| format!("cannot make a user namespace: {error}");
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = &*made {
        return made.try_clone().map_err(failed);
    }
    let mut child = Command::new("unshare")
        .args(["--user", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let of_child = namespace_of(&mut child).map_err(failed);
    let _ = child.kill();
    let _ = child.wait();
    let namespace = of_child?;
    *made = Some(namespace.try_clone().map_err(failed)?);
    Ok(namespace)
}

fn namespace_of(child: &mut std::process::Child) -> std::io::Result<OwnedFd> {
    // It answers once it is in its namespace.
    let (Some(stdin), Some(stdout)) = (&mut child.stdin, &mut child.stdout) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    stdin.write_all(b"1")?;
    stdout.read_exact(&mut [0])?;
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    std::fs::write(proc.join("uid_map"), EXCHANGED)?;
    std::fs::write(proc.join("gid_map"), EXCHANGED)?;
    Ok(std::fs::File::open(proc.join("ns/user"))?.into())
}

#[expect(unsafe_code, reason = "no library of ours wraps this call")]
fn set_exchange(tree: &OwnedFd, exchange: &OwnedFd, recursive: libc::c_int) -> std::io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(exchange.as_raw_fd()).map_err(std::io::Error::other)?,
    };
    // SAFETY: the path is a text that ends with a NUL, the attributes live until the call returns, their size is that of the
    // structure, and both descriptors are open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
