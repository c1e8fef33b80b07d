//! Processes as `/proc` shows them; those of a cage are the first process of its pid namespace and all that descend from it.
//!
//! A process of a cage that leaves its parent becomes a child of the first one, so none is missed. Nothing enters the
//! namespace: a process of ours in there would show the host's files to the cage in `/proc`.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// A process that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Clock ticks since boot; with the pid it names a process for good.
    pub started: u64,
    pub is_stopped: bool,
}

impl Process {
    /// It may have ended meanwhile.
    pub(crate) fn signal(&self, signal: Signal) {
        let is_same = read(self.pid).is_some_and(|now| now.started == self.started);
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| is_same) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Stops all processes; those that were running, and are to go on later. A process may start another between two looks,
/// so it is looked again until there is none to stop.
pub(crate) fn stop_all(first: Pid) -> Vec<Process> {
    const LOOKS_MAX: usize = 1_000;
    let mut stopped: Vec<Process> = Vec::new();
    for _ in 0..LOOKS_MAX {
        let running: Vec<Process> = family(first).into_iter().filter(|process| !process.is_stopped).collect();
        if running.is_empty() {
            break;
        }
        for process in running {
            process.signal(Signal::STOP);
            let is_known =
                stopped.iter().any(|known| (known.pid, known.started) == (process.pid, process.started));
            if !is_known {
                stopped.push(process);
            }
        }
    }
    stopped
}

/// Whether a process is the child of another and runs as this user.
pub(crate) fn is_child(pid: Pid, parent: Pid, uid: u32) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let first = |key: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
    };
    first("PPid:") == u32::try_from(parent.as_raw_nonzero().get()).ok() && first("Uid:") == Some(uid)
}

/// The first process and its descendants that have not ended.
pub(crate) fn family(first: Pid) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found: Vec<Process> = read(first.as_raw_nonzero().get()).into_iter().collect();
    let mut at = 0;
    while let Some(process) = found.get(at).copied() {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// All processes that there are.
pub fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).filter_map(read)
}

pub fn read(pid: i32) -> Option<Process> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads a `/proc/<pid>/stat`. The name in it may hold anything but is the last in parentheses.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let state = *fields.first()?;
    let process = Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        is_stopped: matches!(state, "T" | "t"),
    };
    (!matches!(state, "Z" | "X")).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse_the_reader() {
        let stat = "42 (a) b (c)) S 7 40 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
        let want = Process { pid: 42, parent: 7, group: 40, started: 98765, is_stopped: false };
        assert_eq!(parse(42, stat), Some(want));
        assert_eq!(parse(42, &stat.replace(" S ", " Z ")), None);
    }

    #[test]
    fn this_process_is_found_with_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let found = all().find(|process| process.pid == me).unwrap();
        assert_eq!(found.parent, i32::try_from(std::os::unix::process::parent_id()).unwrap());
    }
}
