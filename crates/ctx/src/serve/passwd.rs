//! Users and groups of this machine, as the system's own lookup knows them (`/etc`, or a directory service behind it).

use std::path::PathBuf;

use nix::unistd::{Group, User as Known};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
    pub home: PathBuf,
    pub shell: String,
}

/// The user with this uid. May ask the network.
pub(super) fn user(uid: u32) -> Option<User> {
    let Known { name, gid, dir, shell, .. } = Known::from_uid(uid.into()).ok()??;
    let shell = shell.to_string_lossy().into_owned();
    Some(User { uid, gid: gid.as_raw(), name, home: dir, shell })
}

/// A group by its name, and else by its number. May ask the network.
pub(super) fn group(word: &str) -> Option<u32> {
    let named = Group::from_name(word).ok().flatten();
    let found = named.or_else(|| Group::from_gid(word.parse::<u32>().ok()?.into()).ok().flatten())?;
    Some(found.gid.as_raw())
}
