//! The processes of a shell: which they are, which a command started, and how they are signalled.
//!
//! A process belongs to a shell by descent or by its mark. The mark is a value of the resource limit for
//! file locks, which means nothing to the kernel any more: every child inherits it, through `setsid`,
//! double forks, `env -i` and closed descriptors alike, and an unprivileged process cannot raise it again.
//! It can be lowered, and is with every command: so the mark also shows in which command its line left the
//! shell, and what an earlier background job starts is not taken for a part of the present command.
//! Who sets the mark, and where none can be set, is in `marking`.
//! What runs in another process namespace is the cage's business, not this module's.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ctx_cage::processes::{self, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, prlimit};

/// Digits that all marks of one server begin with, so that its guard can find them with one pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkPrefix(u64);

/// How many commands of a shell have marks of their own. Those beyond are known by their time of birth.
const COMMANDS_PER_SHELL: u64 = 1_000_000;
/// How many shells have marks of their own under one prefix.
const SHELLS_PER_PREFIX: u64 = 100_000;
const MARKS_PER_PREFIX: u64 = SHELLS_PER_PREFIX * COMMANDS_PER_SHELL;
/// What follows the prefix in a mark.
pub const MARK_DIGITS_BEHIND: usize = 11;
/// The prefix has eight digits, the mark nineteen.
const PREFIX_MIN: u64 = 10_000_000;
const PREFIX_MAX: u64 = 99_999_999;

impl MarkPrefix {
    /// A prefix from random bits, below what this process may set (a shell inside a shell is marked lower).
    pub fn new(random: u64) -> Self {
        let top = ceiling(None).saturating_sub(1).clamp(PREFIX_MIN, PREFIX_MAX);
        MarkPrefix(PREFIX_MIN + random % (top - PREFIX_MIN + 1))
    }

    /// Whether a server, this process where none is named, may set marks at all: its own limit may be below all of them.
    pub fn has_room(server: Option<Pid>) -> bool {
        ceiling(server) > PREFIX_MIN
    }

    /// The mark of the n-th shell.
    pub fn mark(self, n: u64) -> Mark {
        Mark(self.0 * MARKS_PER_PREFIX + n % SHELLS_PER_PREFIX * COMMANDS_PER_SHELL)
    }

    pub fn digits(self) -> String {
        self.0.to_string()
    }
}

/// No prefix from this one on can be set by a server.
fn ceiling(server: Option<Pid>) -> u64 {
    let server = server.unwrap_or_else(rustix::process::getpid);
    let hard = limits_of(server.as_raw_nonzero().get()).get(1).copied();
    hard.unwrap_or(u64::MAX) / MARKS_PER_PREFIX
}

/// The limits of a process that carry marks, as far as they are numbers: the soft one, then the hard one.
fn limits_of(pid: i32) -> Vec<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks")).unwrap_or_default();
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The mark of one shell's processes: the lowest of the values that they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// Marks a process as of the n-th command; its children will carry the mark.
    fn put_on(self, pid: Pid, command: u64) -> rustix::io::Result<()> {
        let value = self.value(command);
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        prlimit(Some(pid), Resource::Locks, limit).map(drop)
    }

    fn value(self, command: u64) -> u64 {
        self.0 + COMMANDS_PER_SHELL.saturating_sub(1 + command)
    }

    /// How `prlimit` is told to put the mark on what it runs.
    pub fn option(self, command: u64) -> String {
        let value = self.value(command);
        format!("--locks={value}:{value}")
    }

    /// In which command a process of this shell left it.
    fn command_of(self, value: u64) -> Option<u64> {
        value.checked_sub(self.0).and_then(|rest| (COMMANDS_PER_SHELL - 1).checked_sub(rest))
    }
}

/// A moment between two commands: what was alive then is older than the next command.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    ticks: u64,
    /// The last pid that was given out: orders processes that started within the same tick.
    last_pid: i32,
}

/// What the kernel calls a clock tick to user programs, always.
const TICKS_PER_SECOND: u64 = 100;

