//! What `ctx chat` keeps for who types: messages that wait, half-typed lines, answers; and what it says of where one is.

use serde_json::json;
use testkit::{Pty, TestDaemon, until};

use crate::support::{SLOW, build, daemon, json_lines, start_slow, wait_state};

fn chat(daemon: &TestDaemon, args: &[&str]) -> Pty {
    let mut pty = Pty::ctx(daemon, &[&["chat"], args].concat());
    pty.wait_for("> ");
    pty
}

fn asks_for_lists(daemon: &TestDaemon) -> String {
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let list = json!({ "tool": { "name": "fs.list", "input": { "path": "/work" } } });
    json!({ "script": [list, { "text": "all d\u{6f}ne" }] }).to_string()
}

#[test]
fn a_message_over_the_limit_starts_when_there_is_room() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    start_slow(&daemon, "first");
    let mut pty = chat(&daemon, &["coder/second"]);
    pty.type_keys("patience\r");
    pty.wait_for("[queued (number 1 of yours): 1 of 1 runs in this project are busy");
    pty.wait_for("/cancel drops it");
    daemon.ctx(&["cancel", "coder/first"]).ok();
    wait_state(&daemon, "second", "idle");
    assert_eq!(daemon.ctx(&["latest", "coder/second"]).ok(), "patience\n");
    start_slow(&daemon, "first");
    pty.type_keys("never mind\r");
    pty.wait_for("[queued");
    pty.type_keys("/cancel\r");
    pty.wait_for("[cancelling");
    wait_state(&daemon, "second", "idle");
    // A script waits for room as a person does.
    let free = std::thread::scope(|scope| {
        let piped = scope.spawn(|| daemon.ctx_with(&["chat", "coder/third"], "in a pipe\n"));
        wait_state(&daemon, "third", "queued");
        daemon.ctx(&["cancel", "coder/first"]).ok();
        piped.join().unwrap().ok()
    });
    assert!(free.ends_with("in a pipe\n"), "{free}");
}

#[test]
fn cancelling_keeps_what_was_half_typed() {
    let daemon = daemon();
    for key in ["\x1b", "\x03"] {
        let mut pty = chat(&daemon, &["--model", "debug:script"]);
        pty.type_keys(&format!("{SLOW}\r"));
        wait_state(&daemon, "default", "running");
        pty.type_keys("half a line");
        pty.wait_for("half a line");
        pty.type_keys(key);
        pty.wait_for("[cancelled]");
        wait_state(&daemon, "default", "idle");
        pty.wait_for("half a line");
        pty.type_keys(", and the rest\r");
        until("the message", || {
            let said = daemon.ctx(&["history"]).ok();
            said.contains("half a line, and the rest").then_some(())
        });
        pty.type_keys("\x04");
        pty.wait();
        daemon.ctx(&["end", "--yes", "coder/default"]).ok();
    }
}

#[test]
fn the_banner_tells_the_model_and_one_that_is_not_there_is_refused_at_once() {
    let daemon = daemon();
    let mut pty = Pty::ctx(&daemon, &["chat", "--model", "debug:script"]);
    pty.wait_for("[coder/default: debug:script, new session; /help");
    pty.wait_for("> ");
    pty.type_keys("/model nope:xyz\r");
    pty.wait_for("nope");
    let said = pty.wait_for("coder/default> ");
    assert!(!said.contains("from the next message on"), "{said}");
    pty.type_keys("/model debug:echo\r");
    pty.wait_for("[debug:echo from the next message on]");
    pty.type_keys("hello\r");
    wait_state(&daemon, "default", "idle");
    until("the answer", || (daemon.ctx(&["latest"]).stdout == "hello\n").then_some(()));
    assert!(daemon.ctx(&["chat", "--model", "nope:xyz"]).fails(1).contains("nope"));
}

#[test]
fn a_session_that_was_made_by_a_slip_says_so() {
    let daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    let mut pty = Pty::ctx(&daemon, &["chat", "defualt"]);
    pty.wait_for("[coder/defualt: debug:echo, new session (did you mean default?); /help");
    pty.wait_for("> ");
    pty.type_keys("/session default\r");
    pty.wait_for("[coder/default: debug:echo, idle; /help");
    pty.type_keys("/session quite-other\r");
    pty.wait_for("[coder/quite-other: debug:echo, new session; /help");
}

