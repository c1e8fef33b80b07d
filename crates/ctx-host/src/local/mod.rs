//! Shells on this machine: bash, else sh, over three pipes.
//!
//! The output pipes belong to the shell, not to its interpreter: background jobs that outlive a
//! restart go on printing into them. No PTY, and a session of its own, so that nothing can ask on the terminal of the
//! program that runs the server.

pub(super) mod caged;
mod fifo;
mod fifo_unblock;
pub(super) mod guard;
mod marking;
pub(super) mod process_tree;
mod procfs;
mod program;
pub(super) mod random;
pub(super) mod scratch;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::process::{Child, Command};

use self::caged::{CageSlot, Caged, start_script};
use self::fifo::{NamedPipe, PipeEnds};
pub use self::marking::processes_found_by;
use self::marking::{Marking, PRLIMIT};
use self::process_tree::{Clock, Mark, MarkPrefix, Moment, ProcessTree};
use self::procfs::DataPages;
use self::program::{Program, in_own_session};
use self::scratch::{Scratch, ScratchDir};
use super::error::ShellError;
use super::frame::exports::Export;
use super::frame::stop::STOP_SIGNAL;
use super::frame::{Dialect, Pipes};
use super::transport::Stream;
use super::transport::{BoxFuture, Connection, Force, Source, StartPlace, Streams, Transport};
use ctx_cage::find;
use ctx_cage::rights::Rights;

/// How long the processes of a destroyed shell may take to vanish after KILL.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Where a cage has its programs.
pub(super) const CAGE_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A shell with no more pages than this beyond its first holds less than a thousand variables more.
const FEW_PAGES: u64 = 64;

/// The shells of this machine.
#[derive(Debug)]
pub struct LocalTransport {
    program: Program,
    marks: MarkPrefix,
    clock: Arc<Clock>,
    user: Option<(u32, u32)>,
    rights: Rights,
    marking: Marking,
    scratch: ScratchDir,
}

/// Another user to run shells as. Only root can: the shell has that user's uid, the group given here and no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
    /// With these we open what the shell names.
    pub rights: Rights,
    /// A directory of ours that this user can pass through, for what a shell must read.
    pub scratch_dir: PathBuf,
}

impl LocalTransport {
    /// Shells of the operator's program, or of bash, or else sh, which are looked for in this search path.
    pub fn new(
        program: Option<&Path>,
        path: &OsStr,
        user: Option<&RunAs>,
        marks: MarkPrefix,
        scratch: ScratchDir,
    ) -> Result<Self, ShellError> {
        let program = Program::new(program, path)?;
        let marking = Marking::new(user.is_some(), find(PRLIMIT, path));
        // What we look at of processes in a cage we look at as ourselves: their user namespace is not ours.
        let rights =
            user.filter(|_| scratch.inside.is_none()).map_or_else(Rights::own, |user| user.rights.clone());
        let (user, clock) = (user.map(|user| (user.uid, user.gid)), Arc::new(Clock::new()));
        Ok(LocalTransport { program, marks, clock, user, rights, marking, scratch })
    }

    pub fn dialect(&self) -> Dialect {
        self.program.dialect
    }

    /// The program that gives a process a session of its own, where there is one.
    pub fn setsid(&self) -> Option<&Path> {
        self.program.setsid.as_deref()
    }
}

impl Transport for LocalTransport {
    fn name(&self) -> &'static str {
        "local"
    }

    fn label(&self) -> String {
        "local".to_owned()
    }

    fn connect(&self, n: u64, cage: Option<Arc<CageSlot>>) -> Result<Box<dyn Connection>, ShellError> {
        let (stdout, stderr) = outputs(&self.scratch, self.user)
            .map_err(|source| ShellError::Spool { path: self.scratch.path.clone(), source })?;
        Ok(Box::new(LocalConnection {
            program: self.program.clone(),
            user: self.user,
            rights: self.rights.clone(),
            marking: self.marking.clone(),
            mark: self.marks.mark(n),
            scratch: self.scratch.clone(),
            pipes: Pipes {
                commands: PathBuf::new(),
                stdout: self.scratch.seen(stdout.name()),
                stderr: self.scratch.seen(stderr.name()),
                names: None,
            },
            stdout,
            stderr,
            running: None,
            cage: cage.map(Caged::new),
            commands: 0,
            moment: self.clock.now(),
            clock: Arc::clone(&self.clock),
        }))
    }
}

