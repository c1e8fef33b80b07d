//! Who may read what the daemon keeps, and which files count as its own.
//!
//! Everything the daemon writes stays its own (0600, directories 0700). The user it is kept for gets an entry in the
//! file's ACL that lets them read it and nothing more; so does the group of a space. Where a file system has no ACLs, a
//! group of the file does the same, and a user's group only if nobody else is in it. Where that is not so, the
//! daemon alone reads the file, and its API serves the user.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Gid, Mode, Stat, XattrFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::path::Owner;

const ACL: &str = "system.posix_acl_access";
/// Room for the ACLs that are written here, and for some that an operator made longer.
const ACL_BYTES: usize = 1024;
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// In such a directory others make what is theirs, and cannot rename or remove what is not.
const STICKY: u32 = 0o1000;

/// What is made readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    /// Its user may connect, which is a right to write.
    Socket,
    /// A directory in which its user makes what is theirs; it is sticky.
    Shared,
}

impl Kind {
    /// What the daemon may do with it, and what its reader may.
    fn rights(self) -> (u16, u16) {
        match self {
            Kind::File => (6, 4),
            Kind::Dir => (7, 5),
            Kind::Socket => (6, 6),
            Kind::Shared => (7, 7),
        }
    }
}

/// The ACL of something that is the daemon's and that a user, or the group of a space, may read.
pub fn encode(kind: Kind, owner: Owner) -> Vec<u8> {
    let (own, reader) = kind.rights();
    let (tag, id) = owner.space.map_or((USER, owner.uid), |gid| (GROUP, gid));
    let mut entries = [
        (USER_OBJ, own, NO_ID),
        (tag, reader, id),
        (GROUP_OBJ, 0, NO_ID),
        (MASK, reader, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    // The kernel takes them in the order of their tags only.
    entries.sort_by_key(|(tag, _, _)| *tag);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The user and the group that an ACL names.
fn decode(bytes: &[u8]) -> (Option<u32>, Option<u32>) {
    let (mut user, mut group) = (None, None);
    for entry in bytes.get(4..).unwrap_or_default().chunks_exact(8) {
        if let [a, b, _, _, id @ ..] = entry
            && let Ok(id) = <[u8; 4]>::try_from(id)
        {
            match u16::from_le_bytes([*a, *b]) {
                USER => user = Some(u32::from_le_bytes(id)),
                GROUP => group = Some(u32::from_le_bytes(id)),
                _ => {}
            }
        }
    }
    (user, group)
}

/// Lets those read something of ours whom it is kept for. What is kept for the daemon itself stays as it was made.
pub fn let_read(fd: impl AsFd, kind: Kind, owner: Owner) -> io::Result<()> {
    if owner.is_own() {
        return Ok(());
    }
    match rustix::fs::fsetxattr(&fd, ACL, &encode(kind, owner), XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => let_group_read(fd, kind, owner),
        set => Ok(set?),
    }
}

/// Lets a user make what is theirs in a sticky directory of ours. Without ACLs they cannot.
pub fn let_write(fd: impl AsFd, user: Owner) -> io::Result<()> {
    match rustix::fs::fsetxattr(&fd, ACL, &encode(Kind::Shared, user), XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        set => Ok(set?),
    }
}

/// Lets one user connect to a socket of ours, or everyone. A socket cannot be opened to change it, so its directory must
/// be one that nobody else writes.
pub fn let_connect(path: &Path, only: Option<Owner>) -> io::Result<()> {
    // What an ACL said before does not matter any more; there may be none.
    let _ = rustix::fs::removexattr(path, ACL);
    let mode = if only.is_some() { 0o600 } else { 0o666 };
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    let Some(owner) = only.filter(|owner| !owner.is_own()) else { return Ok(()) };
    match rustix::fs::setxattr(path, ACL, &encode(Kind::Socket, owner), XattrFlags::empty()) {
        // Then everyone connects, and whoever is not the one is refused by the door.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?),
        set => Ok(set?),
    }
}

fn let_group_read(fd: impl AsFd, kind: Kind, owner: Owner) -> io::Result<()> {
    let Some(gid) = owner.space.or_else(|| (sole_member(owner.gid) == Some(owner.uid)).then_some(owner.gid))
    else {
        return Ok(());
    };
    let (own, reader) = kind.rights();
    match rustix::fs::fchown(&fd, None, Some(Gid::from_raw(gid))) {
        // Only a group that the daemon is in can be given by one that is not root.
        Err(Errno::PERM) => return Ok(()),
        done => done?,
    }
    Ok(rustix::fs::fchmod(&fd, Mode::from_raw_mode(u32::from(own << 6 | reader << 3)))?)
}

/// Whom a file of the daemon's is kept for, so that what is made beside it can be kept for the same.
pub fn kept_for(fd: impl AsFd) -> io::Result<Owner> {
    let stat = rustix::fs::fstat(&fd)?;
    let mut room = [0; ACL_BYTES];
    let len = match rustix::fs::fgetxattr(&fd, ACL, &mut room) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::RANGE) => 0,
        Err(error) => return Err(error.into()),
    };
    let own = Owner::own();
    Ok(match decode(room.get(..len).unwrap_or_default()) {
        (_, Some(gid)) => Owner { space: Some(gid), ..own },
        (Some(uid), None) => Owner::user(uid, stat.st_gid),
        (None, None) if stat.st_gid == own.gid || stat.st_mode & 0o040 == 0 => own,
        (None, None) => match sole_member(stat.st_gid) {
            Some(uid) => Owner::user(uid, stat.st_gid),
            None => Owner { space: Some(stat.st_gid), ..own },
        },
    })
}

impl Owner {
    /// What is kept for a user.
    pub fn user(uid: u32, gid: u32) -> Owner {
        Owner { uid, gid, space: None }
    }

    /// Who the daemon runs as: what is its own alone.
    pub fn own() -> Owner {
        Owner::user(geteuid().as_raw(), getegid().as_raw())
    }

    fn is_own(self) -> bool {
        self.space.is_none() && self.uid == geteuid().as_raw()
    }
}

/// The one user that is in a group, if it has one member.
fn sole_member(gid: u32) -> Option<u32> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    sole_member_in(&read("/etc/passwd"), &read("/etc/group"), gid)
}

