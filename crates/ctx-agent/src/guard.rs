//! The process between the daemon and a command that it runs for an agent: none of the command's processes outlives the
//! command, the daemon's patience, or the daemon.
//!
//! It is the reaper of all that the command starts, so that also a process that left the command's group and session is
//! found. The daemon holds the other end of a pipe that this process has as its stderr: when that closes, however it
//! came to, everything ends.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, setsid, wait,
};

/// How soon processes that were killed are looked for again, and how long.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const GIVE_UP: Duration = Duration::from_secs(10);

/// What shells exit with for a program that cannot be started, and, added to it, for a signal.
const NOT_STARTED: u8 = 127;
const SIGNALLED: i32 = 128;

/// What the names of variables for the command begin with in the guard's own environment. The guard starts with the
/// daemon's rights, and a variable such as `LD_PRELOAD` would make it run somebody's code with them.
pub const GIVEN: &str = "CTX_GIVEN_";

/// How the commands of a session's owner are started.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// The words that begin the command line of [`crate::guard()`], in whose care a command runs and which takes on the
    /// owner's rights.
    pub words: Vec<OsString>,
    /// All that a command finds in its environment.
    pub env: Vec<(OsString, OsString)>,
}

/// Finds out how the commands of a session's owner are started; asked only when there is a command. An error says why
/// there is no way.
pub type Guard = Arc<dyn Fn() -> Result<Guarded, String> + Send + Sync>;

/// As whom a command runs, and where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GuardAs {
    /// uid, gid and further groups; None: those of this process.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Entered with these rights.
    pub dir: Option<PathBuf>,
}

impl GuardAs {
    /// Takes the rights on for good: what follows can do no more than the user can.
    fn become_user(&self) -> io::Result<()> {
        if let Some((uid, gid, groups)) = &self.user {
            use rustix::process::{Gid, Uid};
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // This process has one thread.
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        match &self.dir {
            Some(dir) => std::env::set_current_dir(dir)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
            None => Ok(()),
        }
    }
}

/// Runs a command with this process's stdin and stdout until it ends or stderr closes; what to exit with.
pub fn guard(run_as: &GuardAs, command: &[OsString]) -> u8 {
    // Away from the daemon's terminal: who can type into that can type as the daemon's user. It fails for who leads a group
    // already, as in a shell of a person; then there is nothing to get away from.
    let _ = setsid();
    match run_as.become_user().and_then(|()| watch(command)) {
        Ok(status) => code_of(status),
        Err(error) => {
            // Who reads the output reads why there is none.
            let _ = writeln!(io::stdout(), "{error}");
            NOT_STARTED
        }
    }
}

/// Runs the command in a process group of its own. Its stderr is `/dev/null`, because the guard's stderr is the pipe to the daemon, and
/// variables get their own names back from those under `GIVEN`.
fn watch(command: &[OsString]) -> io::Result<ExitStatus> {
    let [program, arguments @ ..] = command else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command to run"));
    };
    set_child_subreaper(Some(getpid()))?;
    let mut starting = Command::new(program);
    for (name, value) in std::env::vars_os() {
        if let Some(given) = name.to_str().and_then(|name| name.strip_prefix(GIVEN)) {
            starting.env_remove(&name).env(given, value);
        }
    }
    let mut child = starting.args(arguments).stderr(Stdio::null()).process_group(0).spawn()?;
    let status = wait_for(&mut child);
    // Whatever came of it, nothing is left.
    end_all();
    Ok(status?.unwrap_or_else(|| ExitStatus::from_raw(Signal::KILL.as_raw())))
}

/// Until the command ends or stderr closes. Of one that goes on still there is no status.
fn wait_for(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let stderr = io::stderr();
    let mut either = [
        PollFd::new(&ended, PollFlags::IN),
        // Nothing is ever written to it: it can only close.
        PollFd::new(&stderr, PollFlags::IN),
    ];
    while let Err(error) = poll(&mut either, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    child.try_wait()
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Kills and reaps until there is no descendant. Those of a process that was killed become children of this one.
fn end_all() {
    let until = Instant::now() + GIVE_UP;
    loop {
        for pid in descendants(getpid()) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if Instant::now() >= until {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// All that a process started, and what those did, as the system knows it now.
fn descendants(of: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pairs: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![of.as_raw_nonzero().get()];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

/// The parent as `/proc/<pid>/stat` has it: the second field after the name, which may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_and_its_child_are_found() {
        let mut child = Command::new("sh")
            .args(["-c", "setsid sleep 600 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let shell = Pid::from_child(&child);
        assert!(descendants(getpid()).contains(&shell));
        let own = descendants(shell);
        assert_eq!(own.len(), 1, "{own:?}");
        let _ = kill_process(own[0], Signal::KILL);
        child.wait().unwrap();
        assert!(!descendants(getpid()).contains(&shell));
    }
}
