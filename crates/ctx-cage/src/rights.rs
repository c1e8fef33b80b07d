//! The rights of a user around work on files that the daemon does for them in its own process.
//!
//! The kernel checks every access with the ids of the thread that makes it. So the thread that works for a user gets the
//! user's file system ids and groups, and no capability is in effect: what it can see and open is what the user can, and
//! an error is the one that the user would get. The ids are those of one thread; others are not touched. The process's
//! own ids stay, so that the user cannot signal or trace it.
//!
//! The work must not await and must not start threads: they would have the daemon's rights, or keep the user's. Nothing
//! here decides whose rights are needed.

use std::collections::HashMap;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ctx_session::{Code, Refusal};
use nix::unistd::{setfsgid, setfsuid};
use rustix::process::{Gid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups};

/// How long a user's groups are taken as they were found: asking may take a network.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// Users whose groups are remembered; with more, all are asked for again.
const KNOWN_MAX: usize = 1_000;
/// The group of a uid that is no user of this machine: the kernel's own number for "no such group".
pub const NO_GROUP: u32 = 65_534;
/// No user has this id: the calls change nothing and return the one in effect.
const NO_ID: u32 = u32::MAX;

/// As whom files are opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights(Option<Arc<Ids>>);

/// The ids of a user other than the one this process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

/// Why work could not be done with a user's rights. It was not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    #[error("this daemon runs as uid {own} and not as root, so it opens no files for uid {asked}")]
    NotRoot { own: u32, asked: u32 },
    #[error("the daemon cannot take the rights of uid {asked}: {detail}")]
    Refused { asked: u32, detail: String },
}

impl From<RightsError> for Refusal {
    fn from(error: RightsError) -> Refusal {
        Refusal::new(Code::Eacces, error.to_string())
    }
}

impl Rights {
    /// Those of this process itself.
    pub fn own() -> Rights {
        Rights(None)
    }

    /// Those of a user. Only root can take another user's. May ask the network for the groups.
    pub fn of(uid: u32) -> Result<Rights, RightsError> {
        match geteuid().as_raw() {
            // The calls below would change nothing.
            _ if uid == NO_ID => {
                Err(RightsError::Refused { asked: uid, detail: "no user has this number".to_owned() })
            }
            own if own == uid => Ok(Rights::own()),
            0 => Ids::known(uid).map(|ids| Rights(Some(ids))),
            own => Err(RightsError::NotRoot { own, asked: uid }),
        }
    }

    pub fn uid(&self) -> u32 {
        self.0.as_ref().map_or_else(|| geteuid().as_raw(), |ids| ids.uid)
    }

    /// Does some work with these rights. The thread has its own again when this returns, also after a panic.
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> Result<T, RightsError> {
        let _taken = self.0.as_deref().map(Taken::take).transpose()?;
        Ok(work())
    }
}

/// The groups that a user is in, their own first; none for a uid that is no user. May ask the network.
pub fn groups_of(uid: u32) -> Result<Vec<u32>, RightsError> {
    let ids = Ids::known(uid)?;
    let others = ids.groups.iter().map(|gid| gid.as_raw()).filter(|gid| *gid != ids.gid);
    Ok(std::iter::once(ids.gid).filter(|gid| *gid != NO_GROUP).chain(others).collect())
}

/// Users whose groups were asked for, and when.
static KNOWN: LazyLock<Mutex<HashMap<u32, Known>>> = LazyLock::new(Mutex::default);

struct Known {
    asked: Instant,
    ids: Arc<Ids>,
}