/// The same in the texts of the two files. A user that they do not name is in no group of one.
fn sole_member_in(passwd: &str, group: &str, gid: u32) -> Option<u32> {
    let users: Vec<(&str, u32, u32)> = passwd.lines().filter_map(user_in).collect();
    let named = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let named = named.filter(|parts| parts.get(2).and_then(|id| id.parse().ok()) == Some(gid));
    let names: Vec<&str> =
        named.filter_map(|parts| parts.get(3).copied()).flat_map(|list| list.split(',')).collect();
    let mut members: Vec<u32> = users.iter().filter(|user| user.2 == gid).map(|user| user.1).collect();
    for name in names.into_iter().map(str::trim).filter(|name| !name.is_empty()) {
        // A member that nobody knows may be anyone.
        members.push(users.iter().find(|user| user.0 == name)?.1);
    }
    members.dedup();
    match members.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

fn user_in(line: &str) -> Option<(&str, u32, u32)> {
    let mut parts = line.split(':');
    let name = parts.next()?;
    Some((name, parts.nth(1)?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Why something is not the daemon's alone: it is not believed, whatever it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// It belongs to someone else.
    Owner(u32),
    /// Others may write it. This is also what the mask of an ACL shows that lets someone write.
    Writable(u32),
    /// It has other names, under which it may be anyone's. Who serves one user alone may well have backups of hard links.
    Links(u64),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Foreign::Owner(uid) => write!(f, "it belongs to uid {uid}"),
            Foreign::Writable(mode) => write!(f, "others may write it (mode {mode:04o})"),
            Foreign::Links(count) => write!(f, "it has {count} names (hard links)"),
        }
    }
}

/// Whether a file or directory is foreign to the one whose root it is in. What root owns is as good as the daemon's.
pub fn foreign(uid: u32, mode: u32, links: u64, daemon: u32) -> Option<Foreign> {
    let is_dir = mode & 0o170_000 == 0o040_000;
    if uid != daemon && uid != 0 {
        Some(Foreign::Owner(uid))
    } else if mode & 0o022 != 0 && !(is_dir && mode & STICKY != 0) {
        Some(Foreign::Writable(mode & 0o7777))
    } else if !is_dir && links > 1 && daemon == 0 {
        Some(Foreign::Links(links))
    } else {
        None
    }
}

pub(crate) fn foreign_stat(stat: &Stat, daemon: u32) -> Option<Foreign> {
    foreign(stat.st_uid, stat.st_mode, stat.st_nlink, daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_a_version_and_entries_in_their_order() {
        let words = |bytes: &[u8]| {
            let entries = bytes[4..].chunks(8);
            let number = |part: &[u8]| part.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
            entries.map(|e| (number(&e[..2]), number(&e[2..4]), number(&e[4..]))).collect::<Vec<_>>()
        };
        let bytes = encode(Kind::File, Owner::user(0x0102_0304, 7));
        assert_eq!(bytes[..4], [2, 0, 0, 0]);
        assert_eq!(
            words(&bytes),
            [(1, 6, NO_ID), (2, 4, 0x0102_0304), (4, 0, NO_ID), (0x10, 4, NO_ID), (0x20, 0, NO_ID)]
        );
        let space = Owner { space: Some(88), ..Owner::user(1, 2) };
        assert_eq!(
            words(&encode(Kind::Dir, space)),
            [(1, 7, NO_ID), (4, 0, NO_ID), (8, 5, 88), (0x10, 5, NO_ID), (0x20, 0, NO_ID)]
        );
        assert_eq!(decode(&bytes), (Some(0x0102_0304), None));
        assert_eq!(decode(&encode(Kind::File, space)), (None, Some(88)));
        assert_eq!(decode(b""), (None, None));
    }

    #[test]
    fn a_group_of_one_is_told_from_one_of_several() {
        let passwd = "ann:x:10:100::/:\nbob:x:11:101::/:\neve:x:12:101::/:\ncy:x:13:103::/:\n";
        let group = "ann:x:100:\nall:x:101:\nprojects:x:102:ann\nduo:x:103:ann\nodd:x:104:ann,unknown\nself:x:100:ann\n";
        let sole = |gid| sole_member_in(passwd, group, gid);
        assert_eq!([sole(100), sole(101), sole(102)], [Some(10), None, Some(10)]);
        assert_eq!([sole(103), sole(104), sole(999)], [None, None, None]);
    }

    #[test]
    fn what_others_own_or_write_or_have_named_is_foreign() {
        let file = |uid, mode, links| foreign(uid, 0o100_000_u32 | mode, links, 7);
        assert_eq!([file(7, 0o600, 1), file(7, 0o640, 1), file(0, 0o644, 1), file(7, 0o600, 0)], [None; 4]);
        assert_eq!(file(8, 0o600, 1), Some(Foreign::Owner(8)));
        assert_eq!(file(7, 0o620, 1), Some(Foreign::Writable(0o620)), "also by the mask of an ACL");
        assert_eq!(file(7, 0o602, 1), Some(Foreign::Writable(0o602)));
        assert_eq!(file(7, 0o600, 2), None, "a backup of hard links, where one user is served");
        assert_eq!(foreign(0, 0o100_600, 2, 0), Some(Foreign::Links(2)));
        assert_eq!(foreign(7, 0o040_755, 9, 7), None, "a directory has a name in each that is in it");
        assert_eq!(foreign(7, 0o040_775, 2, 7), Some(Foreign::Writable(0o775)));
        assert_eq!(foreign(7, 0o041_775, 2, 7), None, "what is in it is looked at by itself");
        assert_eq!(foreign(8, 0o041_775, 2, 7), Some(Foreign::Owner(8)));
    }
}
