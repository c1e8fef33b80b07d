//! What the benchmarks share: a daemon to measure, percentiles, and rows of one table.
//!
//! A benchmark prints lines `work | ours | beside | ratio | target`; `bench/run` puts them together.

pub mod history;
pub mod http;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program under measurement: `CTX_BIN`, or the release build.
pub fn ctx() -> PathBuf {
    std::env::var_os("CTX_BIN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/ctx"), PathBuf::from)
}

/// A row of the table.
pub fn row(work: &str, ours: &str, beside: &str, ratio: &str, target: &str) {
    println!("| {work} | {ours} | {beside} | {ratio} | {target} |");
}

/// What a target says, and whether it is missed.
pub fn target(text: &str, holds: bool) -> String {
    if holds { text.to_owned() } else { format!("{text}, missed") }
}

/// The p-th percentile, 0 to 100.
pub fn percentile(values: &mut [Duration], p: usize) -> Duration {
    values.sort();
    let at = (values.len().saturating_sub(1)) * p / 100;
    values.get(at).copied().unwrap_or_default()
}

pub fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

/// A daemon on a root of its own, stopped when dropped.
pub struct Daemon {
    child: Child,
    pub root: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl Daemon {
    /// On a fresh root, with limits raised by environment.
    pub fn fresh(env: &[(&str, &str)]) -> Daemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("root");
        let mut daemon = Daemon::on(&root, env);
        daemon._dir = Some(dir);
        daemon
    }

    /// On a root that is there.
    pub fn on(root: &Path, env: &[(&str, &str)]) -> Daemon {
        let workspace = root.with_extension("work");
        std::fs::create_dir_all(&workspace).expect("a workspace");
        let child = Command::new(ctx())
            .args(["serve", "--log-level", "warn", "--root"])
            .arg(root)
            .arg("--workspace")
            .arg(&workspace)
            .envs(env.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .expect("ctx serve; run `make build` first");
        let daemon = Daemon { child, root: root.to_owned(), _dir: None };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(daemon.socket()).is_err() {
            assert!(Instant::now() < deadline, "the daemon did not come up");
            std::thread::sleep(Duration::from_millis(1));
        }
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.root.join("agent/coder.sock")
    }

    pub fn client(&self) -> Client {
        Client::new(UnixStream::connect(self.socket()).expect("the agent's socket"))
    }

    /// Resident memory in kilobytes.
    pub fn memory_kb(&self) -> u64 {
        memory_kb(self.child.id())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// VmRSS of a process, in kilobytes.
pub fn memory_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

/// A client of an agent's socket.
pub struct Client {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Client {
    fn new(stream: UnixStream) -> Client {
        let lines = BufReader::new(stream.try_clone().expect("a second handle"));
        Client { stream, lines }
    }

    pub fn send(&mut self, session: &str, input: &str) {
        self.ask(&serde_json::json!({ "op": "send", "session": session, "input": input }));
    }

    pub fn ask(&mut self, request: &serde_json::Value) {
        self.stream.write_all(format!("{request}\n").as_bytes()).expect("a request");
    }

    /// Reads frames up to the first of a type.
    pub fn until(&mut self, kind: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("a frame") > 0, "the daemon hung up");
            let frame: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            assert!(frame["type"] != "error", "{line}");
            if frame["type"] == kind {
                return frame;
            }
        }
    }
}
