//! Lends root's files to a cage of root's.
//!
//! The processes of a cage never have root's rights, so a cage of root's is nobody's, and nobody could not change root's own
//! project, or reach it below `/root`. So the sources in [`Cage::lent`] are mounted once more, for this cage alone, with root
//! and nobody exchanged (an idmapped mount): inside, root's files are the agent's, and what it makes is root's on the disk. What
//! else the cage may write is nobody's already (its home), and is mounted as it is, because it may lie below `/root` too. All
//! other files stay unreadable. It needs a kernel and a file system that can do this, and root; else, and where a
//! single file may be written, the cage is as it is without.

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

use crate::value::{Access, Cage, Mount};

/// Where the mounts are, each seen by one cage alone. Its parent is root's, so nobody puts anything else there.
const PLACE: &str = "/run/ctx-lent";
/// Root and nobody exchanged, all others as they are.
const EXCHANGED: &str = "0 65534 1\n1 1 65533\n65534 0 1\n65535 65535 4294901760\n";

/// A source that is mounted for one cage, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lent {
    source: PathBuf,
    place: PathBuf,
    /// Whether root's files in it become the cage's.
    exchanges: bool,
}

/// Whether a mount of this cage is reached by its place and not by its source.
pub(super) fn is_placed(cage: &Cage, mount: &Mount) -> bool {
    let is_lent = || cage.lent.iter().any(|lent| mount.source.starts_with(lent));
    match mount.access {
        Access::Link => false,
        Access::Rw => !cage.lent.is_empty(),
        Access::Ro => is_lent(),
    }
}

/// The cage with places instead of sources, and what is to be mounted there.
pub(super) fn with_places(cage: &Cage) -> (Cage, Vec<Lent>) {
    let lent = cage.lent.iter().map(|source| (source, true));
    let placed =
        cage.mounts.iter().filter(|mount| is_placed(cage, mount)).map(|mount| (&mount.source, false));
    let mut all: Vec<Lent> = Vec::new();
    for (source, exchanges) in lent.chain(placed) {
        if !all.iter().any(|known| source.starts_with(&known.source)) {
            let place = Path::new(PLACE).join(all.len().to_string());
            all.push(Lent { source: source.clone(), place, exchanges });
        }
    }
    let mut made = Cage { lent: Vec::new(), ..cage.clone() };
    for mount in made.mounts.iter_mut().filter(|mount| is_placed(cage, mount)) {
        let placed =
            all.iter().find_map(|lent| Some(lent.place.join(mount.source.strip_prefix(&lent.source).ok()?)));
        mount.source = placed.unwrap_or_else(|| std::mem::take(&mut mount.source));
    }
    (made, all)
}

/// Mounts the sources at their places, for this thread and what it starts.
pub(super) fn mount(all: &[Lent]) -> Result<(), String> {
    let failed = |what: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", what.display());
    let exchange = exchange()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("cannot make a mount namespace: {error}"))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| format!("cannot keep mounts apart: {error}"))?;
    for Lent { source, place, exchanges } in all {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, source, flags | OpenTreeFlags::AT_RECURSIVE)
            .map_err(|error| failed(source, &error))?;
        if *exchanges {
            // A file system that is mounted below may not be able to: it is shown as it is.
            set_exchange(&tree, &exchange, libc::AT_RECURSIVE)
                .or_else(|_| set_exchange(&tree, &exchange, 0))
                .map_err(|error| failed(source, &error))?;
        }
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(place)
            .map_err(|error| failed(place, &error))?;
        move_mount(tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| failed(source, &error))?;
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
