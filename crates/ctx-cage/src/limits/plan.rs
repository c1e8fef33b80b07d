//! The limits of a cage as files of control groups.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::means::{Base, Means, Version};
use crate::value::Limits;

/// The length of a period in which CPU time is counted, in microseconds.
const CPU_PERIOD: u32 = 100_000;
/// How much higher the limits on each process are at least, where the processes are watched.
const GIB: u64 = 1 << 30;
const MORE_PROCESSES: u64 = 512;

/// What is made, written and read for one cage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupPlan {
    /// The cage's groups.
    pub dirs: Vec<PathBuf>,
    /// Limits: each must be accepted.
    pub writes: Vec<(PathBuf, String)>,
    /// Limits on swap, which not every kernel has.
    pub tries: Vec<(PathBuf, String)>,
    /// Counts of processes that were killed for memory: `oom_kill N`.
    pub memory_events: Option<PathBuf>,
    /// Counts of processes that could not be started: `max N`.
    pub process_events: Option<PathBuf>,
    pub freezing: Freezing,
    /// How much memory the processes may have, where no group limits it.
    pub watched_memory: Option<u64>,
    /// How many processes there may be, where no group limits it.
    pub watched_processes: Option<u64>,
}

/// How a cage is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Freezing {
    V2 {
        freeze: PathBuf,
        /// Says when it is done.
        events: PathBuf,
    },
    V1 {
        state: PathBuf,
    },
    /// SIGSTOP to each of its processes.
    #[default]
    Signals,
}

impl CgroupPlan {
    /// `name` is the cage's: a directory of that name in every hierarchy that has a part.
    pub fn new(means: &Means, name: &str, limits: &Limits) -> CgroupPlan {
        let mut plan = CgroupPlan { dirs: dirs(means, name), ..CgroupPlan::default() };
        let at = |base: &Base, file: &str| base.dir.join(name).join(file);
        plan.limit_memory(means.memory.as_ref(), name, limits.memory_bytes);
        match &means.processes {
            Some(base) => {
                plan.writes.push((at(base, "pids.max"), limits.processes.to_string()));
                plan.process_events = Some(at(base, "pids.events"));
            }
            None => plan.watched_processes = Some(limits.processes.into()),
        }
        if let (Some(base), Some(milli)) = (&means.cpu, limits.cpu_milli) {
            let quota = u64::from(milli) * u64::from(CPU_PERIOD) / 1_000;
            plan.writes.extend(match base.version {
                Version::V2 => vec![(at(base, "cpu.max"), format!("{quota} {CPU_PERIOD}"))],
                Version::V1 => vec![
                    (at(base, "cpu.cfs_period_us"), CPU_PERIOD.to_string()),
                    (at(base, "cpu.cfs_quota_us"), quota.to_string()),
                ],
            });
        }
        plan.freezing = match &means.freeze {
            Some(base) if base.version == Version::V2 => {
                Freezing::V2 { freeze: at(base, "cgroup.freeze"), events: at(base, "cgroup.events") }
            }
            Some(base) => Freezing::V1 { state: at(base, "freezer.state") },
            None => Freezing::Signals,
        };
        plan
    }

    /// The command as it is run: where no group has a limit, a shell inside sets one for each process, so much higher that
    /// the limit itself is seen first (see [`super::usage`]). Set outside, that on processes would count all of the owner's.
    pub fn with_rlimits(&self, command: &[OsString]) -> Vec<OsString> {
        let data = self.watched_memory.map(|bytes| bytes.saturating_mul(2).max(bytes.saturating_add(GIB)));
        let data = data.map(|bytes| format!("ulimit -d {}; ", bytes / 1024));
        // The shells do not agree on the letter.
        let processes = self
            .watched_processes
            .map(|max| max.saturating_mul(2).max(max.saturating_add(MORE_PROCESSES)))
            .map(|max| format!("ulimit -u {max} 2>/dev/null || ulimit -p {max}; "));
        if data.is_none() && processes.is_none() {
            return command.to_vec();
        }
        let script =
            [data, processes, Some("exec \"$@\"".to_owned())].into_iter().flatten().collect::<String>();
        let shell = ["/bin/sh", "-c", &script, "sh"].map(OsString::from);
        shell.into_iter().chain(command.iter().cloned()).collect()
    }

