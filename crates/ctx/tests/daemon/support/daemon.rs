//! A daemon of its own for a test: started, killed, started again on the same root.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Answer, Client, LONG, Log, connect, http};

pub struct Daemon {
    /// Holds everything of the test; gone with it.
    dir: TempDir,
    pub root: PathBuf,
    settings: Vec<(String, String)>,
    /// Who runs it, when it is not who runs the tests.
    user: Option<(u32, u32)>,
    child: Option<Child>,
}

impl Daemon {
    /// A running daemon on a fresh root.
    pub fn start() -> Daemon {
        Daemon::with(&[])
    }

    /// The same with settings, as `CTX_…` variables.
    pub fn with(settings: &[(&str, &str)]) -> Daemon {
        let mut daemon = Daemon::new(settings);
        daemon.up();
        daemon
    }

    /// Not started yet; its root does not exist.
    pub fn new(settings: &[(&str, &str)]) -> Daemon {
        let dir = tempfile::Builder::new().prefix("ctx").tempdir().unwrap();
        // Other users come in too.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let root = dir.path().join("root");
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Daemon { dir, root, settings, user: None, child: None }
    }

    /// One that runs as another user, in a directory of theirs.
    pub fn as_user(uid: u32, gid: u32) -> Daemon {
        let mut daemon = Daemon::new(&[]);
        for dir in [daemon.dir.path().to_owned(), daemon.dir.path().join("work")] {
            std::os::unix::fs::chown(dir, Some(uid), Some(gid)).expect("this test needs root");
        }
        daemon.user = Some((uid, gid));
        daemon.up();
        daemon
    }

    /// `ctx serve` for this root, as a command.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ctx"));
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("CTX_")) {
            command.env_remove(key);
        }
        command
            .args(["serve", "--root"])
            .arg(&self.root)
            .arg("--workspace")
            .arg(self.dir.path().join("work"))
            .env("XDG_CONFIG_HOME", self.dir.path().join("config"))
            .envs(self.settings.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it, and waits until it answers.
    pub fn up(&mut self) {
        self.spawn();
        let deadline = Instant::now() + LONG;
        loop {
            if connect(&self.socket()).is_ok_and(|mut client| client.answers()) {
                return;
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!("the daemon left with {status}: {}", self.stderr());
            }
            assert!(Instant::now() < deadline, "the daemon does not come up: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(self.dir.path().join("stderr")).unwrap();
        let child = self.command().stdout(Stdio::null()).stderr(log).spawn().unwrap();
        assert!(self.child.replace(child).is_none(), "it runs already");
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a daemon").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "it was to die by the signal: {status}");
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "left with {status}: {}", self.stderr());
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.take().expect("a daemon").wait().unwrap()
    }

    pub fn restart(&mut self) {
        self.stop();
        self.up();
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }

    pub fn socket(&self) -> PathBuf {
        self.root.join("agent/coder.sock")
    }

    pub fn client(&self) -> Client {
        connect(&self.socket()).unwrap()
    }

    /// The directory of a session of the user who runs the tests.
    pub fn session(&self, name: &str) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        self.root.join(format!("home/{uid}/agent/coder/session/{name}"))
    }

    pub fn log(&self, name: &str) -> Log {
        Log::read(&self.session(name).join("events.jsonl"))
    }

    pub fn file(&self, session: &str, name: &str) -> String {
        let path = self.session(session).join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Asks the API.
    pub fn api(&self, method: &str, path: &str) -> Answer {
        http::ask(&self.root.join(".state/api.sock"), method, path)
    }

    /// Every session that the API shows.
    pub fn shown_all(&self) -> Vec<Value> {
        let list = self.api("GET", "/projects/default/sessions?limit=1000").ok();
        list["items"].as_array().unwrap().clone()
    }

    /// What a command of the same program prints on this root.
    pub fn said_by(&self, args: &[&str]) -> String {
        let done = Command::new(env!("CARGO_BIN_EXE_ctx")).args(args).arg("--root").arg(&self.root).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// A session as the API shows it.
    pub fn shown_of(&self, owner: u32, name: &str) -> Value {
        let all = self.shown_all();
        let found = all.iter().find(|session| session["name"] == name && session["owner"] == owner).cloned();
        found.unwrap_or_else(|| panic!("no session {name} in {all:?}"))
    }

    /// A session of the user who runs the tests.
    pub fn shown(&self, name: &str) -> Value {
        self.shown_of(rustix::process::geteuid().as_raw(), name)
    }

    /// A number of `/proc/<pid>/status`, in KiB where it is a size.
    pub fn proc_status(&self, field: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The files it holds open, as paths.
    pub fn open_files(&self) -> Vec<PathBuf> {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        // A descriptor may be closed while we look.
        fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
