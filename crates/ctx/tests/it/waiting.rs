//! Who waits for whom: `ctx wait`, a `send` that is queued, and the lists of what needs the user.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;
use testkit::{Pty, TestDaemon, until};

use crate::support::{SLOW, build, daemon, json_lines, start_slow, wait_state};

/// A daemon in which one run is all there can be, and it is going on.
fn busy() -> TestDaemon {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    start_slow(&daemon, "busy");
    daemon
}

fn script(steps: serde_json::Value) -> String {
    json!({ "script": steps }).to_string()
}

/// A run that waits for an approval of `fs.list`.
fn ask_for_approval(daemon: &TestDaemon, session: &str) {
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let steps =
        json!([{ "tool": { "name": "fs.list", "input": { "path": "/work" } } }, { "text": "listed" }]);
    let args = ["send", "--detach", "--model", "debug:script", "--session", session, &script(steps)];
    daemon.ctx(&args).ok();
    daemon.ctx(&["wait", &format!("coder/{session}"), "--for", "approval"]).ok();
}

#[test]
fn a_send_that_is_queued_starts_when_a_run_ends() {
    let daemon = busy();
    let mut command = daemon.command(&["send", "--session", "second", "hello"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().contains("1 of 1 runs in this project are busy"));
    assert!(said.next().unwrap().contains("waiting for a run to end (number 1 of yours)"));
    wait_state(&daemon, "second", "queued");
    daemon.ctx(&["cancel", "coder/busy"]).ok();
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8(out.stdout).unwrap().as_str()), (Some(0), "hello\n"));
}

#[test]
fn ctrl_c_leaves_a_queued_message_in_the_queue() {
    let daemon = busy();
    let mut pty = Pty::ctx(&daemon, &["send", "--session", "second", "hello"]);
    pty.wait_for("waiting for a run to end");
    pty.type_keys("\x03");
    pty.wait_for("the message stays queued; `ctx queue resume coder/second`");
    assert_eq!(pty.wait(), 1);
    wait_state(&daemon, "second", "queued");
    daemon.ctx(&["cancel", "coder/busy"]).ok();
    daemon.ctx(&["queue", "resume", "coder/second"]).ok();
    daemon.ctx(&["wait", "coder/second"]).ok();
    assert_eq!(daemon.ctx(&["latest", "coder/second"]).ok(), "hello\n");
}

#[test]
fn a_queued_send_starts_when_a_daemon_that_was_killed_is_back() {
    let mut daemon = busy();
    let mut pty = Pty::ctx(&daemon, &["send", "--session", "second", "hello"]);
    pty.wait_for("waiting for a run to end");
    daemon.kill();
    pty.wait_for("the daemon does not answer");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    pty.wait_for("hello\r\n");
    assert_eq!(pty.wait(), 0);
    assert_eq!(daemon.ctx(&["queue"]).ok(), "");
}

#[test]
fn a_queued_send_says_that_its_message_stays_when_the_daemon_is_stopped() {
    let mut daemon = busy();
    let mut pty = Pty::ctx(&daemon, &["send", "--session", "second", "hello"]);
    pty.wait_for("waiting for a run to end");
    daemon.stop();
    pty.wait_for("the message stays queued; `ctx queue resume coder/second` starts it");
    assert_eq!(pty.wait(), 69);
    assert!(!pty.shown().contains("send the message again"), "{}", pty.shown());
    daemon.start_again();
    daemon.ctx(&["queue", "resume", "coder/second"]).ok();
    daemon.ctx(&["wait", "coder/second"]).ok();
    assert_eq!(daemon.ctx(&["latest", "coder/second"]).ok(), "hello\n");
}