/// The pipes that a shell's commands print into.
fn outputs(scratch: &ScratchDir, user: Option<(u32, u32)>) -> std::io::Result<(NamedPipe, NamedPipe)> {
    let stdout = NamedPipe::open(scratch, user)?;
    stdout.widen();
    // Only stderr is marked at every end; where stdout is not empty at a start, the shell marks that.
    Ok((stdout, NamedPipe::open(scratch, user)?.with_marks()?))
}

struct LocalConnection {
    program: Program,
    user: Option<(u32, u32)>,
    rights: Rights,
    marking: Marking,
    mark: Mark,
    scratch: ScratchDir,
    /// Held at both ends for as long as the shell lives.
    stdout: NamedPipe,
    stderr: NamedPipe,
    pipes: Pipes,
    running: Option<Running>,
    cage: Option<Caged>,
    /// Commands that have started, for their marks.
    commands: u64,
    moment: Moment,
    clock: Arc<Clock>,
}

struct Running {
    /// None: it is a process of its cage.
    child: Option<Child>,
    processes: Arc<ProcessTree>,
    ended: Option<i32>,
    pid: Pid,
    /// What it reads its commands from: only its name, so that there is an end to read when we close ours.
    commands: NamedPipe,
    /// What `/proc` calls that.
    commands_link: PathBuf,
    /// Ends of named pipes that its last command waited for when it was stopped.
    held: Arc<Mutex<Vec<OwnedFd>>>,
    /// Where it notes the names of its variables.
    _names: Option<Scratch>,
    /// The memory that it has for its data.
    data: Option<DataPages>,
    /// How much that was at first: when it had answered its first frame, and had no variable of the user's.
    data_at_first: Option<u64>,
    /// Whether it was given a frame.
    has_started: bool,
}

impl LocalConnection {
    fn pipe(&self, stream: Stream) -> &NamedPipe {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// The interpreter and its arguments.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Marking::AtStart(prlimit) = &self.marking {
            words.extend([prlimit.into(), self.mark.option(self.commands).into()]);
        }
        words.push(self.program.path.as_os_str().to_owned());
        words.extend(self.program.args().iter().map(OsString::from));
        words
    }

    fn env<'a>(&self, place: &'a StartPlace) -> impl Iterator<Item = &'a Export> + use<'a> {
        let dialect = self.program.dialect;
        place.env.iter().filter(move |export| !acts_on_the_frame(dialect, &export.name))
    }

    fn command(&self, place: &StartPlace) -> Command {
        let mut command = in_own_session(self.program.setsid.as_deref(), self.words());
        if let Some((uid, gid)) = self.user {
            // Setting the uid also drops every further group.
            command.uid(uid).gid(gid);
        }
        command.current_dir(&place.cwd).env_clear();
        command.envs(
            self.env(place).map(|export| (OsString::from(&export.name), OsStr::from_bytes(&export.value))),
        );
        Command::from(command)
    }

    async fn try_start(&mut self, place: &StartPlace) -> Result<Streams, ShellError> {
        let failed = |source| ShellError::Start { cwd: place.cwd.clone(), source };
        let mut parts = self.parts().map_err(failed)?;
        self.commands += 1;
        let (child, pid, cage) = match &mut self.cage {
            None => {
                let (child, pid) = self.spawn(place, parts.read).map_err(failed)?;
                (Some(child), pid, None)
            }
            Some(_) => {
                let Pipes { commands, stdout, stderr, .. } = &self.pipes;
                let env: Vec<&Export> = self.env(place).collect();
                let script = start_script([commands, stdout, stderr], &place.cwd, &env, &self.words());
                let scratch = self.scratch.clone();
                let Some(cage) = &mut self.cage else { return Err(ShellError::NoInterpreter) };
                let started = cage.start(&scratch, &script).await?;
                (None, started.shell, Some((started.first, started.supervisor)))
            }
        };
        let processes = Arc::new(ProcessTree::found(self.mark, pid, cage, self.commands));
        self.running = Some(Running {
            child,
            processes,
            ended: None,
            pid,
            commands: parts.commands,
            commands_link: parts.commands_link,
            held: Arc::default(),
            _names: parts.names.take(),
            data: DataPages::of(pid),
            data_at_first: None,
            has_started: false,
        });
        self.streams(&parts.write).map_err(failed)
    }

    /// The pipes of an interpreter that is to start. Our end of what it reads from is closed once it has its own.
    fn parts(&mut self) -> std::io::Result<Parts> {
        if !(self.stdout.is_there() && self.stderr.is_there()) {
            (self.stdout, self.stderr) = outputs(&self.scratch, self.user)?;
            self.pipes.stdout = self.scratch.seen(self.stdout.name());
            self.pipes.stderr = self.scratch.seen(self.stderr.name());
        }
        let mut commands = NamedPipe::open(&self.scratch, self.user)?;
        self.pipes.commands = self.scratch.seen(commands.name());
        let names = Scratch::put(&self.scratch, b"").ok().filter(|file| file.path().to_str().is_some());
        self.pipes.names = names.as_ref().map(|file| file.path().to_owned());
        let PipeEnds { read, write } = commands.let_go()?;
        let commands_link = std::fs::read_link(fifo::path_of(&write))?;
        Ok(Parts { commands, commands_link, names, read, write })
    }

    fn spawn(&self, place: &StartPlace, commands: OwnedFd) -> std::io::Result<(Child, Pid)> {
        let mut command = self.command(place);
        command.stdin(Stdio::from(commands));
        command.stdout(self.stdout.for_child()?);
        command.stderr(self.stderr.for_child()?);
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok((child, pid.ok_or_else(|| std::io::Error::other("the shell ended at once"))?))
    }

    fn streams(&self, commands: &OwnedFd) -> std::io::Result<Streams> {
        Ok(Streams {
            stdin: Box::new(fifo::sender(commands)?),
            stdout: Source::Pipe(self.stdout.reader()?),
            stderr: Source::Pipe(self.stderr.reader()?),
        })
    }
}

