//! No process is left behind: not by destroy, not by reaping, not when the server itself is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ctx_host::shell::{CreateRequest, ExecRequest, ShellHost, ShellRecord};

use super::support::{Bench, Kind, Records, alive, config, eventually, pid_in};

/// Leaves all kinds of processes behind, and their pids in files.
const LEAVE_BEHIND: &str = "\
sleep 300 & echo $! >plain.pid
(sleep 300 & echo $! >orphan.pid)
setsid sh -c 'echo $$ >session.pid; exec sleep 300' </dev/null >/dev/null 2>&1 &
(setsid env -i sh -c 'echo $$ >daemon.pid; exec sleep 300' 0<&- 1>&- 2>&- 241>&- 242>&- &)
nohup sh -c 'trap \"\" TERM INT HUP; echo $$ >stubborn.pid; sleep 300; sleep 300' >/dev/null 2>&1 &
echo $$ >shell.pid";
const NAMES: [&str; 6] = ["plain", "orphan", "session", "daemon", "stubborn", "shell"];

fn pids(dir: &std::path::Path) -> Vec<i32> {
    NAMES.iter().filter_map(|name| pid_in(&dir.join(format!("{name}.pid")))).collect()
}

async fn left_behind(dir: &std::path::Path) -> Vec<i32> {
    eventually("all processes", || pids(dir).len() == NAMES.len()).await;
    let pids = pids(dir);
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    pids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroy_ends_every_process_of_the_shell_and_no_other() {
    let bench = Bench::new(Kind::Bash).await;
    let other = bench.host.create(CreateRequest::default()).await.unwrap();
    let neighbour = ExecRequest { command: "sleep 300 & echo $!".to_owned(), ..ExecRequest::default() };
    let neighbour: i32 =
        bench.host.exec(&other, neighbour, None).await.unwrap().stdout.trim().parse().unwrap();
    bench.run(LEAVE_BEHIND).await;
    let pids = left_behind(bench.dir.path()).await;
    bench.host.destroy(&bench.id).await.unwrap();
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
    assert!(alive(neighbour), "another shell's job lives");
    assert!(bench.host.destroy(&bench.id).await.is_err(), "it is gone");
    bench.end().await;
    assert!(!alive(neighbour));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroy_does_not_wait_for_a_running_command() {
    let bench = Bench::new(Kind::Bash).await;
    let (result, waiting, ()) = tokio::join!(
        bench.try_run(ExecRequest { command: "touch go; sleep 300".to_owned(), ..ExecRequest::default() }),
        bench.try_run(ExecRequest { command: "echo never".to_owned(), ..ExecRequest::default() }),
        async {
            eventually("the command's start", || bench.path("go").exists()).await;
            bench.host.destroy(&bench.id).await.unwrap();
        }
    );
    for error in [result.unwrap_err(), waiting.unwrap_err()] {
        assert_eq!(error.code().name(), "EHOSTDOWN", "{error}");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_shell_is_reaped_with_all_its_processes() {
    let bench = Bench::with(Kind::Bash, |limits| limits.idle_max = Duration::from_secs(2)).await;
    bench.run(LEAVE_BEHIND).await;
    let pids = left_behind(bench.dir.path()).await;
    eventually("the reaping", || bench.host.list().is_empty()).await;
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
    let error = bench.try_run(ExecRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("after 2 seconds without a command"), "{error}");
    let reaped = bench.records.0.lock().unwrap().iter().any(|r| matches!(r, ShellRecord::Reaped { .. }));
    assert!(reaped);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_jobs_outlive_a_restart_and_end_with_the_shell() {
    let bench = Bench::new(Kind::Bash).await;
    bench.run(LEAVE_BEHIND).await;
    let pids = left_behind(bench.dir.path()).await;
    let old_shell = pid_in(&bench.path("shell.pid")).unwrap();
    assert!(bench.run("exit 1").await.shell_restarted);
    let jobs: Vec<i32> = pids.iter().copied().filter(|pid| *pid != old_shell).collect();
    assert!(jobs.iter().all(|pid| alive(*pid)), "{jobs:?}");
    bench.end().await;
    assert!(jobs.iter().all(|pid| !alive(*pid)), "{jobs:?}");
}

/// Runs inside a child process: makes a shell with processes and waits to be killed.
const SERVER_VARIABLE: &str = "CTX_TEST_SHELL_SERVER";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_for_the_test_below() {
    let Some(dir) = std::env::var_os(SERVER_VARIABLE).map(std::path::PathBuf::from) else { return };
    let host = ShellHost::new(config(Kind::Bash, &dir), std::sync::Arc::new(Records::default())).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    let request = |command: &str| ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
    host.exec(&id, request(LEAVE_BEHIND), None).await.unwrap();
    left_behind(&dir).await;
    println!("\nready");
    host.exec(&id, request("sleep 300"), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["a_server_for_the_test_below", "--nocapture"])
        .env(SERVER_VARIABLE, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the server did not get ready");
    let pids = pids(dir.path());
    assert_eq!(pids.len(), NAMES.len());
    // SIGKILL: the server has no chance to do anything.
    server.kill().unwrap();
    server.wait().unwrap();
    eventually("the end of all its processes", || pids.iter().all(|pid| !alive(*pid))).await;
}
