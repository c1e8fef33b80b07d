//! What this machine has for the limits of cages: control groups of version 2 or 1, or neither.
//!
//! A cage's groups are made beneath the group of this process, so that whatever limits this process limits its cages too.
//! Version 2 allows limits only in groups beside which no process is; there the nearest group above is taken that does.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    V1,
    V2,
}

/// A directory in which groups can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Base {
    pub version: Version,
    pub dir: PathBuf,
}

/// What each limit of a cage is held by; None: by nothing better than `setrlimit`, or signals for freezing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Means {
    pub memory: Option<Base>,
    pub processes: Option<Base>,
    pub cpu: Option<Base>,
    pub freeze: Option<Base>,
}

impl Means {
    /// What this process can use on this machine.
    pub fn detect() -> Means {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let tree = Tree::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        tree.means(&OnDisk)
    }

    /// The directories in which cages have groups, each once.
    pub fn bases(&self) -> Vec<&Base> {
        let mut bases: Vec<&Base> =
            [&self.memory, &self.processes, &self.cpu, &self.freeze].into_iter().flatten().collect();
        bases.sort_by_key(|base| &base.dir);
        bases.dedup_by_key(|base| &base.dir);
        bases
    }
}

/// One line for `ctx doctor`.
impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |base: &Option<Base>, without: &'static str| match base.as_ref().map(|base| base.version) {
            Some(Version::V2) => "cgroup v2",
            Some(Version::V1) => "cgroup v1",
            None => without,
        };
        write!(
            f,
            "memory by {}, processes by {}, CPU by {}, freezing by {}",
            name(&self.memory, "rlimit"),
            name(&self.processes, "rlimit"),
            name(&self.cpu, "nothing"),
            name(&self.freeze, "signals")
        )
    }
}

/// What is asked of the file system; tests have one in memory.
trait Groups {
    fn is_writable(&self, dir: &Path) -> bool;
    fn read(&self, file: &Path) -> String;
    /// Lets groups beneath have limits; false where the kernel refuses.
    fn enable(&self, dir: &Path, controllers: &[&str]) -> bool;
}

struct OnDisk;

impl Groups for OnDisk {
    fn is_writable(&self, dir: &Path) -> bool {
        // A process is moved by writing to this file of both groups.
        let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        writable(dir) && writable(&dir.join("cgroup.procs"))
    }

    fn read(&self, file: &Path) -> String {
        std::fs::read_to_string(file).unwrap_or_default()
    }

    fn enable(&self, dir: &Path, controllers: &[&str]) -> bool {
        let words: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
        std::fs::write(dir.join("cgroup.subtree_control"), words.join(" ")).is_ok()
    }
}

/// Where the groups of this process are mounted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tree {
    /// The mount of version 2, and this process's group in it.
    v2: Option<(PathBuf, PathBuf)>,
    /// Controllers of version 1 with this process's group.
    v1: Vec<(String, PathBuf)>,
}

impl Tree {
    fn parse(mountinfo: &str, cgroup: &str) -> Tree {
        let mut tree = Tree::default();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let mut before = before.split(' ').skip(3);
            let (Some(root), Some(at)) = (before.next(), before.next()) else { continue };
            let mut after = after.split(' ');
            let (kind, options) = (after.next().unwrap_or_default(), after.nth(1).unwrap_or_default());
            match kind {
                "cgroup2" => {
                    let own = own_path(cgroup, |names| names.is_empty());
                    tree.v2 = own.and_then(|own| Some((at.into(), below(at, root, own)?)));
                }
                "cgroup" => {
                    for name in
                        options.split(',').filter(|name| ["memory", "pids", "cpu", "freezer"].contains(name))
                    {
                        let own = own_path(cgroup, |names| names.split(',').any(|other| other == name));
                        if let Some(dir) = own.and_then(|own| below(at, root, own)) {
                            tree.v1.push((name.to_owned(), dir));
                        }
                    }
                }
                _ => {}
            }
        }
        tree
    }

    fn means(&self, groups: &impl Groups) -> Means {
        let limited = self.v2.as_ref().and_then(|(mount, own)| limiting_group(mount, own, groups));
        let of = |controller: &str| {
            let v2 =
                limited.as_ref().filter(|(_, controllers)| controllers.iter().any(|name| name == controller));
            let v2 = v2.map(|(dir, _)| Base { version: Version::V2, dir: dir.clone() });
            v2.or_else(|| self.of_v1(controller, groups))
        };
        // Freezing and killing need no controller: any group that is ours will do.
        let freeze = limited
            .as_ref()
            .map(|(dir, _)| dir.clone())
            .or_else(|| self.v2.as_ref().map(|(_, own)| own.clone()).filter(|own| groups.is_writable(own)));
        let freeze = freeze.map(|dir| Base { version: Version::V2, dir });
        Means {
            memory: of("memory"),
            processes: of("pids"),
            cpu: of("cpu"),
            freeze: freeze.or_else(|| self.of_v1("freezer", groups)),
        }
    }

    fn of_v1(&self, controller: &str, groups: &impl Groups) -> Option<Base> {
        let (_, dir) = self.v1.iter().find(|(name, dir)| name == controller && groups.is_writable(dir))?;
        Some(Base { version: Version::V1, dir: dir.clone() })
    }
}

