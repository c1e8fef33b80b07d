//! A cage that runs: started, frozen, thawed, killed, waited for.
//!
//! Each cage has a thread. The kernel kills `bwrap` when the thread that started it ends, so that no cage outlives this
//! process, and so that thread must stay; it also watches the limits. `bwrap` starts the command only after its first
//! process is in the control groups.
//!
//! `bwrap` runs as the cage's owner, who can stop it, trace it and write into its pipes. So what it says is checked, and it
//! is waited for only so long.

pub mod descriptors;
mod lend;
mod said;
pub mod seccomp;
mod sources;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use self::said::{first_line, not_started, there_is, with_complaint};
use self::sources::{check_owner, lend_to};
use crate::command::{CommandLine, command_line};
use crate::error::CageError;
use crate::limits::cgroups::{self, Groups};
use crate::limits::usage::{self, Look};
use crate::limits::{CgroupPlan, Freezing, Means};
use crate::processes::{self, Process};
use crate::value::{Cage, Limit};

/// How often the counts of a cage's groups are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the kernel may take to freeze a cage: a process in an uninterruptible call is waited for.
const FREEZE_MAX: Duration = Duration::from_secs(5);
/// How long killed processes may take to end.
const END_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether those that were asked to end have.
const ASK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long `bwrap` may take to end after the first process was killed.
const BWRAP_END_MAX: Duration = Duration::from_secs(1);
/// Added to a signal's number, as shells do.
const SIGNALLED: i32 = 128;

/// The streams of the command.
#[derive(Debug)]
pub struct Io {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
}

/// How a cage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What the command exited with; 128 and the signal's number where a signal ended it.
    pub code: i32,
    /// The limit that was reached.
    pub limit: Option<Limit>,
    /// False where `bwrap` could not start the command; it has said why on stderr.
    pub has_started: bool,
}

/// A command that runs in a cage. Dropping it kills the cage.
#[derive(Debug)]
pub struct RunningCage {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    name: String,
    shared: Arc<Shared>,
}

/// What the thread of a cage and its handle share.
#[derive(Debug)]
struct Shared {
    /// The first process of the cage's pid namespace; all others end with it.
    first: Pid,
    handle: OwnedFd,
    plan: CgroupPlan,
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    frozen_since: Option<Instant>,
    /// How long the cage was frozen before; this does not count as wall time.
    frozen_for: Duration,
    /// The processes that were stopped one by one.
    stopped: Vec<Process>,
    killed_at: Option<Instant>,
    /// The limit that it was killed for.
    limit: Option<Limit>,
    ended: Option<Ended>,
}

