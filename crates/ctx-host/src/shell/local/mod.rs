//! Shells on this machine: bash, else sh, over three pipes.
//!
//! The output pipes belong to the shell, not to its interpreter: background jobs that outlive a
//! restart go on printing into them. No PTY, and a session of its own, so that nothing can ask on the terminal of the
//! program that runs the server.

mod fifo;
mod fifo_unblock;
pub(super) mod guard;
pub(super) mod process_tree;
mod procfs;
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

use self::fifo::{NamedPipe, PipeEnds};
use self::process_tree::{Clock, Mark, MarkPrefix, Moment, ProcessTree};
use self::procfs::DataPages;
use self::scratch::{Scratch, ScratchDir};
use super::error::ShellError;
use super::frame::stop::STOP_SIGNAL;
use super::frame::{Dialect, Pipes};
use super::transport::Stream;
use super::transport::{BoxFuture, Connection, Force, Source, StartPlace, Streams, Transport};

/// How long the processes of a destroyed shell may take to vanish after KILL.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// A shell with no more pages than this beyond its first holds less than a thousand variables more.
const FEW_PAGES: u64 = 64;

/// The shells of this machine.
#[derive(Debug)]
pub struct LocalTransport {
    program: Program,
    marks: MarkPrefix,
    clock: Arc<Clock>,
    user: Option<(u32, u32)>,
    scratch: ScratchDir,
}

/// Another user to run shells as. Only root can: the shell has that user's uid, the group given here and no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
    /// A directory of ours that this user can pass through, for what a shell must read.
    pub scratch_dir: PathBuf,
}

#[derive(Debug, Clone)]
struct Program {
    path: PathBuf,
    dialect: Dialect,
    /// The `setsid` program, where there is one: it detaches the shell from any terminal.
    setsid: Option<PathBuf>,
}

impl LocalTransport {
    /// The operator's shell program, or bash, or else sh.
    pub fn new(
        program: Option<&Path>,
        path: &OsStr,
        marks: MarkPrefix,
        scratch: ScratchDir,
    ) -> Result<Self, ShellError> {
        let found = match program {
            Some(program) => {
                find(program, path).ok_or_else(|| ShellError::NoProgram { path: program.to_owned() })?
            }
            None => find("bash", path).or_else(|| find("sh", path)).ok_or(ShellError::NoInterpreter)?,
        };
        let dialect = if is_bash(&found) { Dialect::Bash } else { Dialect::Posix };
        let program = Program { path: found, dialect, setsid: find("setsid", path) };
        Ok(LocalTransport { program, marks, clock: Arc::new(Clock::new()), user: None, scratch })
    }

