//! The real daemon, in a place of its own, that can be stopped, killed and started again.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::Place;
use crate::until;

/// A running daemon. Dropping it kills it and removes its place.
#[derive(Debug)]
pub struct TestDaemon {
    place: Place,
    environment: Vec<(String, String)>,
    args: Vec<String>,
    /// Who runs it, when it is not who runs the tests.
    user: Option<(u32, u32)>,
    /// The words of a program that runs it.
    under: Vec<String>,
    child: Option<Child>,
}

/// What to start.
#[derive(Debug)]
pub struct DaemonBuilder {
    place: Place,
    environment: Vec<(String, String)>,
    args: Vec<String>,
    user: Option<(u32, u32)>,
    under: Vec<String>,
}

impl DaemonBuilder {
    /// A variable such as `CTX_LIMITS_RUNNING_PER_PROJECT`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> DaemonBuilder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An argument of `ctx serve`.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> DaemonBuilder {
        self.args.push(arg.to_owned());
        self
    }

    /// Another root below the temporary directory.
    #[must_use]
    pub fn root(mut self, below: &str) -> DaemonBuilder {
        self.place = self.place.with_root(below);
        self
    }

    /// Runs it as another user, to whom its place is given.
    #[must_use]
    pub fn user(mut self, uid: u32, gid: u32) -> DaemonBuilder {
        for below in ["", "home", "work"] {
            std::os::unix::fs::chown(self.place.path(below), Some(uid), Some(gid))
                .expect("this test needs root");
        }
        self.user = Some((uid, gid));
        self
    }

    /// Has it run by a program that changes what it may do, such as `setpriv`, and becomes it.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> DaemonBuilder {
        self.under = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Where it will run.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Starts it and waits until its sockets answer.
    pub fn start(self) -> TestDaemon {
        let mut daemon = self.stopped();
        daemon.start_again();
        daemon
    }

    /// One that is not started yet; its root does not exist.
    pub fn stopped(self) -> TestDaemon {
        let DaemonBuilder { place, environment, args, user, under } = self;
        TestDaemon { place, environment, args, user, under, child: None }
    }
}

impl TestDaemon {
    pub fn build(binary: impl AsRef<Path>) -> DaemonBuilder {
        let (environment, args, under) = (Vec::new(), Vec::new(), Vec::new());
        DaemonBuilder { place: Place::new(binary), environment, args, user: None, under }
    }

    /// A daemon with nothing special about it.
    pub fn start(binary: impl AsRef<Path>) -> TestDaemon {
        TestDaemon::build(binary).start()
    }

    /// Starts a daemon that was stopped or killed, on the same root.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the daemon still runs");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        let mut command = self.serve();
        command.stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("the daemon starts"));
        until("the daemon's sockets", || self.answers().then_some(()));
    }

    /// `ctx serve` as it is started here, as a command.
    pub fn serve(&self) -> Command {
        let mut command = self.place.command_under(&self.under, &["serve", "--workspace"]);
        command.arg(self.place.workspace()).args(&self.args).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Whether this very daemon has announced itself and takes connections. Fails if it has ended.
    fn answers(&mut self) -> bool {
        let log = self.log_path();
        let child = self.child.as_mut().expect("a daemon");
        if let Some(status) = child.try_wait().expect("a child's status") {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            panic!("the daemon ended with {status}:\n{said}");
        }
        let announced = std::fs::read_to_string(self.place.root().join(".state/daemon.json"));
        let ours = format!("\"pid\":{},", child.id());
        let takes = |socket: &str| connect(&self.place.root().join(socket)).is_ok();
        announced.is_ok_and(|text| text.contains(&ours))
            && takes("agent/coder.sock")
            && takes(".state/api.sock")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a daemon").id()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the daemon takes a signal");
    }

    /// How it ends.
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a daemon");
        until("the daemon to end", || child.try_wait().expect("a child's status"))
    }

    /// SIGTERM, and its exit code.
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.wait().code().unwrap_or(-1)
    }

    fn log_path(&self) -> PathBuf {
        self.place.path("daemon.log")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

/// Connects to a socket whose path may be longer than the kernel takes.
pub fn connect(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    UnixStream::connect(Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name))
}

impl Deref for TestDaemon {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            // Shown by the test runner, with the failure it belongs to.
            eprintln!("--- the daemon's log ---\n{}", self.log());
        }
    }
}
