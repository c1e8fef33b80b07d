//! Subagents that run commands: each in a cage of its own, with limits of its own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{DaemonBuilder, TestDaemon, until};

use crate::support::{build, json_lines, wait_state_of};

const ANN: u32 = 54_441;

/// A daemon with a project of Ann's, whose agent has a subagent that may work for long, one with little memory, one whose
/// cage cannot be made, and one with little time.
fn ready(builder: DaemonBuilder) -> TestDaemon {
    let place = builder.place();
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let dir = place.path("music");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    chown(&dir, Some(ANN), Some(ANN)).unwrap();
    let file = "version: 1\nproject: music\nprimary: {model: \"debug:script\"}\npolicy: [\"allow shell.*\"]\nsubagents:\n  \
                worker: {model: \"debug:script\"}\n  \
                small: {model: \"debug:script\", cage: {memory: 64M}}\n  \
                lost: {model: \"debug:script\", cage: {mounts: [\"/no/such/place:/x:ro\"]}}\n  \
                brief: {model: \"debug:script\", cage: {walltime: 3s}}\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    let daemon = builder.start();
    daemon.ctx(&["project", "add", dir.to_str().unwrap()]).ok();
    daemon.ctx(&["project", "trust", "music", "--yes"]).ok();
    daemon
}

/// A call for a subagent that runs a command and says so.
fn dispatch(agent: &str, command: &str) -> Value {
    let exec = json!({ "tool": { "name": "shell.exec", "input": { "command": command } } });
    let prompt = json!({ "script": [exec, { "text": format!("{agent} is done") }] }).to_string();
    json!({ "name": "agent.dispatch", "input": { "agent": agent, "prompt": prompt } })
}

fn send(daemon: &TestDaemon, flags: &[&str], calls: &[Value]) -> testkit::Outcome {
    let text = json!({ "script": [{ "tools": calls }, { "text": "the primary goes on" }] }).to_string();
    daemon.ctx(&[&["send", "-a", "music", "--session", "work"], flags, &[text.as_str()]].concat())
}

fn records(daemon: &TestDaemon, kind: &str) -> Vec<Value> {
    let log = daemon.ctx(&["log", "music/work", "--json"]);
    let all = if log.stdout.is_empty() { Vec::new() } else { json_lines(&log.ok()) };
    all.into_iter().filter(|record| record["type"] == kind).collect()
}

