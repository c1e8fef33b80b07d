//! What people and programs do to a root behind the daemon's back.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use super::support::{Daemon, connect, until};

#[test]
fn a_log_that_an_editor_replaced_takes_no_message_that_would_be_lost() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.say("i", "m1", "one");
    let log = daemon.session("i").join("events.jsonl");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(log.with_extension("edited"), bytes).unwrap();
    std::fs::rename(log.with_extension("edited"), &log).unwrap();
    client.send("i", "m2", "two");
    let refused = client.refused("EIO");
    assert!(refused["message"].as_str().unwrap().contains("events.jsonl"), "{refused}");
    // Refused is not lost: the same message goes in once the log is taken up again.
    until("the log to be taken up again", || {
        client.send("i", "m2", "two");
        (client.frame()["type"] == "start").then_some(())
    });
    client.until_done();
    let users: Vec<_> = daemon.log("i").of_type("user").iter().map(|user| user["text"].clone()).collect();
    assert_eq!(users, [json!("one"), json!("two")]);
}

#[test]
fn a_copy_of_a_sessions_directory_does_not_become_the_session() {
    let mut daemon = Daemon::start();
    daemon.client().say("default", "m1", "one");
    daemon.stop();
    for copy in ["aaa", "default.bak"] {
        let done =
            Command::new("cp").arg("-r").arg(daemon.session("default")).arg(daemon.session(copy)).status();
        assert!(done.unwrap().success());
    }
    daemon.start_again();
    daemon.client().say("default", "m2", "two");
    let said = |name: &str| daemon.log(name).of_type("user").len();
    assert_eq!((said("default"), said("default.bak"), said("aaa")), (2, 1, 1));
    let told = daemon.stderr();
    for copy in ["aaa", "default.bak"] {
        let line = told.lines().find(|line| line.contains(&format!("session/{copy}\"")));
        assert!(line.is_some_and(|line| line.contains("two logs have the id of this session")), "{told}");
    }
}

#[test]
fn a_name_like_that_of_an_ended_sessions_directory_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.send("default+01ARZ3NDEKTSV4RRFFQ69G5FAV", "m", "x");
    client.refused("EINVAL");
}

#[test]
fn a_daemon_outlives_its_terminal_and_whoever_read_its_log() {
    let daemon = Daemon::new();
    let mut child = daemon.serve().stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    until("the daemon to be up", || connect(&daemon.socket()).ok().map(drop));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    daemon.client().say("default", "m", "still here");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success(), "it stops as it should, though nobody reads what it says");
}

#[test]
fn a_client_that_asks_without_end_and_never_reads_is_not_read_without_end() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let run = client.say("default", "m", "x");
    let before = daemon.proc_status("VmRSS");
    let mut rude = daemon.client();
    let flood = format!("{}\n", json!({"op": "cancel", "id": run})).repeat(1_000);
    // Reading stops at some point: the socket's own buffer is then all there is.
    let mut lines = 0;
    while lines < 60_000 && rude.raw_soon(flood.as_bytes()) {
        lines += 1_000;
    }
    let grown = daemon.proc_status("VmRSS").saturating_sub(before);
    assert!(grown < 24 * 1024, "the daemon grew by {grown} KiB over {lines} lines");
    client.say("default", "m2", "unaffected");
}