impl RunningCage {
    /// Starts a command in a cage. `parent` names who is responsible for it: see [`crate::sweep`].
    pub fn start(
        bwrap: &Path,
        cage: &Cage,
        means: &Means,
        parent: &str,
        command: &[OsString],
        io: Io,
    ) -> Result<RunningCage, CageError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if parent.is_empty() || parent.contains('/') {
            return Err(CageError::Input(format!("`{parent}` is no name for the parent of a cage")));
        }
        check_owner(cage)?;
        descriptors::keep();
        let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = cgroups::name(parent, &id);
        let plan = CgroupPlan::new(means, &name, &cage.limits);
        let (filters, command) = (seccomp::filters()?, plan.with_rlimits(command));
        let process = bwrap_process(bwrap, &name, cage, io);
        let (walltime, owner) = (cage.limits.walltime, cage.owner.uid());
        let cage = cage.clone();
        let (send, receive) = mpsc::channel();
        let thread = std::thread::Builder::new().name("cage".to_owned());
        let launch = move || {
            let cage = lend_to(cage)?;
            Launched::launch(process, command_line(&cage, &filters, &command), plan, owner)
        };
        let work = move || match launch() {
            Ok(mut launched) => {
                let shared = Arc::clone(&launched.shared);
                let pipes =
                    (launched.child.stdin.take(), launched.child.stdout.take(), launched.child.stderr.take());
                // Whoever asked has gone: then the cage ends too.
                if send.send(Ok((shared, pipes))).is_err() {
                    launched.shared.kill();
                }
                launched.watch(walltime);
            }
            Err(error) => drop(send.send(Err(error))),
        };
        thread.spawn(work).map_err(|error| CageError::io("cannot start a thread for a cage", error))?;
        let gone = || CageError::NotStarted { detail: ": its thread ended".to_owned() };
        let (shared, (stdin, stdout, stderr)) = receive.recv().map_err(|_| gone())??;
        Ok(RunningCage { stdin, stdout, stderr, name, shared })
    }

    /// The name of the cage's control groups: unique on this machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first process of the cage, as the host sees it.
    pub fn first_process(&self) -> Pid {
        self.shared.first
    }

    /// Stops all processes of the cage where they are. The time until the thaw does not count as wall time.
    pub fn freeze(&self) -> Result<(), CageError> {
        self.shared.freeze()
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<(), CageError> {
        let mut state = self.shared.lock();
        self.shared.thaw(&mut state)
    }

    /// Ends all processes of the cage at once, also frozen ones.
    pub fn kill(&self) {
        self.shared.kill();
    }

    /// Asks every process but the command itself, whose end would be that of all, to end; then ends the cage. Frozen and
    /// stopped processes go on to hear it.
    pub fn end(&self, patience: Duration) -> Ended {
        let until = Instant::now() + patience;
        let first = self.shared.first.as_raw_nonzero().get();
        let mut asked: Vec<i32> = Vec::new();
        while self.ended().is_none() && Instant::now() < until {
            let family = processes::family(self.shared.first);
            let others: Vec<&Process> =
                family.iter().filter(|process| process.pid != first && process.parent != first).collect();
            let orphans = family.iter().filter(|process| process.parent == first).skip(1);
            let others: Vec<&Process> = others.into_iter().chain(orphans).collect();
            if others.is_empty() {
                break;
            }
            for process in others.iter().filter(|process| !asked.contains(&process.pid)) {
                process.signal(Signal::TERM);
                process.signal(Signal::CONT);
            }
            asked = others.iter().map(|process| process.pid).collect();
            if let Err(error) = self.thaw() {
                tracing::warn!(%error, "a cage that is to end could not be thawed");
                break;
            }
            std::thread::sleep(ASK_AGAIN);
        }
        self.shared.kill();
        self.wait()
    }

    /// Ends the cage if it has reached a limit; whether it has. Its thread looks too, but only now and then.
    pub fn kill_at_limit(&self) -> bool {
        let mut state = self.shared.lock();
        if state.ended.is_some() || state.killed_at.is_some() {
            return state.limit.is_some();
        }
        state.limit = state.limit.or_else(|| self.shared.limit_reached());
        let is_at = state.limit.is_some();
        drop(state);
        if is_at {
            self.shared.kill();
        }
        is_at
    }

    /// Whether nothing more can be written to `/tmp`.
    pub fn is_tmp_full(&self) -> bool {
        let tmp = format!("/proc/{}/root/tmp", self.shared.first.as_raw_nonzero());
        rustix::fs::statvfs(tmp).is_ok_and(|tmp| tmp.f_bavail == 0)
    }

    /// Waits until no process of the cage is left.
    pub fn wait(&self) -> Ended {
        let mut state = self.shared.lock();
        loop {
            match state.ended {
                Some(ended) => return ended,
                None => state = self.shared.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The same for as long as this.
    pub fn wait_at_most(&self, patience: Duration) -> Option<Ended> {
        let state = self.shared.lock();
        let waited = self.shared.has_ended.wait_timeout_while(state, patience, |state| state.ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.lock().ended
    }
}

impl Drop for RunningCage {
    fn drop(&mut self) {
        self.shared.kill();
    }
}

/// `bwrap` under the name of the cage, by which a sweep finds it, as the cage's owner, with nothing of this process's environment. Root's further groups are dropped with root.
fn bwrap_process(bwrap: &Path, name: &str, cage: &Cage, io: Io) -> Command {
    let mut process = Command::new(bwrap);
    process
        .arg0(format!("{}{name}", cgroups::PROCESS_PREFIX))
        .env_clear()
        .current_dir("/")
        .stdin(io.stdin)
        .stdout(io.stdout)
        .stderr(io.stderr);
    if geteuid().is_root() {
        process.uid(cage.owner.uid()).gid(cage.owner.gid());
    }
    process
}

/// A cage whose command has been let go.
struct Launched {
    child: Child,
    shared: Arc<Shared>,
    groups: Groups,
    status: File,
    /// The cage ends when `bwrap` does.
    handle: OwnedFd,
}

impl Launched {
    fn launch(
        mut process: Command,
        line: CommandLine,
        plan: CgroupPlan,
        owner: u32,
    ) -> Result<Launched, CageError> {
        let failed = |error: rustix::io::Errno| CageError::io("cannot make a pipe for a cage", error);
        let io_failed = |error: std::io::Error| CageError::io("cannot make a pipe for a cage", error);
        let (status, status_in) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
        let (block, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
        let mut passed = vec![
            FdMapping { parent_fd: status_in, child_fd: line.status_fd },
            FdMapping { parent_fd: block, child_fd: line.block_fd },
            // The end of a pipe would start the command too. With this, it has none when we are killed here.
            FdMapping { parent_fd: go.try_clone().map_err(io_failed)?, child_fd: line.block_fd + 1 },
        ];
        for (child_fd, bytes) in &line.inputs {
            passed.push(FdMapping { parent_fd: in_memory(bytes)?, child_fd: *child_fd });
        }
        process.args(&line.args);
        process
            .fd_mappings(passed)
            .map_err(|error| CageError::NotStarted { detail: format!(": {error}") })?;
        let groups = Groups::make(plan)?;
        let mut child = process.spawn().map_err(|error| CageError::io("cannot start bwrap", error))?;
        // The child's ends of the pipes are closed here with it.
        drop(process);
        let mut status = File::from(status);
        // `bwrap` itself too, and at once: should we be killed before it is ready, the sweep finds what it leaves.
        let entered = groups.enter(Pid::from_child(&child));
        match entered.and_then(|()| enter(&child, owner, &mut status, &groups, File::from(go))) {
            Ok((first, first_handle, handle)) => {
                let plan = groups.plan.clone();
                let shared = Shared {
                    first,
                    handle: first_handle,
                    plan,
                    state: Mutex::default(),
                    has_ended: Condvar::new(),
                };
                Ok(Launched { child, shared: Arc::new(shared), groups, status, handle })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(with_complaint(error, child.stderr.take()))
            }
        }
    }

    /// Waits for the end, watches the limits, and removes what the cage leaves.
    fn watch(mut self, walltime: Option<Duration>) {
        let started = Instant::now();
        let mut limit = None;
        let mut patience = usage::LOOK_MIN;
        while !self.has_ended_within(patience, walltime.map(|max| (started, max))) {
            patience = LOOK_EVERY;
            if self.shared.lock().killed_at.is_some_and(|at| at.elapsed() > BWRAP_END_MAX) {
                // It is stopped, or somebody else's by now.
                let _ = self.child.kill();
            }
            if limit.is_none() {
                limit = self.limit_reached(walltime.map(|max| (started, max)));
                match usage::look(&self.groups.plan, self.shared.first).filter(|_| limit.is_none()) {
                    Some(Look::Passed(passed)) => limit = Some(passed),
                    Some(Look::FineFor(time)) => patience = patience.min(time),
                    None => {}
                }
                if limit.is_some() {
                    // Before the end: a command that the limit has killed may come back before all others are gone.
                    self.shared.lock().limit = limit;
                    self.shared.kill();
                }
            }
        }
        let status = self.child.wait();
        self.end_first();
        let (is_killed, noticed) = {
            let state = self.shared.lock();
            (state.killed_at.is_some(), state.limit)
        };
        let limit = limit.or(noticed).or_else(|| if is_killed { None } else { self.limit_reached(None) });
        let rest = there_is(&mut self.status);
        let has_started = is_killed || limit.is_some() || rest.contains("exit-code");
        let ended = Ended { code: status.map_or(-1, code_of), limit, has_started };
        // Removed before anybody is told, so that who waited finds nothing.
        drop(self.groups);
        self.shared.lock().ended = Some(ended);
        self.shared.has_ended.notify_all();
    }

    /// `bwrap` ends as soon as it has the command's code, and may be before the first process, with which all others end.
    fn end_first(&self) {
        // The only error is that it has ended already.
        let _ = pidfd_send_signal(&self.shared.handle, Signal::KILL);
        let mut ended = [PollFd::new(&self.shared.handle, PollFlags::IN)];
        let _ = poll(&mut ended, Timespec::try_from(END_MAX).ok().as_ref());
    }

    fn has_ended_within(&self, mut patience: Duration, walltime: Option<(Instant, Duration)>) -> bool {
        if let Some((started, max)) = walltime {
            let left = max.saturating_sub(self.shared.time_used(started));
            patience = patience.min(left.max(Duration::from_millis(1)));
        }
        let patience = Timespec::try_from(patience).ok();
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut ended, patience.as_ref()), Ok(count) if count > 0)
    }

    fn limit_reached(&self, walltime: Option<(Instant, Duration)>) -> Option<Limit> {
        let is_over = walltime.is_some_and(|(started, max)| self.shared.time_used(started) >= max);
        match () {
            () if is_over => Some(Limit::Walltime),
            () => cgroups::limit_reached(&self.groups.plan),
        }
    }
}

/// Waits for the first process, puts it into its groups, and lets the command start.
fn enter(
    child: &Child,
    owner: u32,
    status: &mut File,
    groups: &Groups,
    mut go: File,
) -> Result<(Pid, OwnedFd, OwnedFd), CageError> {
    let failed = |error: rustix::io::Errno| CageError::io("cannot follow the processes of a cage", error);
    let said = first_line(status).ok_or_else(|| not_started("; bwrap does not answer"))?;
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
    let pid =
        said.get("child-pid").and_then(serde_json::Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
    let first = pid.and_then(Pid::from_raw).ok_or_else(|| not_started("; bwrap has said why on stderr"))?;
    let first_handle = pidfd_open(first, PidfdFlags::empty()).map_err(failed)?;
    // It will be stopped and killed with our rights. The handle is that of the process which is looked at now.
    if !processes::is_child(first, Pid::from_child(child), owner) {
        return Err(not_started("; bwrap names a process that is not its own"));
    }
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    let let_go = groups.enter(first).and_then(|()| {
        go.write_all(b"1").map_err(|error| CageError::io("cannot start the command of a cage", error))
    });
    match let_go {
        Ok(()) => Ok((first, first_handle, handle)),
        Err(error) => {
            // It waits for `bwrap`, and would for ever when that is killed.
            let _ = pidfd_send_signal(&first_handle, Signal::KILL);
            Err(error)
        }
    }
}

/// A file in memory with this content, to be read from its beginning.
fn in_memory(bytes: &[u8]) -> Result<OwnedFd, CageError> {
    let failed = |error: std::io::Error| CageError::io("cannot make a file in memory", error);
    let file = rustix::fs::memfd_create("cage", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(file.map_err(|error| failed(error.into()))?);
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
    Ok(file.into())
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(-1)
}

impl Shared {
    /// The limit that the cage has reached, but for that of time.
    fn limit_reached(&self) -> Option<Limit> {
        let seen = || match usage::look(&self.plan, self.first) {
            Some(Look::Passed(limit)) => Some(limit),
            Some(Look::FineFor(_)) | None => None,
        };
        cgroups::limit_reached(&self.plan).or_else(seen)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the start without the time in which the cage was frozen.
    fn time_used(&self, started: Instant) -> Duration {
        let state = self.lock();
        let frozen = state.frozen_for + state.frozen_since.map_or(Duration::ZERO, |since| since.elapsed());
        started.elapsed().saturating_sub(frozen)
    }

    fn freeze(&self) -> Result<(), CageError> {
        let mut state = self.lock();
        if state.ended.is_some() || state.killed_at.is_some() || state.frozen_since.is_some() {
            return Ok(());
        }
        let is_frozen = match &self.plan.freezing {
            Freezing::V2 { freeze, events } => write(freeze, "1").map(|()| holds(events, "frozen 1"))?,
            Freezing::V1 { state } => write(state, "FROZEN").map(|()| holds(state, "FROZEN"))?,
            Freezing::Signals => {
                state.stopped = processes::stop_all(self.first);
                true
            }
        };
        state.frozen_since = Some(Instant::now());
        if is_frozen {
            return Ok(());
        }
        self.thaw(&mut state)?;
        Err(CageError::io("the cage could not be frozen", std::io::Error::from(std::io::ErrorKind::TimedOut)))
    }

    fn thaw(&self, state: &mut State) -> Result<(), CageError> {
        let Some(since) = state.frozen_since.take() else { return Ok(()) };
        state.frozen_for += since.elapsed();
        match &self.plan.freezing {
            Freezing::V2 { freeze, .. } => write(freeze, "0"),
            Freezing::V1 { state } => write(state, "THAWED"),
            Freezing::Signals => {
                for process in state.stopped.drain(..) {
                    process.signal(Signal::CONT);
                }
                Ok(())
            }
        }
    }

    /// Killed first and thawed then: nothing runs in between.
    fn kill(&self) {
        let mut state = self.lock();
        if state.ended.is_none() && state.killed_at.is_none() {
            state.killed_at = Some(Instant::now());
            // The only error is that it has ended already.
            let _ = pidfd_send_signal(&self.handle, Signal::KILL);
            if let Err(error) = self.thaw(&mut state) {
                tracing::warn!(%error, "a killed cage could not be thawed");
            }
        }
    }
}

fn write(path: &Path, value: &str) -> Result<(), CageError> {
    std::fs::write(path, value).map_err(|error| CageError::io(path.display().to_string(), error))
}

/// Waits until a file of the kernel has this line.
fn holds(path: &Path, line: &str) -> bool {
    let until = Instant::now() + FREEZE_MAX;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().any(|found| found == line) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
