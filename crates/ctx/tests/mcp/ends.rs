//! However the server ends, no process of its shells is left.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Place, until};

use crate::support::{Host, place};

/// Leaves all kinds of processes behind, and their pids in files.
const LEAVE_BEHIND: &str = "\
sleep 300 & echo $! >plain.pid
(sleep 300 & echo $! >orphan.pid)
setsid sh -c 'echo $$ >session.pid; exec sleep 300' </dev/null >/dev/null 2>&1 &
(setsid env -i sh -c 'echo $$ >daemon.pid; exec sleep 300' 0<&- 1>&- 2>&- &)
nohup sh -c 'trap \"\" TERM INT HUP; echo $$ >stubborn.pid; sleep 300; sleep 300' >/dev/null 2>&1 &
echo $$ >shell.pid";
/// A command that is still running when the end comes.
const RUNNING: &str = "sh -c 'echo $$ >running.pid; exec sleep 300'";
const NAMES: [&str; 7] = ["plain", "orphan", "session", "daemon", "stubborn", "shell", "running"];

fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn pid_in(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The children of a process, and theirs.
fn below(pid: i32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let texts = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> = texts
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(below(*child))).collect()
}

/// A host whose server has a shell with all kinds of processes, one of them a command that still runs.
fn busy(place: &Place) -> (Host, Vec<i32>) {
    let mut host = Host::start(place);
    let shell = host.create();
    assert_eq!(host.exec(&shell, LEAVE_BEHIND)["exit_code"], 0);
    host.exec_soon(&shell, RUNNING);
    let mut pids = NAMES
        .map(|name| until(&format!("{name}.pid"), || pid_in(&place.workspace().join(format!("{name}.pid")))))
        .to_vec();
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    // Whatever else the server started for itself must go too.
    let server = i32::try_from(host.server.child.id()).unwrap();
    let descendants = below(server);
    assert!(descendants.len() > 1, "the shell and its guard: {descendants:?}");
    pids.extend(descendants);
    (host, pids)
}

fn all_gone(pids: &[i32]) {
    until("the end of all processes", || pids.iter().all(|pid| !alive(*pid)).then_some(()));
}

/// The server ends by itself, and leaves no process behind.
#[track_caller]
fn ended_well(host: &mut Host, pids: &[i32]) {
    let status = host.ended();
    assert!(status.success(), "{status}");
    all_gone(pids);
}

/// What `ctx shells` says of the one shell.
fn state(place: &Place) -> String {
    let listed: Value = serde_json::from_str(&place.ctx(&["shells", "list", "--json"]).ok()).unwrap();
    listed["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_that_is_killed_leaves_no_process() {
    let place = place();
    let (mut host, pids) = busy(&place);
    // SIGKILL: the server has no chance to do anything.
    host.server.child.kill().unwrap();
    host.server.child.wait().unwrap();
    all_gone(&pids);
    assert_eq!(state(&place), "lost", "nobody could write down its end");
}

#[test]
fn the_end_of_the_host_ends_the_server_and_every_process() {
    let place = place();
    let (mut host, pids) = busy(&place);
    assert_eq!(state(&place), "open");
    host.hang_up();
    ended_well(&mut host, &pids);
    assert_eq!(state(&place), "destroyed");
}

#[test]
fn a_command_that_still_runs_does_not_hold_up_the_end() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let started = place.path("started");
    host.exec_soon(&shell, &format!("touch {}; sleep 600", started.display()));
    until("the command's start", || started.exists().then_some(()));
    let since = Instant::now();
    host.hang_up();
    host.ended();
    // Hosts are patient for two or three seconds, then they kill.
    assert!(since.elapsed() < Duration::from_secs(4), "it took {:?}", since.elapsed());
}

#[test]
fn a_host_that_only_wrote_gets_its_last_answer() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    host.exec_soon(&shell, "echo last words");
    host.hang_up();
    let answer: Value = serde_json::from_str(&host.server.line()).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "last words\n", "{answer}");
}

#[test]
fn a_host_over_sockets_is_served_and_its_end_seen() {
    let place = place();
    let mut host = Host::over_sockets(&place);
    let shell = host.create();
    let print = "head -c 90000 /dev/zero | tr '\\0' y";
    let long = json!({"session_id": shell, "command": print, "budget": {"max_chars": 90_000}});
    assert_eq!(host.call("session_exec", long)["stdout"].as_str().unwrap().len(), 90_000);
    host.hang_up();
    let status = host.ended();
    assert!(status.success(), "{status}");
    assert_eq!(state(&place), "destroyed");
}

#[test]
fn a_server_that_is_asked_to_stop_ends_every_process() {
    let place = place();
    let (mut host, pids) = busy(&place);
    kill_process(Pid::from_child(&host.server.child), Signal::TERM).unwrap();
    ended_well(&mut host, &pids);
}

/// A server that has no descriptor left, with the processes below it.
fn exhausted(place: &Place) -> (Host, Vec<i32>) {
    let ctx = place.command(&["mcp", "--max-shells", "300"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(ctx.get_program()).args(ctx.get_args());
    for (name, value) in ctx.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = ctx.get_current_dir() {
        command.current_dir(dir);
    }
    let mut host = Host::with(&mut command);
    let opened = (0..100).take_while(|_| host.tool("session_create", json!({}))["isError"] != true).count();
    assert!((2..100).contains(&opened), "{opened} shells were opened");
    let pids = below(i32::try_from(host.server.child.id()).unwrap());
    assert!(pids.len() > opened, "{pids:?}");
    (host, pids)
}

#[test]
fn a_server_without_descriptors_ends_with_its_host_and_leaves_no_process() {
    let place = place();
    let (mut host, pids) = exhausted(&place);
    host.hang_up();
    ended_well(&mut host, &pids);
}

#[test]
fn a_server_without_descriptors_can_be_asked_to_stop() {
    let place = place();
    let (mut host, pids) = exhausted(&place);
    kill_process(Pid::from_child(&host.server.child), Signal::TERM).unwrap();
    ended_well(&mut host, &pids);
}
