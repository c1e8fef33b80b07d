//! Commands against a real daemon.

use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use testkit::until;

use crate::support::{SLOW, build, daemon, json_lines, start_slow, wait_state};

#[test]
fn a_message_goes_in_and_every_command_shows_it() {
    let daemon = daemon();
    assert_eq!(daemon.ctx(&["send", "hello", "there"]).ok(), "hello there\n");
    assert_eq!(daemon.ctx(&["latest"]).ok(), "hello there\n");
    assert!(daemon.ctx(&["history"]).ok().contains("hello there"));
    assert!(daemon.ctx(&["log", "coder"]).ok().contains("assistant \"hello there\""));
    assert_eq!(json_lines(&daemon.ctx(&["ls", "--json"]).ok())[0]["session"], "coder/default");
}

#[test]
fn the_agent_is_the_first_word_if_there_is_one_of_that_name() {
    let daemon = daemon();
    assert_eq!(daemon.ctx(&["send", "coder", "hello"]).ok(), "hello\n");
    assert_eq!(daemon.ctx(&["send", "--agent", "coder", "coder", "hello"]).ok(), "coder hello\n");
    let said = daemon.ctx(&["send", "--agent", "nobody", "hello"]).fails(1);
    assert!(said.contains("no agent `nobody`"), "{said}");
    daemon.ctx(&["send", "--agent", "no/body", "hello"]).fails(2);
}

#[test]
fn the_message_may_come_from_stdin() {
    let daemon = daemon();
    assert_eq!(daemon.ctx_with(&["send", "coder", "-"], "from a\npipe\n").ok(), "from a\npipe\n");
    assert_eq!(daemon.ctx_with(&["send"], "no words").ok(), "no words\n");
    daemon.ctx_with(&["send"], "  \n").fails(2);
    let said = daemon.ctx_with(&["send", "--session", "../x", "hello"], "").fails(2);
    assert!(said.contains("EINVAL"), "{said}");
}

#[test]
fn frames_are_what_the_socket_sent() {
    let daemon = daemon();
    let frames = json_lines(&daemon.ctx(&["send", "--json", "hi"]).ok());
    let kinds: Vec<&str> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("start", "done"), "{kinds:?}");
    assert!(kinds.contains(&"delta") && kinds.contains(&"message"), "{kinds:?}");
}