#[test]
fn waiting_ends_where_it_was_asked_to_or_says_why_not() {
    let daemon = daemon();
    let slow = script(json!([{ "text": "half" }, { "sleep_ms": 300 }, { "text": "whole" }]));
    daemon.ctx(&["send", "--detach", "--model", "debug:script", "--session", "a", &slow]).ok();
    daemon.ctx(&["wait", "coder/a"]).ok();
    assert!(daemon.ctx(&["latest", "coder/a"]).ok().contains("whole"));
    daemon.ctx(&["wait", "coder/a", "--timeout", "0"]).ok();
    daemon.ctx(&["send", "--detach", "--session", "a", SLOW]).ok();
    let late = daemon.ctx(&["wait", "coder/a", "--timeout", "0s"]).fails(1);
    assert!(late.contains("ETIMEDOUT") && late.contains("still running after 0 s"), "{late}");
    daemon.ctx(&["pause", "coder/a", "--reason", "have a look"]).ok();
    daemon.ctx(&["wait", "coder/a", "--for", "paused"]).ok();
    assert!(daemon.ctx(&["wait", "coder/a"]).fails(1).contains("it is paused"));
    daemon.ctx(&["end", "coder/a", "--yes"]).ok();
    daemon.ctx(&["wait", "coder/a", "--for", "ended"]).ok();
    let failing = script(json!([{ "error": "bad_key" }]));
    daemon.ctx(&["send", "--detach", "--model", "debug:script", "--session", "b", &failing]).ok();
    let said = daemon.ctx(&["wait", "coder/b"]).fails(1);
    assert!(said.contains("the run failed"), "{said}");
    daemon.ctx(&["wait", "coder/nothing"]).fails(1);
}

#[test]
fn the_list_says_who_needs_the_user_and_they_come_first() {
    let daemon = daemon();
    ask_for_approval(&daemon, "asks");
    let pausing = script(json!([{ "tool": { "name": "checkpoint", "input": { "reason": "sign-off" } } }]));
    daemon.ctx(&["send", "--detach", "--model", "debug:script", "--session", "pauses", &pausing]).ok();
    daemon.ctx(&["wait", "coder/pauses", "--for", "paused"]).ok();
    daemon.ctx(&["send", "--session", "newest", "hello"]).ok();
    let listed = daemon.ctx(&["ls"]).ok();
    let rows: Vec<&str> = listed.lines().skip(1).collect();
    assert!(rows[0].contains("coder/asks") && rows[0].contains("needs approval"), "{listed}");
    assert!(rows[1].contains("coder/pauses") && rows[1].contains("paused: sign-off"), "{listed}");
    assert!(rows[2].contains("coder/newest"), "{listed}");
    assert_eq!(daemon.ctx(&["ls", "--needs-me"]).ok().lines().count(), 3, "the head and two");
    let as_json = json_lines(&daemon.ctx(&["ls", "--needs-me", "--json"]).ok());
    let mut needs: Vec<_> = as_json.iter().map(|session| session["needs"].as_str().unwrap()).collect();
    needs.sort_unstable();
    assert_eq!(needs, ["needs approval", "paused: sign-off"]);
    let waits = daemon.ctx(&["approve"]).ok();
    assert!(waits.contains("coder/asks") && waits.contains("fs.list /work"), "{waits}");
    daemon.ctx(&["approve", "coder/asks"]).ok();
    daemon.ctx(&["wait", "coder/asks"]).ok();
    assert!(daemon.ctx(&["approve"]).stderr.contains("no tool call waits"));
    daemon.ctx(&["resume", "coder/pauses", "--message", "go on"]).ok();
    daemon.ctx(&["wait", "coder/pauses"]).ok();
    assert!(daemon.ctx(&["history", "coder/pauses"]).ok().contains("The operator answers: go on"));
}