#[test]
fn the_id_of_a_session_that_has_ended_begins_no_other() {
    let daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    let sessions = || json_lines(&daemon.ctx(&["ls", "-A", "--all", "--json"]).ok());
    let id = sessions()[0]["id"].as_str().unwrap().to_owned();
    let fork = daemon.ctx(&["fork", "coder/default"]).ok().trim().to_owned();
    for ended in [&id, &fork] {
        daemon.ctx(&["end", "--yes", ended]).ok();
    }
    // It is called by its id.
    assert!(daemon.ctx_with(&["chat", &fork], "words\n").fails(1).contains("the session has ended"));
    let end = id[18..].to_lowercase();
    for args in [
        &["chat", &id][..],
        &["chat", &id[..25]],
        &["chat", &end],
        &["chat", "coder", "-s", &id],
        &["chat", "coder", "-s", &end],
        &["attach", &id],
    ] {
        let said = daemon.ctx_with(args, "words\n").fails(1);
        assert!(said.contains("the session has ended") && said.contains("ESHUTDOWN"), "{args:?}: {said}");
        assert!(said.contains(&format!("ctx fork {id}")), "{args:?}: {said}");
    }
    let mut pty = chat(&daemon, &["other"]);
    pty.type_keys(&format!("/session {id}\r"));
    pty.wait_for("[the session has ended; `ctx fork");
    assert_eq!(sessions().len(), 3);
    // Its name is free.
    assert!(daemon.ctx_with(&["chat", "coder/default"], "anew\n").ok().ends_with("anew\n"));
    assert_eq!(daemon.ctx(&["latest", &id]).ok(), "hello\n");
}

#[test]
fn a_message_that_waits_is_taken_back() {
    let daemon = daemon();
    let mut pty = chat(&daemon, &["--model", "debug:script"]);
    pty.type_keys(&format!("{SLOW}\r"));
    wait_state(&daemon, "default", "running");
    pty.type_keys("regretted\r");
    pty.wait_for("[waiting for the end of the run: regretted; /drop takes it back]");
    pty.type_keys("/drop\r");
    pty.wait_for("[not sent: regretted]");
    pty.type_keys("/drop\r");
    pty.wait_for("[no message is waiting]");
    pty.type_keys("\x1b");
    pty.wait_for("[cancelled]");
    wait_state(&daemon, "default", "idle");
    assert!(!daemon.ctx(&["history"]).ok().contains("regretted"));
}

#[test]
fn an_answer_that_comes_too_late_is_no_message() {
    let daemon = daemon();
    let script = asks_for_lists(&daemon);
    let mut pty = chat(&daemon, &["--model", "debug:script"]);
    pty.type_keys(&format!("{script}\r"));
    pty.wait_for("approval needed");
    daemon.ctx(&["approve", "coder/default"]).ok();
    pty.wait_for("all done");
    wait_state(&daemon, "default", "idle");
    pty.type_keys("y\r");
    pty.wait_for("[not sent: the call was answered already");
    pty.type_keys("y\r");
    until("the message", || daemon.ctx(&["history"]).ok().contains("\ny\n").then_some(()));
}

#[test]
fn in_a_pipe_the_next_line_answers_what_a_call_asks() {
    let daemon = daemon();
    let script = asks_for_lists(&daemon);
    let ask = |session: &str, lines: &str| {
        let session = format!("coder/{session}");
        daemon.ctx_with(&["chat", &session, "--model", "debug:script"], format!("{script}\n{lines}")).ok()
    };
    let yes = ask("yes", "y\n");
    assert!(yes.contains("[answered: allow]") && yes.ends_with("all done\n"), "{yes}");
    let other = ask("other", "what now\nand on\n");
    assert!(other.contains("[answered: deny]") && other.contains("> what now\n"), "{other}");
    assert!(other.contains("> and on\n"), "{other}");
    let nobody = ask("nobody", "");
    assert!(nobody.contains("[answered: deny]") && nobody.ends_with("all done\n"), "{nobody}");
}
