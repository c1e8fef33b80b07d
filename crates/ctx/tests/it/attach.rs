//! `ctx attach` at a real terminal.

use std::io::{Read, Write};

use rustix::process::Signal;
use serde_json::json;
use testkit::{Pty, TestDaemon, until};

use crate::support::build;

const SLOW: &str = r#"{"script":[{"text":"begun "},{"sleep_ms":600000},{"text":"never"}]}"#;

fn state(daemon: &TestDaemon, session: &str) -> String {
    let listed = daemon.ctx(&["ls", "--all", "--json"]).ok();
    let rows = crate::support::json_lines(&listed);
    let row = rows.iter().find(|row| row["name"] == session).unwrap();
    row["state"].as_str().unwrap().to_owned()
}

#[test]
fn what_was_said_is_shown_and_a_line_typed_is_a_message() {
    let daemon = build().start();
    daemon.ctx(&["send", "said before"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach", "coder/default"]);
    terminal.wait_for("> said before");
    terminal.wait_for("said before");
    terminal.wait_for("Ctrl-D leaves");
    terminal.type_keys("typed here\r");
    terminal.wait_for("typed here");
    terminal.wait_for("typed here");
    until("the run's end", || (state(&daemon, "default") == "idle").then_some(()));
    daemon.ctx(&["send", "from elsewhere"]).ok();
    terminal.wait_for("> from elsewhere");
    terminal.wait_for("from elsewhere");
    terminal.type_keys("\x04");
    terminal.wait_for("[left;");
    assert_eq!(terminal.wait(), 0);
    let said = daemon.ctx(&["history", "coder/default"]).ok();
    assert_eq!(said.matches("typed here").count(), 2, "the message and its echo: {said}");
    assert!(!terminal.shown().contains("> typed here"), "the terminal has shown it: {}", terminal.shown());
}

#[test]
fn detaching_leaves_the_run_going_and_ctrl_c_cancels_it() {
    let daemon = build().start();
    daemon.ctx(&["send", "--model", "debug:script", "--detach", SLOW]).ok();
    for keys in ["\x1c", "/detach\r"] {
        let mut terminal = Pty::ctx(&daemon, &["attach"]);
        terminal.wait_for("running; /help");
        terminal.type_keys(keys);
        terminal.wait_for("[left; the session continues");
        assert_eq!(terminal.wait(), 0);
        assert_eq!(state(&daemon, "default"), "running");
    }
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("running;");
    terminal.type_keys("too early\r");
    terminal.wait_for("[waiting for the end of the run: too early; ");
    terminal.type_keys("\x03");
    terminal.wait_for("cancelling");
    terminal.wait_for("[cancelled]");
    terminal.wait_for("> too early");
    until("the end of the second run", || (state(&daemon, "default") == "idle").then_some(()));
    terminal.type_keys("\x03");
    // The terminal may not have heard of the end yet: then it cancels a run that is over, which changes nothing.
    terminal.wait_for_one_of(&["nothing is running", "cancelling"]);
    terminal.type_keys("\x03");
    terminal.wait_for("[left;");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn chat_and_attach_join_each_other_and_any_number_observes() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    let join = |words: &[&str]| {
        let mut terminal = Pty::ctx(&daemon, words);
        terminal.wait_for("Ctrl-D leaves");
        terminal
    };
    let mut all = [
        join(&["chat"]),
        join(&["attach"]),
        join(&["attach", "coder/default"]),
        join(&["attach", "--observe"]),
        join(&["attach", "--observe"]),
    ];
    for writer in 0..3 {
        let text = format!("said in {writer}");
        all[writer].type_keys(&format!("{text}\r"));
        all[writer].wait_for(&format!("{text}\r\n"));
        for other in (0..all.len()).filter(|other| *other != writer) {
            all[other].wait_for(&format!("> {text}"));
        }
        crate::support::wait_state(&daemon, "default", "idle");
    }
    daemon.ctx(&["end", "coder/default", "--yes"]).ok();
    for terminal in &mut all {
        terminal.wait_for("the session has ended");
        assert_eq!(terminal.wait(), 0);
    }
}

#[test]
fn in_a_pipe_attach_is_chat_and_makes_no_session() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    assert_eq!(daemon.ctx_with(&["attach"], "one\ntwo\n").ok(), "> one\none\n> two\ntwo\n");
    assert_eq!(daemon.ctx_with(&["attach"], "").ok(), "");
    daemon.ctx_with(&["attach", "coder/other"], "one\n").fails(1);
    assert!(!daemon.ctx(&["ls", "--all"]).ok().contains("other"));
}

#[test]
fn who_loses_the_place_to_a_client_of_the_socket_goes_on_beside_it() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("Ctrl-D leaves");
    let listed = crate::support::json_lines(&daemon.ctx(&["ls", "--json"]).ok());
    let id = listed[0]["id"].as_str().unwrap();
    let mut client = testkit::connect(&daemon.root().join(".state/api.sock")).unwrap();
    let request = format!(
        "GET /api/v1/sessions/{id}/socket?takeover=true HTTP/1.1\r\nhost: ctx\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    daemon.ctx(&["send", "from elsewhere"]).ok();
    terminal.wait_for("> from elsewhere");
    crate::support::wait_state(&daemon, "default", "idle");
    terminal.type_keys("still here\r");
    terminal.wait_for("still here\r\n");
    until("the message", || daemon.ctx(&["history"]).ok().contains("still here").then_some(()));
    terminal.type_keys("\x04");
    terminal.wait_for("[left;");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_restart_of_the_daemon_is_waited_for_and_nothing_is_missed() {
    let mut daemon = build().start();
    daemon.ctx(&["send", "one"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("Ctrl-D leaves");
    for round in 0..3 {
        daemon.kill();
        terminal.wait_for("the daemon does not answer");
        daemon.start_again();
        let text = format!("while away {round}");
        daemon.ctx(&["send", &text]).ok();
        terminal.wait_for("[the daemon is back]");
        terminal.wait_for(&format!("> {text}"));
        terminal.wait_for(&text);
    }
    terminal.type_keys("and on\r");
    until("the message", || daemon.ctx(&["history"]).ok().contains("and on").then_some(()));
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait(), 0);
    for text in ["> while away 0", "> while away 1", "> while away 2"] {
        assert_eq!(terminal.shown().matches(text).count(), 1, "{}", terminal.shown());
    }
}

#[test]
fn into_a_pipe_there_are_no_colours_and_a_terminal_has_them() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("\x1b[36m> hello");
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait(), 0);
    let mut command = daemon.command(&["attach", "--observe"]);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    until("an observer", || daemon.ctx(&["end", "coder/default", "--yes"]).code.eq(&0).then_some(()));
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text}");
    let missing = daemon.ctx(&["attach", "coder/nothing"]).fails(1);
    assert!(missing.contains("nothing"), "{missing}");
}

