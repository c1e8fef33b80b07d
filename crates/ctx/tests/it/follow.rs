//! `ctx log -f`: records as they come, to the end of the session and through its renaming.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use testkit::until;

use crate::support::daemon;

#[test]
fn following_shows_what_comes_and_stops_when_the_session_ends() {
    let daemon = daemon();
    daemon.ctx(&["send", "first"]).ok();
    let mut child = daemon.command(&["log", "-f", "coder/default"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut see = |wanted: &str| lines.find(|line| line.contains(wanted)).expect(wanted);
    see("user \"first\"");
    see("(run_completed)");
    daemon.ctx(&["send", "second"]).ok();
    see("user \"second\"");
    daemon.ctx(&["rename", "coder", "named"]).ok();
    see("title \"named\"");
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    see("idle → ended (session_ended)");
    assert_eq!(lines.next(), None);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn following_goes_on_over_a_crash_of_the_daemon() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "first"]).ok();
    let mut child = daemon.command(&["log", "-f", "--json", "coder"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut seqs = Vec::new();
    let mut see = |wanted: &str| {
        for line in lines.by_ref() {
            let record: serde_json::Value = serde_json::from_str(&line).unwrap();
            seqs.push(record["seq"].as_u64().unwrap());
            if record["type"] == wanted {
                return;
            }
        }
        panic!("no {wanted}");
    };
    see("run_finished");
    daemon.kill();
    daemon.start_again();
    daemon.ctx(&["send", "second"]).ok();
    see("run_finished");
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "no gap and no repeat");
}

#[test]
fn a_session_that_is_over_is_not_waited_for() {
    let daemon = daemon();
    daemon.ctx(&["send", "only"]).ok();
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    assert!(daemon.ctx(&["log", "-f", "coder"]).ok().contains("idle → ended"));
}

/// The session's directory has got another name, and a new session its own, before the follower reads the end of the log.
#[test]
fn a_follower_that_is_late_finds_the_session_under_its_new_name() {
    let daemon = daemon();
    daemon.ctx(&["send", "first"]).ok();
    let mut child = daemon.command(&["log", "-f", "coder"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("(run_completed)")));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    for text in ["second", "third"] {
        daemon.ctx(&["send", "--session", "default", text]).ok();
    }
    kill_process(pid, Signal::CONT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.last().unwrap().contains("idle → ended"), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("third")), "nothing of the new one: {rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_follower_that_nobody_reads_any_more_leaves_though_nothing_happens() {
    let daemon = daemon();
    daemon.ctx(&["send", "only"]).ok();
    for args in [["log", "-f"], ["audit", "-f"]] {
        let mut child = daemon.command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        drop(lines);
        let left = until("the follower to leave", || child.try_wait().unwrap());
        assert_eq!(left.code(), Some(0), "{args:?}");
    }
}