fn processes(mark: &str) -> usize {
    let found = Command::new("pgrep").args(["-f", &format!("^[^ ]*sleep {mark}")]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().count()
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("1000003.{}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn of_three_one_exceeds_its_memory_and_the_others_go_on() {
    let daemon = ready(build());
    let mark = unique();
    let bomb = format!("sleep {mark} & python3 -c 'x = bytearray(512 << 20)'");
    // The others wait until the one is gone.
    let wait = "until [ -e /work/go ]; do sleep 0.05; done; touch /work/$$.done; echo $HOME";
    send(
        &daemon,
        &["--detach"],
        &[dispatch("worker", wait), dispatch("small", &bomb), dispatch("worker", wait)],
    )
    .ok();
    let killed = until("the small one's end", || records(&daemon, "subagent_exited").pop());
    assert_eq!(
        (&killed["name"], &killed["cause"], &killed["state"]),
        (&json!("small"), &json!("memory"), &json!("killed"))
    );
    assert_eq!(
        (&killed["exit_code"], &killed["message"]),
        (&json!(137), &json!("Subagent small exceeded memory limit."))
    );
    assert_eq!(processes(&mark), 0, "nothing of it is left");
    std::fs::write(daemon.path("music/go"), "").unwrap();
    wait_state_of(&daemon, "music/work", "idle");
    let results: Vec<Value> =
        records(&daemon, "tool_finished").into_iter().filter(|one| one["caller"].is_null()).collect();
    let said: Vec<&str> = results.iter().map(|one| one["output"].as_str().unwrap()).collect();
    assert_eq!(said.iter().filter(|said| **said == "worker is done").count(), 2, "{said:?}");
    assert!(said.iter().any(|said| said.contains("Subagent small exceeded memory limit.")), "{said:?}");
    assert_eq!(records(&daemon, "run_finished").len(), 1, "the run went on");

    // Each had a cage and limits of its own, and every door says which.
    let cages: Vec<Value> =
        records(&daemon, "subagent_running").into_iter().map(|one| one["cage_id"].clone()).collect();
    let named: std::collections::BTreeSet<&str> = cages.iter().filter_map(Value::as_str).collect();
    assert_eq!(named.len(), 3, "{cages:?}");
    let mut limits: Vec<u64> = records(&daemon, "subagent_spawned")
        .into_iter()
        .map(|one| one["memory_bytes"].as_u64().unwrap())
        .collect();
    // They start side by side.
    limits.sort_unstable();
    assert_eq!(limits, [64 << 20, 2 << 30, 2 << 30]);
    let shown = daemon.ctx(&["show", "music/work"]).ok();
    let line = shown.lines().find(|line| line.contains("subagent small killed")).unwrap();
    assert!(
        line.contains("memory 64 MiB, cage ctx-cage-")
            && line.ends_with("Subagent small exceeded memory limit."),
        "{shown}"
    );
    let log = daemon.ctx(&["log", "music/work"]).ok();
    assert!(log.contains("(walltime 1800 s, memory 64 MiB)"), "{log}");
    assert!(log.contains("subagent small running in cage ctx-cage-"), "{log}");
}

#[test]
fn a_run_fails_with_the_last_one_that_exceeds_a_limit() {
    let daemon = ready(build());
    let failed = send(&daemon, &[], &[dispatch("small", "python3 -c 'x = bytearray(512 << 20)'")]).fails(1);
    assert!(failed.contains("Subagent small exceeded memory limit."), "{failed}");
    assert_eq!(records(&daemon, "failed")[0]["reason"], "subagent_memory");
    let mark = unique();
    let failed = send(&daemon, &[], &[dispatch("brief", &format!("setsid sleep {mark}"))]).fails(1);
    assert!(failed.contains("Subagent brief exceeded walltime limit."), "{failed}");
    until("its processes to be gone", || (processes(&mark) == 0).then_some(()));
}

#[test]
fn a_cage_that_cannot_be_started_fails_the_run_with_what_is_wrong() {
    let daemon = ready(build());
    let failed = send(&daemon, &[], &[dispatch("lost", "true")]).fails(1);
    assert!(
        failed.contains("Subagent lost could not be started") && failed.contains("/no/such/place"),
        "{failed}"
    );
    let exited = &records(&daemon, "subagent_exited")[0];
    assert_eq!((&exited["state"], &exited["cause"]), (&json!("failed"), &json!("spawn_failed")));
    assert_eq!(exited["exit_code"], Value::Null);
    assert_eq!(records(&daemon, "failed")[0]["reason"], "subagent_spawn");
    // The session goes on.
    send(&daemon, &[], &[dispatch("worker", "true")]).ok();
}

#[test]
fn a_pause_freezes_their_cages_and_a_rollback_ends_them() {
    let daemon = ready(build().env("CTX_LIMITS_STOP_GRACE_MS", "300"));
    let mark = unique();
    send(&daemon, &["--detach"], &[dispatch("worker", &format!("setsid sleep {mark} & sleep {mark}"))]).ok();
    until("it to run", || (processes(&mark) == 2).then_some(()));
    daemon.ctx(&["pause", "music/work"]).ok();
    let checkpoint = &records(&daemon, "checkpoint_created")[0];
    let kept = &checkpoint["active_subagents"][0];
    assert_eq!((&kept["name"], &kept["state"]), (&json!("worker"), &json!("suspended")));
    assert!(kept["cage_id"].as_str().unwrap().starts_with("ctx-cage-"), "{kept}");
    assert!(daemon.ctx(&["show", "music/work"]).ok().contains("worker suspended in cage ctx-cage-"));
    daemon.ctx(&["rollback", "music/work", "--yes"]).ok();
    assert_eq!(processes(&mark), 0, "none is left once the rollback is answered");
    assert_eq!(records(&daemon, "subagent_exited")[0]["state"], "killed");
}