    fn limit_memory(&mut self, base: Option<&Base>, name: &str, bytes: u64) {
        let Some(base) = base else {
            self.watched_memory = Some(bytes);
            return;
        };
        let at = |file: &str| base.dir.join(name).join(file);
        match base.version {
            Version::V2 => {
                self.writes.push((at("memory.max"), bytes.to_string()));
                self.tries.push((at("memory.swap.max"), "0".to_owned()));
                self.memory_events = Some(at("memory.events"));
            }
            Version::V1 => {
                self.writes.push((at("memory.limit_in_bytes"), bytes.to_string()));
                self.tries.push((at("memory.memsw.limit_in_bytes"), bytes.to_string()));
                self.memory_events = Some(at("memory.oom_control"));
            }
        }
    }
}

fn dirs(means: &Means, name: &str) -> Vec<PathBuf> {
    means.bases().into_iter().map(|base| Path::new(&base.dir).join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(version: Version, dir: &str) -> Option<Base> {
        Some(Base { version, dir: dir.into() })
    }

    fn limits() -> Limits {
        Limits { memory_bytes: 4096, processes: 7, cpu_milli: Some(1_500), ..Limits::default() }
    }

    fn written(plan: &CgroupPlan) -> Vec<String> {
        let both = plan.writes.iter().chain(&plan.tries);
        both.map(|(path, value)| format!("{} = {value}", path.display())).collect()
    }

    #[test]
    fn version_2_has_one_group_with_all_limits() {
        let v2 = || base(Version::V2, "/g");
        let means = Means { memory: v2(), processes: v2(), cpu: v2(), freeze: v2() };
        let plan = CgroupPlan::new(&means, "ctx-a.1", &limits());
        assert_eq!(plan.dirs, [PathBuf::from("/g/ctx-a.1")]);
        assert_eq!(
            written(&plan),
            [
                "/g/ctx-a.1/memory.max = 4096",
                "/g/ctx-a.1/pids.max = 7",
                "/g/ctx-a.1/cpu.max = 150000 100000",
                "/g/ctx-a.1/memory.swap.max = 0"
            ]
        );
        assert_eq!(plan.memory_events, Some("/g/ctx-a.1/memory.events".into()));
        assert_eq!((plan.watched_memory, plan.watched_processes), (None, None));
    }

    #[test]
    fn a_hybrid_machine_has_a_group_in_each_hierarchy() {
        let means = Means {
            memory: base(Version::V1, "/m"),
            processes: base(Version::V1, "/p"),
            cpu: base(Version::V1, "/c"),
            freeze: base(Version::V2, "/u"),
        };
        let plan = CgroupPlan::new(&means, "n", &limits());
        assert_eq!(plan.dirs, ["/c/n", "/m/n", "/p/n", "/u/n"].map(PathBuf::from));
        assert_eq!(
            written(&plan),
            [
                "/m/n/memory.limit_in_bytes = 4096",
                "/p/n/pids.max = 7",
                "/c/n/cpu.cfs_period_us = 100000",
                "/c/n/cpu.cfs_quota_us = 150000",
                "/m/n/memory.memsw.limit_in_bytes = 4096"
            ]
        );
        assert_eq!(
            plan.freezing,
            Freezing::V2 { freeze: "/u/n/cgroup.freeze".into(), events: "/u/n/cgroup.events".into() }
        );
    }

    #[test]
    fn without_groups_the_processes_are_watched() {
        let plan = CgroupPlan::new(&Means::default(), "n", &limits());
        let wanted =
            CgroupPlan { watched_memory: Some(4096), watched_processes: Some(7), ..CgroupPlan::default() };
        assert_eq!(plan, wanted);
        let command = plan.with_rlimits(&["make".into()]);
        let script = "ulimit -d 1048580; ulimit -u 519 2>/dev/null || ulimit -p 519; exec \"$@\"";
        assert_eq!(command, ["/bin/sh", "-c", script, "sh", "make"].map(OsString::from));
    }

    #[test]
    fn a_freezer_of_version_1_is_used_where_it_is_all_there_is() {
        let means = Means { freeze: base(Version::V1, "/f"), ..Means::default() };
        let plan = CgroupPlan::new(&means, "n", &limits());
        assert_eq!(plan.freezing, Freezing::V1 { state: "/f/n/freezer.state".into() });
    }
}