    /// Shells that run as another user: uid and gid.
    pub fn of_user(self, user: Option<(u32, u32)>) -> LocalTransport {
        LocalTransport { user, ..self }
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

    fn connect(&self, n: u64) -> Result<Box<dyn Connection>, ShellError> {
        let (stdout, stderr) = outputs(&self.scratch, self.user)
            .map_err(|source| ShellError::Spool { path: self.scratch.path.clone(), source })?;
        Ok(Box::new(LocalConnection {
            program: self.program.clone(),
            user: self.user,
            mark: self.marks.mark(n),
            scratch: self.scratch.clone(),
            pipes: Pipes {
                commands: PathBuf::new(),
                stdout: stdout.name(),
                stderr: stderr.name(),
                names: None,
            },
            stdout,
            stderr,
            running: None,
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

/// A program that no terminal and no signal to a group reaches.
fn in_own_session(setsid: Option<&Path>, program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(setsid.unwrap_or(program));
    match setsid {
        Some(_) => command.arg(program),
        None => command.process_group(0),
    };
    command
}

/// A program's file in a search path; a name with a slash is the file itself.
fn find(name: impl AsRef<Path>, path: &OsStr) -> Option<PathBuf> {
    let name = name.as_ref();
    let executable =
        |file: &PathBuf| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file();
    if name.components().count() > 1 {
        return Some(name.to_owned()).filter(executable);
    }
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(executable)
}

/// Whether a program is bash, under whatever name: on some systems `sh` is. Other names are asked.
fn is_bash(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if matches!(name, "bash" | "dash") {
        return name == "bash";
    }
    let mut command = std::process::Command::new(program);
    command
        .args(["-c", "printf %s \"${BASH_VERSION-}\""])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.output().is_ok_and(|said| said.status.success() && !said.stdout.is_empty())
}

struct LocalConnection {
    program: Program,
    user: Option<(u32, u32)>,
    mark: Mark,
    scratch: ScratchDir,
    /// Held at both ends for as long as the shell lives.
    stdout: NamedPipe,
    stderr: NamedPipe,
    pipes: Pipes,
    running: Option<Running>,
    /// Commands that have started, for their marks.
    commands: u64,
    moment: Moment,
    clock: Arc<Clock>,
}

struct Running {
    child: Child,
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

    fn command(&self, place: &StartPlace) -> Command {
        let mut command = in_own_session(self.program.setsid.as_deref(), &self.program.path);
        if self.program.dialect == Dialect::Bash {
            // Named as a script, not read as stdin: a bash whose script is its stdin crashes when a command
            // copies descriptor 0 and closes the copy.
            command.args(["--norc", "--noprofile", "/dev/stdin"]);
        }
        if let Some((uid, gid)) = self.user {
            // Setting the uid also drops every further group.
            command.uid(uid).gid(gid);
        }
        command.current_dir(&place.cwd).env_clear();
        let dialect = self.program.dialect;
        let env = place.env.iter().filter(|export| !acts_on_the_frame(dialect, &export.name));
        command.envs(env.map(|export| (OsString::from(&export.name), OsStr::from_bytes(&export.value))));
        Command::from(command)
    }

    fn try_start(&mut self, place: &StartPlace) -> std::io::Result<Streams> {
        if !(self.stdout.is_there() && self.stderr.is_there()) {
            (self.stdout, self.stderr) = outputs(&self.scratch, self.user)?;
            self.pipes.stdout = self.stdout.name();
            self.pipes.stderr = self.stderr.name();
        }
        let mut commands = NamedPipe::open(&self.scratch, self.user)?;
        self.pipes.commands = commands.name();
        let names = Scratch::put(&self.scratch, b"").ok().filter(|file| file.path().to_str().is_some());
        self.pipes.names = names.as_ref().map(|file| file.path().to_owned());
        let PipeEnds { read, write } = commands.let_go()?;
        let commands_link = std::fs::read_link(fifo::path_of(&write))?;
        let mut command = self.command(place);
        command.stdin(Stdio::from(read));
        command.stdout(self.stdout.for_child()?);
        command.stderr(self.stderr.for_child()?);
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| std::io::Error::other("the shell ended at once"))?;
        self.commands += 1;
        let processes = Arc::new(ProcessTree::found(self.mark, pid, self.commands));
        let held = Arc::default();
        self.running = Some(Running {
            child,
            processes,
            ended: None,
            pid,
            commands,
            commands_link,
            held,
            _names: names,
            data: DataPages::of(pid),
            data_at_first: None,
            has_started: false,
        });
        Ok(Streams {
            stdin: Box::new(fifo::sender(&write)?),
            stdout: Source::Pipe(self.stdout.reader()?),
            stderr: Source::Pipe(self.stderr.reader()?),
        })
    }
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

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

impl Connection for LocalConnection {
    fn dialect(&self) -> Dialect {
        self.program.dialect
    }

    fn start(&mut self, place: &StartPlace) -> Result<Streams, ShellError> {
        self.try_start(place).map_err(|source| ShellError::Start { cwd: place.cwd.clone(), source })
    }

    fn wait(&mut self) -> BoxFuture<'_, i32> {
        Box::pin(async {
            let Some(running) = &mut self.running else { return std::future::pending().await };
            if let Some(code) = running.ended {
                return code;
            }
            let code = running.child.wait().await.map_or(1, exit_code);
            running.ended = Some(code);
            code
        })
    }

    fn has_ended(&mut self) -> Option<i32> {
        let running = self.running.as_mut()?;
        if running.ended.is_none() {
            running.ended = running.child.try_wait().ok()?.map(exit_code);
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
            procfs::is_reading(running.pid, &running.commands_link) && nothing_unread()
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
            Some(running) => procfs::cwd(running.pid, said),
            None => said.to_owned(),
        }
    }

    fn stop(&self, force: Force, patience: Duration) -> BoxFuture<'static, usize> {
        let running = self.running.as_ref();
        let running =
            running.map(|running| (running.pid, Arc::clone(&running.processes), Arc::clone(&running.held)));
        let moment = self.moment;
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
                if force != Force::Ask {
                    held.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(fifo_unblock::let_through(pid));
                }
                // The interpreter first: it must know that it is to stop when its child ends.
                processes.signal_shell(STOP_SIGNAL);
                processes.signal_command(moment, signal, patience)
            });
            work.await.unwrap_or(0)
        })
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
            let Some(mut running) = self.running.take() else { return };
            let processes = Arc::clone(&running.processes);
            let left = tokio::task::spawn_blocking(move || processes.end(CLOSE_PATIENCE)).await.unwrap_or(0);
            if left > 0 {
                tracing::warn!(left, "processes of a closed shell did not end");
            }
            if running.ended.is_none() {
                end(&mut running.child).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_s_program_decides_the_dialect() {
        let marks = MarkPrefix::new(1);
        let path = OsStr::new("/usr/bin:/bin");
        let scratch = ScratchDir { path: PathBuf::from("/nonexistent"), reader: None };
        let transport = |program: Option<&str>, path| {
            LocalTransport::new(program.map(Path::new), path, marks, scratch.clone())
        };
        let dialect = |program| transport(program, path).unwrap().program.dialect;
        assert_eq!(dialect(None), Dialect::Bash);
        assert_eq!(dialect(Some("/usr/bin/dash")), Dialect::Posix);
        assert_eq!(dialect(Some("dash")), Dialect::Posix, "looked for in PATH");
        let nowhere = OsStr::new("/nonexistent");
        assert!(matches!(transport(None, nowhere), Err(ShellError::NoInterpreter)));
        for program in ["/nonexistent/bash", "/usr/bin", "no-such-shell"] {
            let error = transport(Some(program), path).unwrap_err().to_string();
            assert!(error.contains(program), "{error}");
        }
    }

    #[tokio::test]
    async fn only_a_bash_with_thousands_of_variables_holds_much() {
        use tokio::io::AsyncReadExt;
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir { path: dir.path().join("scratch"), reader: None };
        let path = OsStr::new("/usr/bin:/bin");
        let transport =
            LocalTransport::new(Some(Path::new("bash")), path, MarkPrefix::new(1), scratch).unwrap();
        let mut connection = transport.connect(1).unwrap();
        let place = StartPlace { cwd: dir.path().to_owned(), env: Vec::new() };
        let mut streams = connection.start(&place).unwrap();
        let mut held = vec![connection.holds_much()];
        for script in [
            "",
            "export A=1; f() { echo; }; x=$(seq 500);",
            "for ((n=0;n<5000;n++));do export V$n=value;done;",
        ] {
            streams.stdin.write_all(format!("{script}echo done\n").as_bytes()).await.unwrap();
            let mut line = [0; 5];
            streams.stdout.read_exact(&mut line).await.unwrap();
            held.push(connection.holds_much());
        }
        connection.close().await;
        assert_eq!(held, [false, false, false, true]);
    }
}
