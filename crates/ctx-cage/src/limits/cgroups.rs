//! The control groups of cages on this machine: made, entered, read, removed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::means::Means;
use super::plan::CgroupPlan;
use crate::error::CageError;
use crate::value::Limit;

/// All groups of cages begin with this.
const PREFIX: &str = "ctx-cage-";
/// What `bwrap` is called as begins with this; then comes the name of its cage.
pub(crate) const PROCESS_PREFIX: &str = "bwrap:";
/// How long processes that were killed may take to leave their group.
const LEAVE_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The name of a cage's groups. The parent is who started it; a leftover is swept when its parent is gone.
pub(crate) fn name(parent: &str, id: &str) -> String {
    format!("{PREFIX}{parent}.{id}")
}

/// The parent in the name of a group, if it is a cage's.
pub fn parent_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.rsplit_once('.').map(|(parent, _)| parent)
}

/// The groups of a cage; dropping it removes them.
#[derive(Debug)]
pub(crate) struct Groups {
    pub plan: CgroupPlan,
}

impl Groups {
    /// Makes the groups and sets their limits.
    pub fn make(plan: CgroupPlan) -> Result<Groups, CageError> {
        let groups = Groups { plan };
        for dir in &groups.plan.dirs {
            std::fs::create_dir(dir).map_err(|error| failed(dir, error))?;
        }
        for (path, value) in &groups.plan.writes {
            std::fs::write(path, value).map_err(|error| failed(path, error))?;
        }
        for (path, value) in &groups.plan.tries {
            let _ = std::fs::write(path, value);
        }
        Ok(groups)
    }

    /// Puts a process, and with it all that it starts later, into every group.
    pub fn enter(&self, pid: Pid) -> Result<(), CageError> {
        for dir in &self.plan.dirs {
            let path = dir.join("cgroup.procs");
            std::fs::write(&path, pid.as_raw_nonzero().to_string()).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }
}

/// The limit that the groups of a cage have reached: a process was killed for memory, or could not be started.
pub(crate) fn limit_reached(plan: &CgroupPlan) -> Option<Limit> {
    let has = |path: &Option<PathBuf>, word| path.as_deref().is_some_and(|path| count(path, word) > 0);
    match () {
        () if has(&plan.memory_events, "oom_kill") => Some(Limit::Memory),
        () if has(&plan.process_events, "max") => Some(Limit::Processes),
        () => None,
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for dir in &self.plan.dirs {
            if let Err(error) = empty(dir) {
                tracing::warn!(dir = %dir.display(), %error, "the group of a cage is left; the next start sweeps it");
            }
        }
    }
}

fn failed(path: &Path, error: io::Error) -> CageError {
    CageError::io(format!("cannot set the limits of a cage: {}", path.display()), error)
}

/// The number after a word in a file of counts.
fn count(path: &Path, word: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number =
        text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok());
    number.unwrap_or(0)
}

/// Kills what is left of cages whose parent is gone, and removes their groups; how many. At a start this is what a
/// daemon that was killed has left.
pub fn sweep(means: &Means, is_gone: impl Fn(&str) -> bool) -> usize {
    let dirs = means.bases().into_iter().flat_map(|base| groups_in(&base.dir));
    let is_left = |dir: &PathBuf| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name.and_then(parent_of).is_some_and(&is_gone)
    };
    let left: Vec<PathBuf> = dirs.filter(is_left).collect();
    // All at first: what one hierarchy holds frozen would not leave the group of another.
    left.iter().for_each(|dir| kill_members(dir));
    let processes = kill_processes(&is_gone);
    left.iter().filter(|dir| empty(dir).is_ok()).count() + processes
}

/// Kills what `bwrap` left outside of all groups: where there are none, or when it was about to enter them. How many.
fn kill_processes(is_gone: &impl Fn(&str) -> bool) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_left = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let name = line.split(|byte| *byte == 0).next().and_then(|name| std::str::from_utf8(name).ok());
        name.and_then(|name| parent_of(name.strip_prefix(PROCESS_PREFIX)?)).is_some_and(is_gone)
    };
    let killed = pids.filter(is_left).filter_map(Pid::from_raw);
    killed.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

fn groups_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Kills all processes of a group and removes it. Nobody else puts processes into it.
fn empty(dir: &Path) -> io::Result<()> {
    let until = Instant::now() + LEAVE_MAX;
    loop {
        match std::fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => {}
        }
        kill_members(dir);
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn kill_members(dir: &Path) {
    let pids = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
    // What is frozen by version 1 dies only when it is thawed. The other hierarchies have no such file.
    let state = dir.join("freezer.state");
    if state.exists() {
        let _ = std::fs::write(state, "THAWED");
    }
}
