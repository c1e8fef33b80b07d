//! A daemon of its own for a test, with what tests of agents' sockets ask of it.

use std::ops::{Deref, DerefMut};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{DaemonBuilder, TestDaemon};

use super::{Answer, Client, Log, connect, http};

pub struct Daemon(pub TestDaemon);

impl Deref for Daemon {
    type Target = TestDaemon;

    fn deref(&self) -> &TestDaemon {
        &self.0
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut TestDaemon {
        &mut self.0
    }
}

impl Daemon {
    /// A running daemon on a fresh root.
    pub fn start() -> Daemon {
        Daemon::with(&[])
    }

    /// The same with settings, as `CTX_…` variables.
    pub fn with(settings: &[(&str, &str)]) -> Daemon {
        let builder = settings.iter().fold(Daemon::build(), |builder, (key, value)| builder.env(key, value));
        Daemon(builder.start())
    }

    pub fn build() -> DaemonBuilder {
        TestDaemon::build(env!("CARGO_BIN_EXE_ctx"))
    }

    /// Not started yet; its root does not exist.
    pub fn new() -> Daemon {
        Daemon(Daemon::build().stopped())
    }

    /// One that runs as another user, in a directory of theirs.
    pub fn as_user(uid: u32, gid: u32) -> Daemon {
        Daemon(Daemon::build().user(uid, gid).start())
    }

    /// `kill -9` of a daemon that has not ended by itself.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "it was to die by the signal: {status}");
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) {
        assert_eq!(self.0.stop(), 0, "{}", self.stderr());
    }

    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        self.0.log()
    }

    pub fn socket(&self) -> PathBuf {
        self.root().join("agent/coder.sock")
    }

    pub fn client(&self) -> Client {
        connect(&self.socket()).unwrap()
    }

    /// The directory of a session of the user who runs the tests.
    pub fn session(&self, name: &str) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        self.root().join(format!("home/{uid}/agent/coder/session/{name}"))
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
        http::ask(&self.root().join(".state/api.sock"), method, path)
    }

    /// Waits until the index files of a user's sessions are written.
    pub fn wait_for_index(&self, uid: u32) {
        let list = self.root().join(format!("home/{uid}/agent/coder/session/index/list"));
        testkit::until("the index files", || list.exists().then_some(()));
    }

    /// Asks the API something that has a body.
    pub fn api_with(&self, method: &str, path: &str, body: &Value) -> Answer {
        http::ask_with(&self.root().join(".state/api.sock"), method, path, &body.to_string())
    }

    /// Every session that the API shows.
    pub fn shown_all(&self) -> Vec<Value> {
        let list = self.api("GET", "/projects/default/sessions?limit=1000").ok();
        list["items"].as_array().unwrap().clone()
    }

    /// What a command of the same program prints on this root.
    pub fn said_by(&self, args: &[&str]) -> String {
        self.ctx(args).ok()
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
