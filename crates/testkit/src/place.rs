//! A place of its own for the program under test: a root, a home, a workspace, and none of the environment of
//! whoever runs the tests.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// No command of a test takes so long, however busy the machine is.
const STUCK: Duration = Duration::from_secs(300);

/// A temporary directory with what `ctx` looks for in it.
#[derive(Debug)]
pub struct Place {
    temp: tempfile::TempDir,
    binary: PathBuf,
    root: PathBuf,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Its output, if it ended well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it said on stderr, if it ended with that code.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stderr
    }
}

impl Place {
    /// `binary` is `env!("CARGO_BIN_EXE_ctx")` of the test that asks.
    pub fn new(binary: impl AsRef<Path>) -> Place {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = temp.path().join("root");
        for dir in ["home", "work"] {
            std::fs::create_dir(temp.path().join(dir)).expect("a directory in the temporary one");
        }
        // Other users come in too; what they must not see has modes of its own.
        std::fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).expect("our own directory");
        Place { temp, binary: binary.as_ref().to_owned(), root }
    }

    /// Another root below the temporary directory, such as one with a long name.
    #[must_use]
    pub fn with_root(mut self, below: &str) -> Place {
        self.root = self.temp.path().join(below);
        self
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that agents work in.
    pub fn workspace(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    pub fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    /// Where a session of the agent `coder` lies.
    pub fn session_dir(&self, name: &str) -> PathBuf {
        let uid = rustix::process::getuid().as_raw();
        self.root().join(format!("home/{uid}/agent/coder/session/{name}"))
    }

    /// A file or directory of this place.
    pub fn path(&self, below: &str) -> PathBuf {
        self.temp.path().join(below)
    }

    /// The program with this place as its whole world.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_under(&[], args)
    }

    /// The same, run by a program that changes what it may do: its words come first.
    pub(crate) fn command_under(&self, words: &[String], args: &[&str]) -> Command {
        let binary = [self.binary.as_os_str()];
        let mut all = words.iter().map(AsRef::as_ref).chain(binary);
        let mut command = Command::new(all.next().unwrap_or_default());
        command.args(all).args(args);
        self.set_environment(&mut command);
        command
    }

    /// Gives a command this place's environment and nothing else.
    pub fn set_environment(&self, command: &mut Command) {
        command.env_clear().current_dir(self.workspace());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("CTX_ROOT", &self.root).env("TERM", "xterm");
        // A test starts its own daemon, or means that there is none.
        command.env("CTX_AUTOSTART", "false");
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs the program to its end, with nothing on stdin.
    pub fn ctx(&self, args: &[&str]) -> Outcome {
        finish(&mut self.command(args))
    }

    /// Runs the program to its end with a text on stdin.
    pub fn ctx_with(&self, args: &[&str], input: impl AsRef<[u8]>) -> Outcome {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe to the program");
        // A program that does not read to the end breaks the pipe; its outcome says the rest.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        outcome(&child.wait_with_output().expect("the program ends"))
    }
}

/// Runs a command to its end, with nothing on stdin. One that does not come to it is killed, so that the test says which it
/// was, and the others still run.
pub fn finish(command: &mut Command) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, has_ended) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if has_ended.recv_timeout(STUCK) == Err(RecvTimeoutError::Timeout) {
            // It may just have ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("the program ends");
    drop(ended);
    watch.join().expect("nothing panics there");
    outcome(&output)
}

fn outcome(output: &std::process::Output) -> Outcome {
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