/// The nearest group of version 2, from this process's own upwards, whose children can have limits.
fn limiting_group(mount: &Path, own: &Path, groups: &impl Groups) -> Option<(PathBuf, Vec<String>)> {
    for dir in own.ancestors().take_while(|dir| dir.starts_with(mount)) {
        if !groups.is_writable(dir) {
            return None;
        }
        let words = |file: &str| -> Vec<String> {
            groups.read(&dir.join(file)).split_whitespace().map(str::to_owned).collect()
        };
        let wanted = |name: &&str| ["memory", "pids", "cpu"].contains(name);
        let there = words("cgroup.controllers");
        let missing: Vec<&str> = there
            .iter()
            .map(String::as_str)
            .filter(wanted)
            .filter(|name| !words("cgroup.subtree_control").iter().any(|on| on == name))
            .collect();
        let is_on = missing.is_empty() || groups.enable(dir, &missing);
        let usable: Vec<String> = there.into_iter().filter(|name| wanted(&name.as_str())).collect();
        if is_on && !usable.is_empty() {
            return Some((dir.to_owned(), usable));
        }
    }
    None
}

/// This process's group in the hierarchy whose controllers are asked for.
fn own_path(cgroup: &str, is_asked: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        is_asked(names).then_some(path)
    })
}

/// A group's directory where a mount shows the hierarchy from `root` on.
fn below(mount: &str, root: &str, own: &str) -> Option<PathBuf> {
    let inside = Path::new(own).strip_prefix(root).ok()?;
    Some(if inside.as_os_str().is_empty() { mount.into() } else { Path::new(mount).join(inside) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 25 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 25 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
34 25 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";
    const UNIFIED: &str = "30 25 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

    /// Groups in memory: which can be written, what their controllers are, which refuse to have children with limits.
    struct Machine {
        writable: &'static [&'static str],
        controllers: &'static str,
        with_processes: &'static [&'static str],
    }

    impl Groups for Machine {
        fn is_writable(&self, dir: &Path) -> bool {
            self.writable.iter().any(|path| Path::new(path) == dir)
        }

        fn read(&self, file: &Path) -> String {
            if file.ends_with("cgroup.controllers") { self.controllers.to_owned() } else { String::new() }
        }

        fn enable(&self, dir: &Path, _: &[&str]) -> bool {
            !self.with_processes.iter().any(|path| Path::new(path) == dir)
        }
    }

    fn line(mounts: &str, own: &str, machine: &Machine) -> String {
        Tree::parse(mounts, own).means(machine).to_string()
    }

    #[test]
    fn a_hybrid_machine_limits_by_v1_and_freezes_by_v2() {
        let machine = Machine {
            writable: &[
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/pids",
                "/sys/fs/cgroup/freezer",
                "/sys/fs/cgroup/unified",
            ],
            controllers: "hugetlb",
            with_processes: &[],
        };
        let own = "4:memory:/a\n3:pids:/\n2:cpu,cpuacct:/\n1:freezer:/\n0::/\n";
        let means = Tree::parse(HYBRID, own).means(&machine);
        assert_eq!(
            means.to_string(),
            "memory by cgroup v1, processes by cgroup v1, CPU by nothing, freezing by cgroup v2"
        );
        assert_eq!(means.memory.map(|base| base.dir), Some("/sys/fs/cgroup/memory/a".into()));
    }

    #[test]
    fn v1_alone_freezes_by_its_freezer() {
        let mounts: String = HYBRID.lines().take(4).map(|line| format!("{line}\n")).collect();
        let machine = Machine { writable: &["/sys/fs/cgroup/freezer"], controllers: "", with_processes: &[] };
        let said = line(&mounts, "1:freezer:/\n2:memory:/\n3:pids:/\n", &machine);
        assert_eq!(said, "memory by rlimit, processes by rlimit, CPU by nothing, freezing by cgroup v1");
    }

    #[test]
    fn a_service_s_cages_are_beside_it_where_its_own_group_may_have_none() {
        let machine = Machine {
            writable: &["/sys/fs/cgroup/system.slice/ctx.service", "/sys/fs/cgroup/system.slice"],
            controllers: "cpu memory pids",
            with_processes: &["/sys/fs/cgroup/system.slice/ctx.service"],
        };
        let means = Tree::parse(UNIFIED, "0::/system.slice/ctx.service\n").means(&machine);
        let dirs: Vec<PathBuf> = means.bases().iter().map(|base| base.dir.clone()).collect();
        assert_eq!(dirs, [PathBuf::from("/sys/fs/cgroup/system.slice")]);
        assert!(means.cpu.is_some());
    }

    #[test]
    fn a_plain_user_without_groups_has_rlimits_and_signals() {
        let machine = Machine { writable: &[], controllers: "cpu memory pids", with_processes: &[] };
        let said = line(UNIFIED, "0::/user.slice/session-3.scope\n", &machine);
        assert_eq!(said, "memory by rlimit, processes by rlimit, CPU by nothing, freezing by signals");
        assert_eq!(line("", "", &machine), said);
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mounts = "30 25 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let tree = Tree::parse(mounts, "0::/docker/abc/x\n");
        assert_eq!(tree.v2, Some(("/sys/fs/cgroup".into(), "/sys/fs/cgroup/x".into())));
        assert_eq!(Tree::parse(mounts, "0::/elsewhere\n").v2, None);
    }
}
