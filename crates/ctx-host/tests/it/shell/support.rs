//! A host with one kind of shell, and the few words the tests use.

use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ctx_host::{
    CreateRequest, Destination, ExecRequest, ExecResult, HostConfig, LogError, ShellError, ShellHost,
    ShellLimits, ShellLog, ShellRecord,
};
use ctx_session::Ulid;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use super::elsewhere::{behind_sshd, in_container};

/// The shells every row of the behaviour table is tested on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bash,
    Dash,
    /// A bash behind a real sshd on this machine.
    Ssh,
    /// busybox in a container, whose processes and files have the names that they have here.
    Container,
}

impl Kind {
    pub fn program(self) -> &'static Path {
        Path::new(match self {
            Kind::Bash | Kind::Ssh => "/usr/bin/bash",
            Kind::Dash | Kind::Container => "/usr/bin/dash",
        })
    }

    pub fn is_bash(self) -> bool {
        matches!(self, Kind::Bash | Kind::Ssh)
    }

    /// Where a shell of this kind is made.
    pub fn place(self, config: &mut HostConfig) -> Destination {
        match self {
            Kind::Bash | Kind::Dash => Destination::Local,
            Kind::Ssh => behind_sshd(config),
            Kind::Container => in_container(config),
        }
    }
}

/// Remembers every record.
#[derive(Default)]
pub struct Records(pub Mutex<Vec<ShellRecord>>);

impl ShellLog for Records {
    fn record(&self, _log: Ulid, record: &ShellRecord) -> Result<(), LogError> {
        self.0.lock().unwrap().push(record.clone());
        Ok(())
    }

    fn close(&self, _log: Ulid) {}
}

/// A host with one shell open.
pub struct Bench {
    pub host: ShellHost,
    pub id: String,
    pub dir: tempfile::TempDir,
    pub records: Arc<Records>,
}

pub fn config(kind: Kind, dir: &Path) -> HostConfig {
    let mut config = HostConfig::from_process(dir.join("spool"), "ctx test");
    config.program = Some(kind.program().to_owned());
    config.cwd = dir.to_owned();
    config
}

impl Bench {
    pub async fn new(kind: Kind) -> Bench {
        Bench::with(kind, |_| ()).await
    }

    pub async fn with(kind: Kind, change: impl FnOnce(&mut ShellLimits)) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(kind, dir.path());
        change(&mut config.limits);
        let records = Arc::new(Records::default());
        let to = kind.place(&mut config);
        let cwd = Some(dir.path().display().to_string());
        let host = ShellHost::new(config, records.clone()).unwrap();
        let id = host.create(CreateRequest { to, cwd, ..CreateRequest::default() }).await.unwrap();
        Bench { host, id, dir, records }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn try_run(&self, request: ExecRequest) -> Result<ExecResult, ShellError> {
        self.host.exec(&self.id, request, None).await
    }

    pub async fn run(&self, command: &str) -> ExecResult {
        self.try_run(ExecRequest { command: command.to_owned(), ..ExecRequest::default() }).await.unwrap()
    }

    /// Runs a command with a time limit.
    pub async fn run_for(&self, command: &str, millis: u64) -> ExecResult {
        let timeout = Some(Duration::from_millis(millis));
        let request = ExecRequest { command: command.to_owned(), timeout, ..ExecRequest::default() };
        self.try_run(request).await.unwrap()
    }

    /// Stdout of a command that must succeed and print nothing else.
    pub async fn out(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}: {result:?}");
        result.stdout
    }

    pub async fn end(self) {
        self.host.shutdown().await;
    }
}

/// Names the seed of the random tests; without it each run takes a new one, and tells it where it fails.
const SEED_VARIABLE: &str = "CTX_TEST_SEED";

/// Runs a property with a seed that can be given again.
pub fn for_random<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value)) {
    let given = std::env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = given.unwrap_or_else(|| std::hash::RandomState::new().hash_one(()));
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 100,
        max_shrink_time: 20_000,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(strategy, |value| {
        property(value);
        Ok(())
    });
    let said = outcome.map_err(|error| format!("again with {SEED_VARIABLE}={seed}: {error}"));
    assert!(said.is_ok(), "{}", said.unwrap_err());
}

/// Waits for something that no event announces; fails when it does not come.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process lives (a zombie does not).
pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub fn pid_in(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// One test per shell for each row.
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        mod bash { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Kind::Bash).await } )* }
        mod dash { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Kind::Dash).await } )* }
    };
}
pub(crate) use rows;

/// The same on other machines and in containers.
macro_rules! rows_elsewhere {
    ($($name:ident),* $(,)?) => {
        mod ssh { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Kind::Ssh).await } )* }
        mod container { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Kind::Container).await } )* }
    };
}
pub(crate) use rows_elsewhere;

/// The same for what only bash has.
macro_rules! bash_rows {
    ($($name:ident),* $(,)?) => {
        mod bash_alone { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(super::Kind::Bash).await } )* }
    };
}
pub(crate) use bash_rows;

/// The state that must outlive whatever happens to a command.
pub async fn with_state(kind: Kind) -> Bench {
    let bench = Bench::new(kind).await;
    give_state(&bench).await;
    bench
}

pub async fn give_state(bench: &Bench) {
    let deep = bench.path("deep").display().to_string();
    let state = "plain=kept; export EXPORTED=too; f() { echo function; }";
    bench.out(&format!("mkdir -p {deep}; cd {deep}; {state}")).await;
}

pub async fn assert_state(bench: &Bench) {
    let deep = bench.path("deep").display().to_string();
    let result = bench.run("pwd; echo $plain $EXPORTED; f; for i in 1 2; do echo $i; done").await;
    assert_eq!(result.stdout, format!("{deep}\nkept too\nfunction\n1\n2\n"), "{result:?}");
    assert_eq!((result.stderr.as_str(), result.exit_code), ("", 0));
}

/// Runs something that does not end by itself and checks how it is ended.
pub async fn assert_stopped(bench: &Bench, command: &str) {
    // The design says one second more; a loaded machine gets some of its own, and more than one try.
    let soon = Duration::from_millis(300 + 1000 + 1500);
    let mut took = Duration::MAX;
    for left in [2, 1, 0] {
        let started = Instant::now();
        let result = bench.run_for(command, 300).await;
        assert!(result.timed_out && result.exit_code == 124, "{command}: {result:?}");
        assert!(!result.stdout.contains("never"), "{command}: {result:?}");
        if result.shell_restarted && left > 0 {
            give_state(bench).await;
            continue;
        }
        assert!(!result.shell_restarted, "{command}: {result:?}");
        took = took.min(started.elapsed());
        assert_state(bench).await;
        if took < soon {
            break;
        }
    }
    assert!(took < soon, "{command}: {took:?}");
}