/// Tells moments. It keeps its file open, because a moment is asked for at every command.
#[derive(Debug)]
pub struct Clock {
    load: Option<fs::File>,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { load: fs::File::open("/proc/loadavg").ok() }
    }

    pub fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        let ticks = seconds * TICKS_PER_SECOND + nanos * TICKS_PER_SECOND / 1_000_000_000;
        Moment { ticks, last_pid: self.last_pid().unwrap_or(0) }
    }

    /// The last number of the load line.
    fn last_pid(&self) -> Option<i32> {
        let mut bytes = [0; 128];
        let count = self.load.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let line = std::str::from_utf8(bytes.get(..count)?).ok()?;
        line.split_whitespace().last()?.parse().ok()
    }
}

impl Moment {
    fn is_before(self, process: &Process) -> bool {
        process.started > self.ticks || (process.started == self.ticks && process.pid > self.last_pid)
    }
}

/// The processes of one shell.
#[derive(Debug)]
pub struct ProcessTree {
    mark: Mark,
    /// The shell itself.
    shell: Pid,
    /// When it started: its pid may be somebody else's later.
    started: u64,
    /// The first process of the shell's cage, and the one that starts interpreters in it: all that descends from the
    /// first belongs to the shell, but for these two.
    cage: Option<(Pid, Pid)>,
    /// The last command that was marked; 0 where we cannot mark, which leaves the time of birth.
    command: AtomicU64,
}

/// A process of a shell, and the command in which its line left the shell, where its mark shows that.
#[derive(Debug, Clone, Copy)]
struct Member {
    process: Process,
    command: Option<u64>,
}

impl ProcessTree {
    /// The processes of a shell that was just started: marks it as of its first command.
    pub fn found(mark: Mark, shell: Pid, cage: Option<(Pid, Pid)>, command: u64) -> ProcessTree {
        let started = processes::read(shell.as_raw_nonzero().get()).map_or(0, |process| process.started);
        let tree = ProcessTree { mark, shell, started, cage, command: AtomicU64::new(0) };
        tree.command_starts(command);
        tree
    }

    /// Marks what the shell starts from now on as parts of this command.
    pub fn command_starts(&self, command: u64) {
        match self.mark.put_on(self.shell, command) {
            Ok(()) => self.command.store(command, Ordering::Relaxed),
            Err(error) => {
                tracing::debug!(%error, "the shell could not be marked by us");
                self.command.store(0, Ordering::Relaxed);
            }
        }
    }

    fn shell_process(&self) -> Option<Process> {
        processes::read(self.shell.as_raw_nonzero().get()).filter(|process| process.started == self.started)
    }