#[test]
fn the_exit_code_is_that_of_the_run() {
    let daemon = daemon();
    let send = |script: &str| daemon.ctx(&["send", "--model", "debug:script", script]);
    assert_eq!(send(r#"{"script":[{"text":"fine"}]}"#).ok(), "fine\n");
    let said = send(r#"{"script":[{"error":"unreachable"}]}"#).fails(69);
    assert!(said.contains("EHOSTDOWN"), "{said}");
    assert!(send(r#"{"script":[{"error":"empty"}]}"#).fails(1).contains("ENODATA"));
}

#[test]
fn a_retry_under_the_same_id_starts_nothing_new() {
    let mut daemon = daemon();
    let send = ["send", "--id", "once", "hello"];
    assert_eq!(daemon.ctx(&send).ok(), "hello\n");
    assert_eq!(daemon.ctx(&send).ok(), "hello\n", "the answer comes again");
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.ctx(&send).ok(), "hello\n", "also from the next daemon");
    assert_eq!(json_lines(&daemon.ctx(&["history", "--json"]).ok()).len(), 2);
}

#[test]
fn a_temp_session_leaves_nothing_behind() {
    let daemon = daemon();
    assert_eq!(daemon.ctx(&["send", "--scope", "temp", "psst"]).ok(), "psst\n");
    assert_eq!(daemon.ctx(&["ls", "--all", "--json"]).ok(), "");
    daemon.ctx(&["send", "--scope", "temp", "--detach", "psst"]).fails(2);
}

#[test]
fn one_run_at_a_time_and_cancel_ends_it() {
    let daemon = daemon();
    let run = start_slow(&daemon, "default");
    let said = daemon.ctx(&["send", "more"]).fails(1);
    assert!(said.contains("EBUSY") && said.contains("ctx cancel"), "{said}");
    let cancelled = json_lines(&daemon.ctx(&["cancel", "coder", "--json"]).ok());
    assert_eq!((&cancelled[0]["id"], &cancelled[0]["state"]), (&run.into(), &"cancelled".into()));
    assert!(daemon.ctx(&["cancel", "coder"]).fails(1).contains("nothing is running"));
    assert_eq!(daemon.ctx(&["latest"]).ok(), "begun\n", "what was said is kept");
}

#[test]
fn an_interrupt_cancels_the_run_first() {
    let daemon = daemon();
    let mut command = daemon.command(&["send", "--model", "debug:script", SLOW]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_state(&daemon, "default", "running");
    // The text of the run shows that the command has seen it begin.
    until("the run's text", || {
        daemon.ctx(&["log", "coder"]).stdout.contains("assistant began").then_some(())
    });
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.contains("cancelled")), (Some(1), true), "{said}");
    wait_state(&daemon, "default", "idle");
}

#[test]
fn a_command_outlives_its_daemon_and_learns_what_became_of_the_run() {
    let mut daemon = daemon();
    let mut command = daemon.command(&["send", "--model", "debug:script", SLOW]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_state(&daemon, "default", "running");
    until("the run's text", || {
        daemon.ctx(&["log", "coder"]).stdout.contains("assistant began").then_some(())
    });
    daemon.kill();
    daemon.start_again();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the daemon is back") && said.contains("EINTR"), "{said}");
    assert_eq!(daemon.ctx(&["send", "--session", "other", "still here"]).ok(), "still here\n");
}

#[test]
fn ending_a_session_frees_its_name_and_keeps_its_history() {
    let daemon = daemon();
    daemon.ctx(&["send", "first"]).ok();
    assert!(daemon.ctx(&["end", "coder"]).fails(2).contains("--yes"));
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    assert_eq!(daemon.ctx(&["ls", "--json"]).ok(), "");
    assert_eq!(daemon.ctx(&["latest", "coder"]).ok(), "first\n", "it is still the newest there is");
    let old = json_lines(&daemon.ctx(&["ls", "--all", "--json"]).ok());
    let id = old[0]["id"].as_str().unwrap();
    assert!(daemon.ctx(&["end", "--yes", id]).fails(1).contains("ESHUTDOWN"));
    assert_eq!(daemon.ctx(&["send", "second"]).ok(), "second\n");
    assert_eq!(daemon.ctx(&["latest", id]).ok(), "first\n");
    assert_eq!(daemon.ctx(&["latest", "coder"]).ok(), "second\n");
}

#[test]
fn a_title_shows_in_the_list() {
    let daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    let renamed = json_lines(&daemon.ctx(&["rename", "coder", "the", "build", "--json"]).ok());
    assert_eq!(renamed[0]["title"], "the build");
    until("the title in the list", || daemon.ctx(&["ls"]).ok().contains("the build").then_some(()));
    daemon.ctx(&["rename", "coder/nobody", "x"]).fails(1);
}

#[test]
fn status_says_how_the_daemon_is() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    let status = &json_lines(&daemon.ctx(&["status", "--json"]).ok())[0];
    assert_eq!((&status["pid"], &status["sessions"]), (&daemon.pid().into(), &1.into()));
    assert!(daemon.ctx(&["status"]).ok().contains(&format!("pid       {}\n", daemon.pid())));
    daemon.kill();
    daemon.ctx(&["status"]).fails(69);
}

#[test]
fn a_second_daemon_on_the_same_root_leaves_with_69() {
    let daemon = daemon();
    let said = daemon.ctx(&["serve"]).fails(69);
    assert!(said.contains("another daemon") && said.contains(&daemon.pid().to_string()), "{said}");
    daemon.ctx(&["send", "still here"]).ok();
}

#[test]
fn a_root_that_something_else_holds_is_not_said_to_have_a_daemon() {
    let mut daemon = daemon();
    daemon.kill();
    // As `ctx reindex` does; the daemon that was killed has left its file.
    let lock = std::fs::File::open(daemon.root().join(".state/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let said = daemon.ctx(&["serve"]).fails(69);
    assert!(said.contains("ctx reindex") && !said.contains("another daemon"), "{said}");
}

#[test]
fn a_root_whose_path_is_too_long_for_a_socket_works_all_the_same() {
    let long = format!("{}/{}", "d".repeat(90), "e".repeat(90));
    let daemon = build().root(&long).start();
    assert!(daemon.root().as_os_str().len() > 180);
    assert_eq!(daemon.ctx(&["send", "far down"]).ok(), "far down\n");
    daemon.ctx(&["status"]).ok();
    daemon.ctx(&["rename", "coder", "deep"]).ok();
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_the_run_goes_on() {
    let daemon = daemon();
    let script = format!(r#"{{"script":[{{"text":"{}"}}]}}"#, "word ".repeat(40_000));
    let mut command = daemon.command(&["send", "--model", "debug:script", "-"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    until("the run's end", || (daemon.ctx(&["latest"]).stdout.len() == 200_001).then_some(()));
}
