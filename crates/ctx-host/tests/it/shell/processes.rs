//! No process is left behind: not by destroy, not by reaping, not when the server itself is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ctx_host::{CreateRequest, ExecRequest, ShellHost, ShellRecord};

use super::support::{Bench, Kind, Records, alive, config, eventually, pid_in, rows};

/// Leaves all kinds of processes behind, and their pids in files.
const LEAVE_BEHIND: &str = "\
sleep 300 & echo $! >plain.pid
(sleep 300 & echo $! >orphan.pid)
setsid sh -c 'echo $$ >session.pid; exec sleep 300' </dev/null >/dev/null 2>&1 &
(setsid env -i sh -c 'echo $$ >daemon.pid; exec sleep 300' 0<&- 1>&- 2>&- 241>&- 242>&- &)
nohup sh -c 'trap \"\" TERM INT HUP; echo $$ >stubborn.pid; sleep 300; sleep 300' >/dev/null 2>&1 &
echo $$ >shell.pid";
const NAMES: [&str; 6] = ["plain", "orphan", "session", "daemon", "stubborn", "shell"];

/// How many shells are busy at once.
const SHELLS: usize = 3;

rows![
    destroy_ends_every_process_of_the_shell_and_no_other,
    destroy_does_not_wait_for_a_running_command,
    idle_shells_are_reaped_with_all_their_processes,
    background_jobs_outlive_a_restart_and_end_with_the_shell,
    the_end_of_a_host_ends_all_its_busy_shells,
    a_killed_server_leaves_no_process,
];

fn pids(dir: &Path) -> Vec<i32> {
    NAMES.iter().filter_map(|name| pid_in(&dir.join(format!("{name}.pid")))).collect()
}

async fn left_behind(dir: &Path) -> Vec<i32> {
    eventually("all processes", || pids(dir).len() == NAMES.len()).await;
    let pids = pids(dir);
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    pids
}

fn request(command: &str) -> ExecRequest {
    ExecRequest { command: command.to_owned(), ..ExecRequest::default() }
}

/// Shells, each in a directory of its own and with processes left behind there; their ids and all the pids.
async fn busy_shells(host: &ShellHost, dir: &Path) -> (Vec<String>, Vec<i32>) {
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    for n in 0..SHELLS {
        let own = dir.join(format!("shell-{n}"));
        std::fs::create_dir(&own).unwrap();
        let cwd = Some(own.display().to_string());
        let id = host.create(CreateRequest { cwd, ..CreateRequest::default() }).await.unwrap();
        host.exec(&id, request(LEAVE_BEHIND), None).await.unwrap();
        all.extend(left_behind(&own).await);
        ids.push(id);
    }
    (ids, all)
}

/// Has each of the shells run something: one computes, the others wait for a child.
fn run_in_each(host: &ShellHost, ids: &[String]) {
    for (n, id) in ids.iter().enumerate() {
        let command =
            if n == 0 { "touch runs; while :; do :; done" } else { "touch runs; sleep 300; sleep 300" };
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.exec(&id, request(command), None).await.map(drop) });
    }
}

async fn all_run(dir: &Path) {
    let runs = |n: usize| dir.join(format!("shell-{n}/runs")).exists();
    eventually("all commands' start", || (0..SHELLS).all(runs)).await;
}

async fn destroy_ends_every_process_of_the_shell_and_no_other(kind: Kind) {
    let bench = Bench::new(kind).await;
    let neighbour: i32 = bench.run("sleep 300 & echo $!").await.stdout.trim().parse().unwrap();
    let (ids, pids) = busy_shells(&bench.host, bench.dir.path()).await;
    run_in_each(&bench.host, &ids);
    all_run(bench.dir.path()).await;
    for (n, id) in ids.iter().enumerate() {
        bench.host.destroy(id).await.unwrap();
        let (gone, left) = pids.split_at((n + 1) * NAMES.len());
        assert!(gone.iter().all(|pid| !alive(*pid)), "{gone:?}");
        assert!(left.iter().all(|pid| alive(*pid)), "{left:?}");
        assert!(bench.host.destroy(id).await.is_err(), "it is gone");
    }
    assert!(alive(neighbour), "another shell's job lives");
    bench.end().await;
    assert!(!alive(neighbour));
}

async fn destroy_does_not_wait_for_a_running_command(kind: Kind) {
    let bench = Bench::new(kind).await;
    let (result, waiting, ()) = tokio::join!(
        bench.try_run(request("touch go; sleep 300")),
        bench.try_run(request("echo never")),
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

async fn idle_shells_are_reaped_with_all_their_processes(kind: Kind) {
    let bench = Bench::with(kind, |limits| limits.idle_max = Duration::from_secs(2)).await;
    let (_, pids) = busy_shells(&bench.host, bench.dir.path()).await;
    eventually("the reaping", || bench.host.list().is_empty()).await;
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
    let error = bench.try_run(ExecRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("after 2 seconds without a command"), "{error}");
    let is_reaped = |record: &&ShellRecord| matches!(record, ShellRecord::Reaped { .. });
    assert_eq!(bench.records.0.lock().unwrap().iter().filter(is_reaped).count(), SHELLS + 1);
    bench.end().await;
}

async fn background_jobs_outlive_a_restart_and_end_with_the_shell(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench.run(LEAVE_BEHIND).await;
    let pids = left_behind(bench.dir.path()).await;
    let old_shell = pid_in(&bench.path("shell.pid")).unwrap();
    assert!(bench.run("exit 1").await.shell_restarted);
    let jobs: Vec<i32> = pids.iter().copied().filter(|pid| *pid != old_shell).collect();
    assert!(jobs.iter().all(|pid| alive(*pid)), "{jobs:?}");
    bench.end().await;
    assert!(jobs.iter().all(|pid| !alive(*pid)), "{jobs:?}");
}

async fn the_end_of_a_host_ends_all_its_busy_shells(kind: Kind) {
    let bench = Bench::new(kind).await;
    let (ids, pids) = busy_shells(&bench.host, bench.dir.path()).await;
    run_in_each(&bench.host, &ids);
    all_run(bench.dir.path()).await;
    bench.end().await;
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

/// Runs inside a child process: makes shells with processes and waits to be killed.
const SERVER_VARIABLE: &str = "CTX_TEST_SHELL_SERVER";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_for_the_test_below() {
    let Some(dir) = std::env::var_os(SERVER_VARIABLE).map(std::path::PathBuf::from) else { return };
    let kind = if dir.ends_with("Dash") { Kind::Dash } else { Kind::Bash };
    let host = ShellHost::new(config(kind, &dir), std::sync::Arc::new(Records::default())).unwrap();
    let (ids, _) = busy_shells(&host, &dir).await;
    run_in_each(&host, &ids);
    all_run(&dir).await;
    println!("\nready");
    std::future::pending().await
}

async fn a_killed_server_leaves_no_process(kind: Kind) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join(format!("{kind:?}"));
    std::fs::create_dir(&dir).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["a_server_for_the_test_below", "--nocapture"])
        .env(SERVER_VARIABLE, &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the server did not get ready");
    let pids: Vec<i32> = (0..SHELLS).flat_map(|n| pids(&dir.join(format!("shell-{n}")))).collect();
    assert_eq!(pids.len(), SHELLS * NAMES.len());
    // SIGKILL: the server has no chance to do anything.
    server.kill().unwrap();
    server.wait().unwrap();
    eventually("the end of all its processes", || pids.iter().all(|pid| !alive(*pid))).await;
}