    /// All living processes of the shell but the shell itself.
    fn members(&self) -> Vec<Member> {
        let all: Vec<Member> = processes::all()
            .map(|process| Member { process, command: self.command_of(process.pid) })
            .collect();
        let shell = self.shell.as_raw_nonzero().get();
        let raw = |pid: Pid| pid.as_raw_nonzero().get();
        let mut ours: HashSet<i32> = self.shell_process().map(|process| process.pid).into_iter().collect();
        ours.extend(self.cage.map(|(first, _)| raw(first)));
        ours.extend(all.iter().filter(|member| member.command.is_some()).map(|member| member.process.pid));
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for Member { process, .. } in &all {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut queue: Vec<i32> = ours.iter().copied().collect();
        while let Some(parent) = queue.pop() {
            let born = children.get(&parent).map(Vec::as_slice).unwrap_or_default();
            queue.extend(born.iter().filter(|child| ours.insert(**child)));
        }
        let is_ours = |member: &Member| {
            let pid = member.process.pid;
            let is_cage_s = self.cage.is_some_and(|(first, second)| [raw(first), raw(second)].contains(&pid));
            ours.contains(&pid) && pid != shell && !is_cage_s
        };
        all.into_iter().filter(is_ours).collect()
    }

    fn command_of(&self, pid: i32) -> Option<u64> {
        limits_of(pid).into_iter().find_map(|value| self.mark.command_of(value))
    }

    /// Signals the processes of the present command, which began at this moment, and waits, for as long as
    /// `patience`, until they are gone. Returns how many are left.
    pub fn signal_command(&self, moment: Moment, signal: Signal, patience: Duration) -> usize {
        let members = self.members();
        let present = Present {
            command: self.command.load(Ordering::Relaxed),
            moment,
            shell: self.shell.as_raw_nonzero().get(),
        };
        let held: Vec<OwnedFd> = present
            .of(&members)
            .filter_map(|process| {
                // A command substitution or a job that dies of INT takes bash with it; of TERM it does not.
                let takes_shell = || self.is_job(process) || self.is_substitution(process);
                let gentle = signal == Signal::INT && takes_shell();
                send(process, if gentle { Signal::TERM } else { signal })
            })
            .collect();
        wait_gone(&held, patience)
    }

    /// Whether this is a child of a shell with job control, which gives each job a group of its own.
    fn is_job(&self, process: &Process) -> bool {
        let shell = self.shell.as_raw_nonzero().get();
        process.parent == shell && self.shell_process().is_some_and(|shell| shell.group != process.group)
    }

    /// Whether the shell itself reads what this child prints.
    fn is_substitution(&self, process: &Process) -> bool {
        let shell = self.shell.as_raw_nonzero().get();
        if process.parent != shell {
            return false;
        }
        let Ok(output) = fs::read_link(format!("/proc/{}/fd/1", process.pid)) else { return false };
        let Ok(own) = fs::read_dir(format!("/proc/{shell}/fd")) else { return false };
        own.flatten().any(|entry| {
            fs::read_link(entry.path()).is_ok_and(|link| link == output)
                && is_read_end(shell, &entry.file_name().to_string_lossy())
        })
    }

    /// Ends all processes, the shell included. Returns how many could not be ended.
    pub fn end(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        let mut stopped: HashSet<(i32, u64)> = HashSet::new();
        // Stopped processes start no others: when a round finds nobody new, nobody can slip away.
        loop {
            let found = self.with_shell();
            let mut news = false;
            for process in &found {
                if stopped.insert((process.pid, process.started)) {
                    news = true;
                    send(process, Signal::STOP);
                }
            }
            if !news || Instant::now() > deadline {
                let held: Vec<OwnedFd> =
                    found.iter().filter_map(|process| send(process, Signal::KILL)).collect();
                return wait_gone(&held, patience);
            }
        }
    }

    fn with_shell(&self) -> Vec<Process> {
        let mut found: Vec<Process> = self.members().into_iter().map(|member| member.process).collect();
        found.extend(self.shell_process());
        found
    }

    /// Sends a signal to the shell alone.
    pub fn signal_shell(&self, signal: Signal) {
        if let Some(process) = self.shell_process() {
            send(&process, signal);
        }
    }
}

/// The command that runs, and how its processes differ from those of earlier ones.
struct Present {
    command: u64,
    moment: Moment,
    shell: i32,
}

impl Present {
    fn of<'a>(&'a self, members: &'a [Member]) -> impl Iterator<Item = &'a Process> {
        let by_pid: HashMap<i32, &Process> =
            members.iter().map(|member| (member.process.pid, &member.process)).collect();
        members
            .iter()
            .filter(move |member| match member.command {
                Some(command) if (1..COMMANDS_PER_SHELL - 1).contains(&self.command) => {
                    command == self.command
                }
                Some(_) | None => self.is_born_of_it(&member.process, &by_pid),
            })
            .map(|member| &member.process)
    }

