//! Shells on this machine: bash, else sh, over three pipes.
//!
//! The output pipes belong to the shell, not to its interpreter: background jobs that outlive a restart go
//! on printing into them. No PTY, and a session of its own, so that nothing can ask on the terminal of the
//! program that runs the server.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};

use super::dialect::{Dialect, STOP_SIGNAL};
use super::error::ShellError;
use super::family::{Clock, Family, Mark, MarkPrefix, Moment};
use super::transport::{Connection, Force, Later, Place, Streams, Transport};

/// A larger pipe means fewer turns between a busy program and its reader. Not fatal where refused.
const PIPE_BYTES: usize = 256 << 10;
/// How long the processes of a destroyed shell may take to vanish after KILL.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The shells of this machine.
#[derive(Debug)]
pub struct LocalTransport {
    program: Program,
    marks: MarkPrefix,
    clock: Arc<Clock>,
    user: Option<(u32, u32)>,
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
    pub fn new(program: Option<&Path>, path: &OsStr, marks: MarkPrefix) -> Result<Self, ShellError> {
        let found = match program {
            Some(program) => Some(program.to_owned()),
            None => find("bash", path).or_else(|| find("sh", path)),
        };
        let found = found.ok_or(ShellError::NoInterpreter)?;
        let is_bash = found.file_name().is_some_and(|name| name == "bash");
        let dialect = if is_bash { Dialect::Bash } else { Dialect::Posix };
        let program = Program { path: found, dialect, setsid: find("setsid", path) };
        Ok(LocalTransport { program, marks, clock: Arc::new(Clock::new()), user: None })
    }

    /// Shells that run as another user: uid and gid.
    pub fn of_user(self, user: Option<(u32, u32)>) -> LocalTransport {
        LocalTransport { user, ..self }
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
        let pipes = Pipes::new(self.user)
            .map_err(|error| ShellError::Start { cwd: PathBuf::from("."), source: error.into() })?;
        Ok(Box::new(LocalConnection {
            program: self.program.clone(),
            user: self.user,
            mark: self.marks.mark(n),
            pipes,
            running: None,
            moment: self.clock.now(),
            clock: Arc::clone(&self.clock),
        }))
    }
}

/// A program's file in a search path.
fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    let executable =
        |file: &PathBuf| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file();
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(executable)
}

/// Both ends of both output pipes, held for as long as the shell lives.
struct Pipes {
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
}

impl Pipes {
    fn new(user: Option<(u32, u32)>) -> rustix::io::Result<Pipes> {
        let pipes = Pipes { stdout: pipe_with(PipeFlags::CLOEXEC)?, stderr: pipe_with(PipeFlags::CLOEXEC)? };
        give(&pipes.stdout.1, user)?;
        give(&pipes.stderr.1, user)?;
        if fcntl_setpipe_size(&pipes.stdout.1, PIPE_BYTES).is_err() {
            tracing::debug!("the pipe keeps its usual size");
        }
        Ok(pipes)
    }
}

/// Lets a user open a pipe's end by its name, as `/dev/stdin` does.
fn give(end: &OwnedFd, user: Option<(u32, u32)>) -> rustix::io::Result<()> {
    match user {
        Some((uid, _)) => rustix::fs::fchown(end, Some(rustix::fs::Uid::from_raw(uid)), None),
        None => Ok(()),
    }
}

struct LocalConnection {
    program: Program,
    user: Option<(u32, u32)>,
    mark: Mark,
    pipes: Pipes,
    running: Option<Running>,
    moment: Moment,
    clock: Arc<Clock>,
}

struct Running {
    child: Child,
    family: Arc<Family>,
    ended: Option<i32>,
}

impl LocalConnection {
    fn command(&self, place: &Place) -> Command {
        let mut command = match &self.program.setsid {
            Some(setsid) => {
                let mut command = std::process::Command::new(setsid);
                command.arg(&self.program.path);
                command
            }
            None => {
                let mut command = std::process::Command::new(&self.program.path);
                command.process_group(0);
                command
            }
        };
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
        command.envs(
            place.env.iter().map(|export| (OsString::from(&export.name), OsStr::from_bytes(&export.value))),
        );
        Command::from(command)
    }

