//! The processes of a cage, seen from outside: the first process of its pid namespace and all that descend from it.
//!
//! A process that leaves its parent becomes a child of the first one, so none is missed. Nothing enters the namespace:
//! a process of ours in there would show the host's files to the cage in `/proc`.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// A process and its start, which tells it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: i32,
    pub parent: i32,
    started: u64,
    is_stopped: bool,
}

impl Process {
    /// It may have ended meanwhile.
    pub fn signal(&self, signal: Signal) {
        let is_same = read(self.pid).is_some_and(|now| now.started == self.started);
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| is_same) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Stops all processes; those that were running, and are to go on later. A process may start another between two looks,
/// so it is looked again until there is none to stop.
pub(super) fn stop_all(first: Pid) -> Vec<Process> {
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
pub(super) fn is_child(pid: Pid, parent: Pid, uid: u32) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let first = |key: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
    };
    first("PPid:") == u32::try_from(parent.as_raw_nonzero().get()).ok() && first("Uid:") == Some(uid)
}

/// The first process and its descendants that have not ended.
pub(super) fn family(first: Pid) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in pids.filter_map(read) {
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

/// A process that has not ended, from `/proc/<pid>/stat`. The name in it may hold anything but is the
/// last in parentheses.
fn read(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let state = *fields.first()?;
    let process = Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        is_stopped: matches!(state, "T" | "t"),
    };
    (!matches!(state, "Z" | "X")).then_some(process)
}