    /// Without marks: it is younger than the command, and so is all that stands between it and the shell.
    fn is_born_of_it(&self, process: &Process, by_pid: &HashMap<i32, &Process>) -> bool {
        let mut next = Some(process);
        // A line is no longer than there are processes; a pid that was given anew must not make it a ring.
        for _ in 0..=by_pid.len() {
            let Some(process) = next else { return true };
            if !self.moment.is_before(process) {
                return false;
            }
            next = by_pid.get(&process.parent).copied().filter(|parent| parent.pid != self.shell);
        }
        true
    }
}

/// Whether a descriptor of a process is open for reading alone.
fn is_read_end(pid: i32, descriptor: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("1").trim();
    // The last octal digit holds the access mode; zero is read-only.
    u64::from_str_radix(flags, 8).is_ok_and(|flags| flags & 3 == 0)
}

/// Signals exactly this process, not one that got its pid later; hands back a hold on it to wait with.
fn send(process: &Process, signal: Signal) -> Option<OwnedFd> {
    let hold = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    let same = processes::read(process.pid).is_some_and(|now| now.started == process.started);
    if !same {
        return None;
    }
    pidfd_send_signal(&hold, signal).ok()?;
    Some(hold)
}

/// Waits until all of them have ended, at most for `patience`; returns how many have not.
fn wait_gone(held: &[OwnedFd], patience: Duration) -> usize {
    let deadline = Instant::now() + patience;
    let mut left: Vec<&OwnedFd> = held.iter().collect();
    loop {
        let mut polled: Vec<PollFd<'_>> = left.iter().map(|hold| PollFd::new(*hold, PollFlags::IN)).collect();
        if polled.is_empty() {
            return 0;
        }
        let time = deadline.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(time).unwrap_or_default();
        match poll(&mut polled, Some(&time)) {
            Ok(0) => return polled.len(),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return polled.len(),
            Ok(_) => (),
        }
        let gone: Vec<bool> = polled.iter().map(|entry| !entry.revents().is_empty()).collect();
        let mut gone = gone.into_iter();
        left.retain(|_| !gone.next().unwrap_or(false));
    }
}

/// A child of a process.
pub(super) fn child_of(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero().get();
    Pid::from_raw(processes::all().find(|process| process.parent == parent)?.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_starts_now_is_younger_than_the_moment_before() {
        let clock = Clock::new();
        let before = clock.now();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = processes::read(i32::try_from(child.id()).unwrap()).unwrap();
        let after = clock.now();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(before.is_before(&process));
        assert!(!after.is_before(&process));
    }

    #[test]
    fn marks_of_one_prefix_share_its_digits() {
        let prefix = MarkPrefix::new(u64::MAX / 3);
        assert_eq!(prefix.digits().len(), 8);
        for mark in [prefix.mark(999).0, prefix.mark(999).0 + COMMANDS_PER_SHELL - 1] {
            let mark = mark.to_string();
            assert!(mark.starts_with(&prefix.digits()));
            assert_eq!(mark.len(), prefix.digits().len() + MARK_DIGITS_BEHIND);
        }
    }

    #[test]
    fn a_mark_tells_the_command_and_no_other_shell_s() {
        let prefix = MarkPrefix::new(5);
        let mark = prefix.mark(7);
        for command in [0, 1, 17, COMMANDS_PER_SHELL - 1] {
            let value = mark.0 + COMMANDS_PER_SHELL - 1 - command;
            assert_eq!(mark.command_of(value), Some(command));
            assert_eq!(prefix.mark(6).command_of(value), None);
            assert_eq!(prefix.mark(8).command_of(value), None);
        }
    }

    #[test]
    fn without_marks_what_an_earlier_job_starts_is_not_the_command_s() {
        let process = |pid, parent, started| Process { pid, parent, group: 10, started, is_stopped: false };
        let member = |process| Member { process, command: None };
        let members = [
            member(process(11, 10, 100)),
            member(process(12, 11, 500)),
            member(process(13, 10, 500)),
            member(process(14, 13, 501)),
            member(process(15, 1, 502)),
        ];
        let present = Present { command: 0, moment: Moment { ticks: 300, last_pid: 11 }, shell: 10 };
        let pids: Vec<i32> = present.of(&members).map(|process| process.pid).collect();
        assert_eq!(pids, [13, 14, 15]);
    }
}
