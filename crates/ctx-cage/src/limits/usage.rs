//! What the processes of a cage use, where no control group counts it.
//!
//! The kernel gives a plain user no limit on the memory of several processes, and an error at a limit on each leaves no
//! trace that could be named. So they are looked at; limits on each process, twice as high, hold what a look comes too
//! late for.

use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use super::plan::CgroupPlan;
use crate::value::Limit;

/// No single process fills memory faster, nor starts others.
const FILLS_PER_MS: u64 = 4 << 20;
const STARTS_PER_MS: u64 = 10;
/// How close two looks may be.
pub(crate) const LOOK_MIN: Duration = Duration::from_millis(2);

/// What a look found: the limit that is passed, or for how long none can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Passed(Limit),
    FineFor(Duration),
}

/// Looks at the processes of a cage; None where groups hold all its limits.
pub(crate) fn look(plan: &CgroupPlan, first: Pid) -> Option<Look> {
    if plan.watched_memory.is_none() && plan.watched_processes.is_none() {
        return None;
    }
    let used = Used::by(first, plan.watched_memory.unwrap_or(u64::MAX));
    let memory = plan.watched_memory.map(|max| left(max, used.memory).map(|left| left / FILLS_PER_MS));
    let processes =
        plan.watched_processes.map(|max| left(max, used.processes).map(|left| left / STARTS_PER_MS));
    Some(match (memory, processes) {
        (Some(None), _) => Look::Passed(Limit::Memory),
        (_, Some(None)) => Look::Passed(Limit::Processes),
        (memory, processes) => {
            let least = memory.flatten().into_iter().chain(processes.flatten()).min();
            Look::FineFor(Duration::from_millis(least.unwrap_or_default()).max(LOOK_MIN))
        }
    })
}

/// How much is left; None: it is more than that.
fn left(max: u64, used: u64) -> Option<u64> {
    max.checked_sub(used)
}

#[derive(Debug, Default)]
struct Used {
    memory: u64,
    /// Threads too: the kernel counts them alike.
    processes: u64,
}

impl Used {
    /// The first process and all that descend from it. A page that several share is counted once where it matters.
    fn by(first: Pid, memory_max: u64) -> Used {
        let mut used = Used::default();
        let mut pids = vec![first.as_raw_nonzero().get()];
        let mut at = 0;
        while let Some(pid) = pids.get(at).copied() {
            let proc = format!("/proc/{pid}");
            let status = std::fs::read_to_string(format!("{proc}/status")).unwrap_or_default();
            used.memory += kibibytes(&status, &["RssAnon:", "RssShmem:", "VmSwap:"]);
            used.processes += number(&status, "Threads:");
            pids.extend(children(Path::new(&proc)));
            at += 1;
        }
        if used.memory > memory_max {
            used.memory = pids.iter().map(|pid| own_memory(*pid)).sum();
        }
        used
    }
}

/// The processes that any thread of this one has started.
fn children(proc: &Path) -> Vec<i32> {
    let tasks = std::fs::read_dir(proc.join("task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids =
        texts.map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>());
    pids.flatten().collect()
}

/// The memory of one process with its part of what it shares; all of that where the kernel does not say it.
fn own_memory(pid: i32) -> u64 {
    match std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Ok(rollup) => kibibytes(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]),
        Err(_) => {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            kibibytes(&status, &["RssAnon:", "RssShmem:", "VmSwap:"])
        }
    }
}

fn kibibytes(text: &str, names: &[&str]) -> u64 {
    names.iter().map(|name| number(text, name) << 10).sum()
}

fn number(text: &str, name: &str) -> u64 {
    let found =
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_sees_this_process_and_its_children() {
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let used = Used::by(own, u64::MAX);
        assert!(used.memory > 1 << 16 && used.processes >= 2, "{used:?}");
        let plan = |memory, processes| CgroupPlan {
            watched_memory: memory,
            watched_processes: processes,
            ..CgroupPlan::default()
        };
        assert_eq!(look(&plan(None, None), own), None);
        assert_eq!(look(&plan(Some(1), Some(1)), own), Some(Look::Passed(Limit::Memory)));
        assert_eq!(look(&plan(Some(1 << 50), Some(1)), own), Some(Look::Passed(Limit::Processes)));
        assert_eq!(
            look(&plan(None, Some(1 << 20)), own)
                .map(|look| matches!(look, Look::FineFor(time) if time > LOOK_MIN)),
            Some(true)
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_next_look_comes_before_a_limit_can_be_passed() {
        assert_eq!((left(10, 4), left(10, 10), left(10, 11)), (Some(6), Some(0), None));
        assert_eq!(
            kibibytes("RssAnon:\t      12 kB\nRssShmem:\t 4 kB\n", &["RssAnon:", "RssShmem:", "VmSwap:"]),
            16 << 10
        );
    }
}