/// What an interpreter is started with.
struct Parts {
    commands: NamedPipe,
    commands_link: PathBuf,
    names: Option<Scratch>,
    read: OwnedFd,
    write: OwnedFd,
}

async fn write_behind(end: std::io::Result<Sender>, bytes: &[u8]) -> std::io::Result<()> {
    end?.write_all(bytes).await
}

/// Ends an interpreter by our own hold on it, also where its processes could not be found, and reaps it.
async fn end(child: &mut Child) {
    if let Err(error) = child.start_kill() {
        tracing::debug!(%error, "the closed shell's interpreter was gone already");
    }
    if tokio::time::timeout(CLOSE_PATIENCE, child.wait()).await.is_err() {
        tracing::warn!("the interpreter of a closed shell did not end");
    }
}

/// Options that bash takes from its environment would act on the frame before it can put them aside.
fn acts_on_the_frame(dialect: Dialect, variable: &str) -> bool {
    dialect == Dialect::Bash && variable == "SHELLOPTS"
}

/// The directory itself, or the nearest one above it that still exists.
fn nearest_dir(cwd: &Path) -> PathBuf {
    cwd.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

impl Connection for LocalConnection {
    fn dialect(&self) -> Dialect {
        self.program.dialect
    }

    fn start<'a>(&'a mut self, place: &'a StartPlace) -> BoxFuture<'a, Result<Streams, ShellError>> {
        Box::pin(self.try_start(place))
    }

    fn wait(&mut self) -> BoxFuture<'_, i32> {
        Box::pin(async {
            let Some(running) = &mut self.running else { return std::future::pending().await };
            if let Some(code) = running.ended {
                return code;
            }
            let code = match (&mut running.child, &mut self.cage) {
                (Some(child), _) => child.wait().await.map_or(1, exit_code),
                (None, Some(cage)) => cage.wait().await,
                (None, None) => return std::future::pending().await,
            };
            running.ended = Some(code);
            code
        })
    }

    fn has_ended(&mut self) -> Option<i32> {
        let running = self.running.as_mut()?;
        if running.ended.is_none() {
            running.ended = match (&mut running.child, &mut self.cage) {
                (Some(child), _) => child.try_wait().ok()?.map(exit_code),
                (None, cage) => cage.as_mut().and_then(Caged::has_ended),
            };
        }
        running.ended
    }

    fn is_drained(&self, stream: Stream) -> bool {
        self.pipe(stream).is_empty()
    }

    fn mark(&self, stream: Stream, mark: Vec<u8>) -> Option<BoxFuture<'static, ()>> {
        let pipe = self.pipe(stream);
        if pipe.put(&mark) {
            return None;
        }
        let end = pipe.writer();
        Some(Box::pin(async move {
            if let Err(error) = write_behind(end, &mark).await {
                tracing::warn!(%error, "a shell's output could not be marked");
            }
        }))
    }

    fn pipes(&self) -> &Pipes {
        &self.pipes
    }

    fn command_starts(&mut self) {
        self.commands += 1;
        self.moment = self.clock.now();
        if let Some(running) = &self.running {
            running.processes.command_starts(self.commands);
            running.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn awaits_command(&self) -> bool {
        let nothing_unread = || self.stdout.is_empty() && self.stderr.is_empty();
        self.running.as_ref().is_some_and(|running| {
            // Of another user's process `/proc` shows this to that user, and to who may trace all.
            let reads = self.rights.act(|| procfs::is_reading(running.pid, &running.commands_link));
            reads == Ok(true) && nothing_unread()
        })
    }

    fn left_unread(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.commands.left_unread())
    }

    fn holds_much(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        if !std::mem::replace(&mut running.has_started, true) {
            return false;
        }
        let Some(now) = running.data.as_ref().and_then(DataPages::now) else { return false };
        now > *running.data_at_first.get_or_insert(now) + FEW_PAGES
    }

    fn cwd(&self, said: &Path) -> PathBuf {
        match &self.running {
            Some(running) => {
                let root = match &self.cage {
                    Some(_) => PathBuf::from(format!("/proc/{}/root", running.pid.as_raw_nonzero())),
                    None => PathBuf::from("/"),
                };
                let found = self.rights.act(|| procfs::cwd(running.pid, said, &root));
                found.unwrap_or_else(|_| said.to_owned())
            }
            None => said.to_owned(),
        }
    }

    fn stop(&self, force: Force, patience: Duration) -> BoxFuture<'static, usize> {
        let running = self.running.as_ref();
        let running =
            running.map(|running| (running.pid, Arc::clone(&running.processes), Arc::clone(&running.held)));
        let (moment, rights) = (self.moment, self.rights.clone());
        // What is opened in a cage has no name here.
        let may_let_through = self.cage.is_none();
        let signal = match force {
            Force::Ask => Signal::INT,
            Force::Insist => Signal::TERM,
            Force::Kill => Signal::KILL,
        };
        Box::pin(async move {
            let Some((pid, processes, held)) = running else { return 0 };
            let work = tokio::task::spawn_blocking(move || {
                // Where it was asked before, it knows that it is to stop when its `open` ends. A signal breaks that
                // for a while, so this comes first.
                if force != Force::Ask && may_let_through {
                    // The shell names what is opened, so it is opened with its user's rights.
                    let end = rights.act(|| fifo_unblock::let_through(pid)).ok().flatten();
                    held.lock().unwrap_or_else(PoisonError::into_inner).extend(end);
                }
                // The interpreter first: it must know that it is to stop when its child ends.
                processes.signal_shell(STOP_SIGNAL);
                processes.signal_command(moment, signal, patience)
            });
            work.await.unwrap_or(0)
        })
    }

    fn nearest_dir(&self, cwd: &Path) -> PathBuf {
        // In a cage the start looks for it.
        if self.cage.is_some() { cwd.to_owned() } else { nearest_dir(cwd) }
    }

    fn may_restart(&self) -> bool {
        !self.cage.as_ref().is_some_and(|cage| cage.slot.is_ending())
    }

    fn is_at_limit(&mut self) -> bool {
        self.cage.as_mut().is_some_and(Caged::is_at_limit)
    }

    fn failure_hint(&self, printed: &str) -> Option<String> {
        self.cage.as_ref().and_then(|cage| cage.slot.hint(printed))
    }

    fn frozen_for(&self) -> Duration {
        self.cage.as_ref().map_or(Duration::ZERO, |cage| cage.slot.frozen_for())
    }

    fn put(&self, bytes: Vec<u8>) -> BoxFuture<'static, Result<Scratch, ShellError>> {
        let put = self.scratch.put(&bytes);
        Box::pin(std::future::ready(put))
    }

    fn kill_interpreter(&self) {
        if let Some(running) = &self.running {
            running.processes.signal_shell(Signal::KILL);
        }
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Ours first: to find the processes takes descriptors, and there may be no others left.
            drop((self.stdout.let_go(), self.stderr.let_go()));
            if let Some(mut cage) = self.cage.take() {
                self.running = None;
                cage.close().await;
                return;
            }
            let Some(mut running) = self.running.take() else { return };
            let processes = Arc::clone(&running.processes);
            let left = tokio::task::spawn_blocking(move || processes.end(CLOSE_PATIENCE)).await.unwrap_or(0);
            if left > 0 {
                tracing::warn!(left, "processes of a closed shell did not end");
            }
            if let Some(child) = running.child.as_mut().filter(|_| running.ended.is_none()) {
                end(child).await;
            }
        })
    }
}

#[cfg(test)]
mod tests;