    fn try_start(&mut self, place: &Place) -> std::io::Result<Streams> {
        let (stdin_read, stdin_write) = pipe_with(PipeFlags::CLOEXEC)?;
        give(&stdin_read, self.user)?;
        let mut command = self.command(place);
        command.stdin(Stdio::from(stdin_read));
        command.stdout(Stdio::from(self.pipes.stdout.1.try_clone()?));
        command.stderr(Stdio::from(self.pipes.stderr.1.try_clone()?));
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| std::io::Error::other("the shell ended at once"))?;
        let family = Arc::new(Family::found(self.mark, pid));
        self.running = Some(Running { child, family, ended: None });
        Ok(Streams {
            stdin: Box::new(Sender::from_owned_fd(stdin_write)?),
            stdout: Box::new(reader(&self.pipes.stdout.0)?),
            stderr: Box::new(reader(&self.pipes.stderr.0)?),
        })
    }
}

/// A reading end with an open file of its own: the original keeps its flags.
fn reader(end: &OwnedFd) -> std::io::Result<Receiver> {
    Receiver::from_owned_fd(reopen(end, OFlags::RDONLY)?)
}

/// Opens a pipe's end once more. A duplicate would share its flags with the programs that print into it,
/// and a stdout that does not block breaks them.
fn reopen(end: &OwnedFd, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end.as_fd().as_raw_fd());
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn writer(end: &OwnedFd) -> std::io::Result<Sender> {
    Sender::from_owned_fd(reopen(end, OFlags::WRONLY)?)
}

async fn write_behind(end: std::io::Result<Sender>, bytes: &[u8]) -> std::io::Result<()> {
    end?.write_all(bytes).await
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

impl Connection for LocalConnection {
    fn dialect(&self) -> Dialect {
        self.program.dialect
    }

    fn start(&mut self, place: &Place) -> Result<Streams, ShellError> {
        self.try_start(place).map_err(|source| ShellError::Start { cwd: place.cwd.clone(), source })
    }

    fn wait(&mut self) -> Later<'_, i32> {
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

    fn seal(&self, mark: Vec<u8>) -> Later<'static, ()> {
        let ends = (writer(&self.pipes.stdout.1), writer(&self.pipes.stderr.1));
        Box::pin(async move {
            let (out, err) = tokio::join!(write_behind(ends.0, &mark), write_behind(ends.1, &mark));
            if let Err(error) = out.and(err) {
                tracing::warn!(%error, "the end of a shell's output could not be marked");
            }
        })
    }

    fn command_starts(&mut self) {
        self.moment = self.clock.now();
    }

    fn stop(&self, force: Force, patience: Duration) -> Later<'static, usize> {
        let family = self.running.as_ref().map(|running| Arc::clone(&running.family));
        let moment = self.moment;
        let signal = match force {
            Force::Ask => Signal::INT,
            Force::Insist => Signal::TERM,
            Force::Kill => Signal::KILL,
        };
        Box::pin(async move {
            let Some(family) = family else { return 0 };
            let work = tokio::task::spawn_blocking(move || {
                // The interpreter first: it must know that it is to stop when its child ends.
                family.signal_shell(STOP_SIGNAL);
                family.signal_born_after(moment, signal, patience)
            });
            work.await.unwrap_or(0)
        })
    }

    fn kill_interpreter(&self) {
        if let Some(running) = &self.running {
            running.family.signal_shell(Signal::KILL);
        }
    }

    fn close(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            let Some(mut running) = self.running.take() else { return };
            let family = Arc::clone(&running.family);
            let left = tokio::task::spawn_blocking(move || family.end(CLOSE_PATIENCE)).await.unwrap_or(0);
            if left > 0 {
                tracing::warn!(left, "processes of a closed shell did not end");
            }
            // Reaps the interpreter, which the family's end has killed.
            if running.ended.is_none() && running.child.wait().await.is_err() {
                tracing::debug!("the closed shell's interpreter was gone already");
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
        let dialect = |program: Option<&str>| {
            LocalTransport::new(program.map(Path::new), path, marks).unwrap().program.dialect
        };
        assert_eq!(dialect(None), Dialect::Bash);
        assert_eq!(dialect(Some("/usr/bin/dash")), Dialect::Posix);
        assert!(matches!(
            LocalTransport::new(None, OsStr::new("/nonexistent"), marks),
            Err(ShellError::NoInterpreter)
        ));
    }
}