#[test]
fn a_session_whose_last_run_failed_says_so_until_the_next_run() {
    let daemon = daemon();
    let failing = script(json!([{ "error": "bad_key" }]));
    let is_failing = || daemon.ctx(&["ls"]).ok().contains("failed: ");
    // The list says so at once, whatever it is made of.
    for _ in 0..5 {
        daemon.ctx(&["send", "--model", "debug:script", "--session", "fails", &failing]).fails(2);
        assert!(is_failing(), "a run has just failed");
        daemon.ctx(&["send", "--model", "debug:echo", "--session", "fails", "again"]).ok();
        assert!(!is_failing(), "a good run has come after it");
    }
    daemon.ctx(&["send", "--model", "debug:script", "--session", "fails", &failing]).fails(2);
    daemon.ctx(&["send", "--session", "newest", "hello"]).ok();
    let listed = daemon.ctx(&["ls"]).ok();
    let rows: Vec<&str> = listed.lines().skip(1).collect();
    assert!(rows[0].contains("coder/fails") && rows[0].contains("failed: "), "{listed}");
    assert!(rows[1].contains("coder/newest") && rows[1].contains("idle"), "{listed}");
    let mine = daemon.ctx(&["ls", "--needs-me"]).ok();
    assert!(mine.lines().count() == 2 && mine.contains("coder/fails"), "the head and one: {mine}");
    // What a fork took over is its source's.
    daemon.ctx(&["fork", "coder/fails", "--name", "copy"]).ok();
    assert_eq!(daemon.ctx(&["ls"]).ok().matches("failed: ").count(), 1);
    daemon.ctx(&["send", "--model", "debug:echo", "--session", "fails", "again"]).ok();
    assert!(!is_failing());
    assert_eq!(daemon.ctx(&["ls", "--needs-me"]).ok(), "", "nobody needs the user");
}

#[test]
fn the_end_of_an_id_names_a_session_everywhere() {
    let daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "hello"]).ok();
    let listed = daemon.ctx(&["ls"]).ok();
    let id = listed.lines().nth(1).unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(id.len(), 8, "{listed}");
    assert_eq!(daemon.ctx(&["latest", &id]).ok(), "hello\n");
    assert_eq!(daemon.ctx(&["latest", &id[2..].to_lowercase()]).ok(), "hello\n");
    daemon.ctx(&["rename", &id, "by the end of its id"]).ok();
    until("the title", || daemon.ctx(&["ls"]).ok().contains("by the end of its id").then_some(()));
    daemon.ctx(&["latest", &id[3..]]).fails(1);
    // A bare name is a session of the current agent.
    assert_eq!(daemon.ctx(&["latest", "one"]).ok(), "hello\n");
}

#[test]
fn the_end_or_the_beginning_of_an_id_names_approvals_runs_checkpoints_issues_and_messages() {
    let daemon = daemon();
    let id_of = |args: &[&str], field: &str| {
        let line = json_lines(&daemon.ctx(args).ok()).pop().unwrap();
        line[field].as_str().unwrap_or_else(|| panic!("{args:?}: {line}")).to_owned()
    };
    ask_for_approval(&daemon, "asks");
    let approval = id_of(&["approve", "coder/asks", "--list", "--json"], "id");
    assert!(daemon.ctx(&["approve", "coder/asks", &approval[21..]]).fails(1).contains("no approval"));
    daemon.ctx(&["approve", "coder/asks", &approval[20..]]).ok();
    daemon.ctx(&["wait", "coder/asks"]).ok();
    let message = id_of(&["history", "coder/asks", "--json"], "id");
    daemon.ctx(&["pin", "coder/asks", &message[18..]]).ok();
    let run = start_slow(&daemon, "runs");
    daemon.ctx(&["cancel", "coder/runs", &run[20..].to_lowercase()]).ok();
    start_slow(&daemon, "pauses");
    daemon.ctx(&["pause", "coder/pauses"]).ok();
    let checkpoint = id_of(&["checkpoints", "coder/pauses", "--json"], "id");
    daemon.ctx(&["fork", "coder/pauses", "--checkpoint", &checkpoint[20..]]).ok();
    let issue = id_of(&["issue", "new", "Work", "--json"], "id");
    for part in [&issue[20..], &issue[..25]] {
        assert_eq!(id_of(&["issue", "show", part, "--json"], "id"), issue);
    }
}