impl Ids {
    fn known(uid: u32) -> Result<Arc<Ids>, RightsError> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |known: &&Known| known.asked.elapsed() < KNOWN_FOR;
        if let Some(Known { ids, .. }) = known().get(&uid).filter(fresh) {
            return Ok(Arc::clone(ids));
        }
        // Asked without the lock: nobody else waits for the answer.
        let detail = |error: nix::Error| RightsError::Refused { asked: uid, detail: error.to_string() };
        let ids = Arc::new(Ids::ask(uid).map_err(detail)?);
        let mut known = known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(uid, Known { asked: Instant::now(), ids: Arc::clone(&ids) });
        Ok(ids)
    }

    fn ask(uid: u32) -> nix::Result<Ids> {
        let Some(user) = nix::unistd::User::from_uid(uid.into())? else {
            return Ok(Ids { uid, gid: NO_GROUP, groups: Vec::new() });
        };
        let name = CString::new(user.name).map_err(|_| nix::Error::EINVAL)?;
        let groups = nix::unistd::getgrouplist(&name, user.gid)?;
        let groups = groups.into_iter().map(|gid| Gid::from_raw(gid.as_raw())).collect();
        Ok(Ids { uid, gid: user.gid.as_raw(), groups })
    }
}

/// A thread with another user's rights; dropping it gives the thread its own back.
struct Taken {
    groups: Vec<Gid>,
    uid: u32,
    gid: u32,
    capabilities: CapabilitySets,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Taken {
    fn take(ids: &Ids) -> Result<Taken, RightsError> {
        let refused = |detail: String| RightsError::Refused { asked: ids.uid, detail };
        let failed = |error: rustix::io::Errno| refused(error.to_string());
        let (groups, capabilities) = (getgroups().map_err(failed)?, capabilities(None).map_err(failed)?);
        let (uid, gid) = (setfsuid(NO_ID.into()).as_raw(), setfsgid(NO_ID.into()).as_raw());
        // Fails, and changes nothing, where the thread has a user's rights already.
        set_thread_groups(&ids.groups).map_err(failed)?;
        // Whatever fails from here on is undone by the drop.
        let taken = Taken { groups, uid, gid, capabilities, _thread: PhantomData };
        set_ids(ids.uid, ids.gid).map_err(|what| refused(format!("{what} was not accepted")))?;
        let none = CapabilitySets { effective: CapabilitySet::empty(), ..taken.capabilities };
        set_capabilities(None, none).map_err(failed)?;
        Ok(taken)
    }

    fn give_back(&self) -> Result<(), String> {
        set_capabilities(None, self.capabilities).map_err(|error| error.to_string())?;
        set_ids(self.uid, self.gid)?;
        set_thread_groups(&self.groups).map_err(|error| error.to_string())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            // A thread with a stranger's rights would go on to write the daemon's own files.
            tracing::error!(%error, "a thread could not leave the rights of a user; the daemon stops");
            std::process::abort();
        }
    }
}

