//! How the processes of a shell are found again: which of the ways is open to this server.
//!
//! A mark (see `process_tree`) is a resource limit. A process may lower its own, and those of processes with its ids;
//! for others it needs a capability that containers mostly lack. So the shell of another user lowers its own at its start
//! where we cannot. That marks all of the shell's processes, but not in which command each was started.

use std::ffi::OsStr;
use std::path::PathBuf;

use ctx_cage::find;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};

use super::process_tree::MarkPrefix;

/// The program of util-linux by which a shell lowers its own limit.
pub(super) const PRLIMIT: &str = "prlimit";

/// How processes are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Marking {
    /// By us, with every command.
    EachCommand,
    /// By the shell itself, with this program, when it starts.
    AtStart(PathBuf),
    /// Not at all: descent is all there is.
    Descent,
}

impl Marking {
    /// The best way there is for the shells of our own user, or of another.
    pub fn new(is_other: bool, prlimit: Option<PathBuf>) -> Marking {
        Marking::of(MarkPrefix::has_room(None), !is_other || can_mark_others(None), prlimit)
    }

    fn of(has_room: bool, can_mark: bool, prlimit: Option<PathBuf>) -> Marking {
        match prlimit {
            _ if !has_room => Marking::Descent,
            _ if can_mark => Marking::EachCommand,
            Some(program) => Marking::AtStart(program),
            None => Marking::Descent,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Marking::EachCommand => "found by a mark that is set with every command (RLIMIT_LOCKS)",
            Marking::AtStart(_) => {
                "found by a mark that the shell sets at its start (RLIMIT_LOCKS; no CAP_SYS_RESOURCE)"
            }
            Marking::Descent => {
                "found by descent only, so what leaves its parent stays; install prlimit (util-linux), or grant CAP_SYS_RESOURCE and leave RLIMIT_LOCKS unlimited"
            }
        }
    }
}

/// Whether a process may change the limits of other users' processes.
fn can_mark_others(server: Option<Pid>) -> bool {
    capabilities(server).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// How the processes of shells are found, in words: of the server's own user, and of others.
pub fn processes_found_by(server: Option<Pid>, path: &OsStr) -> [&'static str; 2] {
    let prlimit = || find(PRLIMIT, path);
    let has_room = MarkPrefix::has_room(server);
    let of = |can_mark: bool| Marking::of(has_room, can_mark, prlimit()).words();
    [of(true), of(can_mark_others(server))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_used_where_the_better_one_is_closed() {
        let prlimit = || Some(PathBuf::from("/usr/bin/prlimit"));
        for (has_room, can_mark, prlimit, want) in [
            (true, true, prlimit(), Marking::EachCommand),
            (true, true, None, Marking::EachCommand),
            (true, false, prlimit(), Marking::AtStart("/usr/bin/prlimit".into())),
            (true, false, None, Marking::Descent),
            (false, true, prlimit(), Marking::Descent),
        ] {
            assert_eq!(Marking::of(has_room, can_mark, prlimit), want);
        }
    }
}