fn send(daemon: &TestDaemon, steps: serde_json::Value) {
    daemon.ctx(&["send", "--model", "debug:script", &json!({ "script": steps }).to_string()]);
}

/// Says something between two calls of a tool, each on another directory.
fn looking(round: usize) -> serde_json::Value {
    let list = |n: usize| json!({ "tool": { "name": "fs.list", "input": { "path": format!("/work/d{round}-{n}") } } });
    json!([list(1), { "text": format!("said in round {round}.") }, list(2)])
}

/// While the terminal sees nothing, the daemon is killed and started: all the terminal knows is of another epoch.
fn unseen(daemon: &mut TestDaemon, terminal: &Pty, work: impl FnOnce(&TestDaemon)) {
    terminal.signal(Signal::STOP);
    daemon.kill();
    daemon.start_again();
    work(daemon);
    terminal.signal(Signal::CONT);
}

#[test]
fn after_a_gap_all_that_was_missed_is_shown_once_however_much_it_is() {
    let mut daemon = build().start();
    send(&daemon, looking(0));
    let mut terminal = Pty::ctx(&daemon, &["attach", "--observe"]);
    terminal.wait_for("Ctrl-D leaves");
    send(&daemon, looking(1));
    terminal.wait_for("said in round 1");
    let calls: Vec<_> =
        (0..60).map(|_| json!({ "tool": { "name": "fs.list", "input": { "path": "/work" } } })).collect();
    unseen(&mut daemon, &terminal, |daemon| {
        // More than a page of messages: a call and its result are two.
        for round in 2..12 {
            send(daemon, looking(round));
            send(daemon, json!(calls));
        }
    });
    terminal.wait_for("said in round 11");
    daemon.ctx(&["send", "--model", "debug:echo", "the last"]).ok();
    terminal.wait_for("> the last");
    terminal.type_keys("\x04");
    terminal.wait_for("[left;");
    let shown = terminal.shown();
    let lines: Vec<&str> = shown.lines().filter(|line| !line.contains("> {")).collect();
    let places = |text: &str| -> Vec<usize> {
        (0..lines.len()).filter(|n| lines[*n].trim_start_matches("\x1b[2m").starts_with(text)).collect()
    };
    let mut order = Vec::new();
    for round in 0..12 {
        let call = |n: usize| format!(r#"→ fs.list {{"path":"/work/d{round}-{n}"}}"#);
        for text in [call(1), format!("said in round {round}."), call(2)] {
            let found = places(&text);
            assert_eq!(found.len(), 1, "{text} is shown once: {shown}");
            order.extend(found);
        }
    }
    assert!(order.is_sorted(), "in order: {shown}");
    assert_eq!(places(r#"→ fs.list {"path":"/work"}"#).len(), 600, "every call, once");
    assert_eq!(places("← ok (empty)").len(), 600, "and every result");
}

#[test]
fn a_run_that_failed_is_said_to_have_whether_it_was_seen_or_not() {
    let mut daemon = build().env("CTX_LIMITS_MODEL_ATTEMPTS", "1").start();
    let failing = |text: &str| json!([{ "text": text }, { "error": "unreachable" }]);
    send(&daemon, failing("before"));
    let mut terminal = Pty::ctx(&daemon, &["attach", "--observe"]);
    terminal.wait_for("before");
    assert!(terminal.wait_for("(EHOSTDOWN)]").contains("[the run failed: "), "{}", terminal.shown());
    terminal.wait_for("Ctrl-D leaves");
    send(&daemon, failing("live"));
    terminal.wait_for("live");
    terminal.wait_for("(EHOSTDOWN)]");
    unseen(&mut daemon, &terminal, |daemon| send(daemon, failing("unseen")));
    terminal.wait_for("unseen");
    terminal.wait_for("(EHOSTDOWN)]");
    // A run that the daemon's end cuts off: part of it was seen, and its end was not.
    daemon.ctx(&["send", "--model", "debug:script", "--detach", SLOW]).ok();
    terminal.wait_for("begun");
    daemon.kill();
    terminal.wait_for("the daemon does not answer");
    daemon.start_again();
    terminal.wait_for("the daemon is back");
    assert!(terminal.wait_for("(EINTR)]").contains("[the run failed: "), "{}", terminal.shown());
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait(), 0);
    assert_eq!(terminal.shown().matches("the run failed").count(), 4, "{}", terminal.shown());
}

#[test]
fn who_comes_in_the_middle_of_a_message_sees_it_from_its_beginning() {
    let daemon = build().start();
    let steps = json!({ "script": [{ "text": "the beginning, " }, { "sleep_ms": 600_000 }] }).to_string();
    daemon.ctx(&["send", "--model", "debug:script", "--detach", &steps]).ok();
    let mut first = Pty::ctx(&daemon, &["attach"]);
    first.wait_for("Ctrl-D leaves");
    first.wait_for("the beginning, ");
    // Also when someone has listened since before.
    let mut watcher = Pty::ctx(&daemon, &["attach", "--observe"]);
    watcher.wait_for("observing");
    watcher.wait_for("the beginning, ");
    let mut second = Pty::ctx(&daemon, &["attach"]);
    second.wait_for("the beginning, ");
    second.type_keys("\x03");
    first.wait_for("[cancelled]");
    for terminal in [&mut second, &mut watcher] {
        terminal.wait_for("[cancelled]");
        let text = terminal.shown().replace(&steps, "");
        assert_eq!(text.matches("the beginning").count(), 1, "{text}");
    }
}

/// The letters of what was said: without blanks, the editor's escape sequences and prompts, and the notice of a cancel.
fn words_of(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown;
    while let Some((before, escape)) = rest.split_once('\x1b') {
        text.push_str(before);
        let end = escape.find(|c: char| c.is_ascii_alphabetic()).map_or(escape.len(), |at| at + 1);
        rest = &escape[end..];
    }
    text.push_str(rest);
    let text = text.replace("[cancelling; Ctrl-C again leaves]", "").replace("coder/default> ", "");
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn ctrl_c_takes_away_what_was_half_typed_and_nothing_that_was_said() {
    let daemon = build().start();
    let lines: String = (0..6_000).map(|n| format!("line {n} of it\n")).collect();
    let steps = json!({ "script": [{ "text": lines }, { "sleep_ms": 600_000 }] }).to_string();
    daemon.ctx(&["send", "--model", "debug:script", "--detach", &steps]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach", "--tail", "0"]);
    // The terminal is behind: most of it was not read when the key is pressed.
    terminal.wait_for("line 0 of it");
    terminal.type_keys("\x03");
    terminal.wait_for("[cancelled]");
    // A notice may come in the middle of a line; and the model may not have been through with it.
    let shown = words_of(terminal.shown());
    let said = daemon.ctx(&["latest"]).ok();
    assert!(said.starts_with("line 0 of it\nline 1 of it\n"), "{said}");
    // While no line is read, a row may be printed after those that follow it; none is lost.
    let count = |text: &str, letter: char| text.chars().filter(|c| *c == letter).count();
    let words = words_of(&said);
    let letters: std::collections::BTreeSet<char> = words.chars().collect();
    let lost = letters.into_iter().find(|letter| count(&shown, *letter) < count(&words, *letter));
    assert_eq!(lost, None, "{shown}");
    terminal.type_keys("/cancel\r");
    terminal.wait_for("[nothing is running]");
    terminal.type_keys("not meant\x03");
    terminal.wait_for("press Ctrl-C again");
    terminal.type_keys("meant\r");
    let said =
        until("the message", || Some(daemon.ctx(&["history"]).ok()).filter(|said| said.contains("meant")));
    assert!(!said.contains("not meant"), "{said}");
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn who_observes_leaves_by_the_same_keys_and_sends_nothing() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    for keys in ["\x04", "/detach\r", "\x1c", "\x03"] {
        let mut watcher = Pty::ctx(&daemon, &["attach", "--observe"]);
        watcher.wait_for("Ctrl-D leaves");
        watcher.type_keys("not mine to say\r");
        watcher.wait_for("an observer cannot send messages");
        watcher.type_keys(keys);
        watcher.wait_for("[left;");
        assert_eq!(watcher.wait(), 0, "{keys:?}");
    }
    assert!(!daemon.ctx(&["history"]).ok().contains("not mine"));
}

#[test]
fn what_is_typed_while_the_daemon_is_away_is_sent_once_when_it_is_back() {
    let mut daemon = build().start();
    daemon.ctx(&["send", "one"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("Ctrl-D leaves");
    daemon.kill();
    terminal.wait_for("the daemon does not answer");
    terminal.type_keys("patience\r");
    terminal.wait_for("sent when the daemon is back");
    daemon.start_again();
    terminal.wait_for("the daemon is back");
    terminal.wait_for("patience");
    terminal.type_keys("\x04");
    assert_eq!(terminal.wait(), 0);
    let said = || daemon.ctx(&["history"]).ok().matches("patience").count();
    until("the message and its echo", || (said() >= 2).then_some(()));
    assert_eq!(said(), 2, "sent once");
    assert!(
        !terminal.shown().contains("> patience"),
        "it stands there as it was typed: {}",
        terminal.shown()
    );
    // Who leaves meanwhile is told what was not sent.
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("Ctrl-D leaves");
    daemon.kill();
    terminal.wait_for("the daemon does not answer");
    terminal.type_keys("never mind\r");
    terminal.wait_for("sent when");
    terminal.type_keys("\x04");
    terminal.wait_for("[not sent: never mind]");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn what_a_session_waits_for_is_said_with_the_commands_that_answer_it() {
    let daemon = build().start();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let pausing = json!({ "script": [
        { "tool": { "name": "checkpoint", "input": { "reason": "sign-off" } } },
        { "tool": { "name": "fs.list", "input": { "path": "/work" } } },
        { "text": "all done" },
    ] });
    daemon.ctx(&["send", "--model", "debug:script", "--detach", &pausing.to_string()]).ok();
    crate::support::wait_state(&daemon, "default", "paused");
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("[paused: sign-off. Type your answer; /resume continues without one");
    daemon.ctx(&["resume", "coder"]).ok();
    terminal.wait_for("[resumed]");
    terminal.wait_for("[approval needed: fs.list /work? y yes, n no, n REASON, a always");
    // Also who comes only now is asked.
    let mut watcher = Pty::ctx(&daemon, &["attach", "--observe"]);
    watcher.wait_for("[approval needed for fs.list /work: `ctx approve coder/default ");
    daemon.ctx(&["approve", "coder"]).ok();
    for terminal in [&mut terminal, &mut watcher] {
        terminal.wait_for("[answered: allow]");
        terminal.wait_for("all done");
        assert_eq!(terminal.shown().matches("approval needed").count(), 1, "{}", terminal.shown());
    }
}