/// The calls say nothing of a failure, so the ids are asked for afterwards.
fn set_ids(uid: u32, gid: u32) -> Result<(), String> {
    setfsgid(gid.into());
    setfsuid(uid.into());
    if setfsgid(NO_ID.into()).as_raw() != gid {
        return Err(format!("gid {gid}"));
    }
    match setfsuid(NO_ID.into()).as_raw() {
        now if now == uid => Ok(()),
        _ => Err(format!("uid {uid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Uid;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::{Path, PathBuf};
    use std::sync::Barrier;

    const ANN: u32 = 54_401;
    const BOB: u32 = 54_402;

    /// What the kernel says of this thread: ids, groups and capabilities.
    fn status() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let told =
            |line: &&str| ["Uid:", "Gid:", "Groups:", "CapEff:"].iter().any(|key| line.starts_with(key));
        status.lines().filter(told).collect::<Vec<_>>().join("\n")
    }

    fn private_file(dir: &Path, owner: u32) -> PathBuf {
        let path = dir.join(owner.to_string());
        std::fs::write(&path, format!("of {owner}")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner), Some(owner)).expect("this test needs root");
        path
    }

    fn open_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        dir
    }

    #[test]
    fn a_user_opens_their_own_files_and_no_others() {
        let dir = open_dir();
        let (own, other) = (private_file(dir.path(), ANN), private_file(dir.path(), BOB));
        let secret = private_file(dir.path(), 0);
        let read = |path: &Path| {
            let read = Rights::of(ANN).unwrap().act(|| std::fs::read_to_string(path)).unwrap();
            read.map_err(|error| error.kind())
        };
        assert_eq!(read(&own).as_deref(), Ok("of 54401"));
        for path in [other, secret, PathBuf::from("/etc/shadow"), PathBuf::from("/proc/1/environ")] {
            assert_eq!(read(&path), Err(std::io::ErrorKind::PermissionDenied), "{}", path.display());
        }
    }

    #[test]
    fn what_is_written_belongs_to_the_user() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let path = dir.path().join("new");
        Rights::of(ANN).unwrap().act(|| std::fs::write(&path, "x")).unwrap().unwrap();
        let data = std::fs::metadata(&path).unwrap();
        assert_eq!((data.uid(), data.gid()), (ANN, NO_GROUP));
    }

    #[test]
    fn a_thread_has_its_own_rights_again_also_after_a_panic() {
        let before = status();
        let rights = Rights::of(ANN).unwrap();
        let during = rights.act(status).unwrap();
        assert_eq!(status(), before);
        assert!(during.contains("54401\n") && during.contains("CapEff:\t0000000000000000"), "{during}");
        let panicked = catch_unwind(AssertUnwindSafe(|| rights.act(|| panic!("in the middle"))));
        assert!(panicked.is_err());
        assert_eq!(status(), before);
    }

    #[test]
    fn rights_are_not_taken_inside_rights() {
        let before = status();
        let (ann, bob) = (Rights::of(ANN).unwrap(), Rights::of(BOB).unwrap());
        let inner = ann.act(|| (bob.act(|| ()).is_err(), status())).unwrap();
        assert!(inner.0 && inner.1.contains("54401\n"), "{}", inner.1);
        assert_eq!(status(), before);
    }

    #[test]
    fn two_threads_at_once_have_each_their_user_s_rights() {
        let dir = open_dir();
        let files = [private_file(dir.path(), ANN), private_file(dir.path(), BOB)];
        let both = Barrier::new(3);
        std::thread::scope(|scope| {
            for (user, own, other) in [(ANN, &files[0], &files[1]), (BOB, &files[1], &files[0])] {
                let both = &both;
                scope.spawn(move || {
                    let rights = Rights::of(user).unwrap();
                    for _ in 0..100 {
                        let read = rights.act(|| {
                            both.wait();
                            let read = (std::fs::read(own).is_ok(), std::fs::read(other).is_ok());
                            both.wait();
                            read
                        });
                        assert_eq!(read, Ok((true, false)), "{user}");
                    }
                });
            }
            // A third has what it had, while both have taken their users' rights.
            for _ in 0..100 {
                both.wait();
                let read = files.iter().all(|file| std::fs::read(file).is_ok());
                both.wait();
                assert!(read);
            }
        });
    }

    #[test]
    fn a_user_has_the_groups_that_the_machine_knows() {
        // Every machine has this user, and a group of the same name.
        let daemon = nix::unistd::User::from_name("daemon").unwrap().expect("a user `daemon`");
        let during = Rights::of(daemon.uid.as_raw()).unwrap().act(status).unwrap();
        assert!(during.contains(&format!("Groups:\t{}", daemon.gid)), "{during}");
    }

    #[test]
    fn who_is_not_root_has_only_their_own() {
        let (own, other) = std::thread::scope(|scope| {
            let as_ann = scope.spawn(|| {
                let id = Uid::from_raw(ANN);
                rustix::thread::set_thread_res_uid(id, id, id).expect("this test needs root");
                (Rights::of(ANN), Rights::of(BOB))
            });
            as_ann.join().unwrap()
        });
        assert_eq!(own, Ok(Rights::own()));
        assert_eq!(other, Err(RightsError::NotRoot { own: ANN, asked: BOB }));
        assert_eq!(Rights::own().act(|| 7), Ok(7));
    }
}
