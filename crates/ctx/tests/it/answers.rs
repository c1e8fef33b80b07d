//! Questions of a run, answered where one types: each answer is for the question that was shown.

use serde_json::{Value, json};
use testkit::{Pty, TestDaemon};

use crate::support::{SLOW, daemon, wait_state};

fn write(file: &str) -> Value {
    json!({ "name": "fs.write", "input": { "path": format!("/work/{file}"), "content": "x" } })
}

fn send(daemon: &TestDaemon, steps: Value) -> Pty {
    Pty::ctx(daemon, &["send", "--model", "debug:script", &json!({ "script": steps }).to_string()])
}

fn has(daemon: &TestDaemon, file: &str) -> bool {
    daemon.workspace().join(file).exists()
}

fn questions(shown: &str) -> usize {
    shown.matches("approval needed: ").count()
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let daemon = daemon();
    let steps =
        json!([{ "tool": write("a") }, { "sleep_ms": 500 }, { "tool": write("b") }, { "text": "the end" }]);
    let mut pty = send(&daemon, steps);
    pty.wait_for("approval needed: fs.write /work/a? y yes, n no");
    pty.type_keys("y\ry\r");
    pty.wait_for("approval needed: fs.write /work/b?");
    pty.type_keys("n\r");
    pty.wait_for("the end");
    assert_eq!(pty.wait(), 0);
    assert!(has(&daemon, "a") && !has(&daemon, "b"));
    assert!(pty.shown().contains('\x07'), "the bell rings");
}

#[test]
fn calls_that_wait_together_are_asked_about_one_after_the_other() {
    let daemon = daemon();
    let steps = json!([{ "tools": [write("a"), write("b")] }, { "text": "the end" }]);
    let line = json!({ "script": steps }).to_string();
    let of = |shown: &str| {
        let asked =
            shown.rsplit("approval needed: fs.write /work/").next().and_then(|rest| rest.chars().next());
        asked.map(String::from).unwrap_or_default()
    };
    let mut pty = Pty::ctx(&daemon, &["chat"]);
    pty.wait_for("coder/default> ");
    pty.type_keys("/model debug:script\r");
    pty.wait_for("from the next message on");
    pty.type_keys(&format!("{line}\r"));
    pty.wait_for("approval needed: fs.write");
    pty.wait_for("? y yes, n no");
    let first = of(pty.shown());
    assert_eq!(questions(pty.shown()), 1, "{}", pty.shown());
    pty.answer("n another name\r");
    pty.wait_for("[answered: deny]");
    pty.wait_for("approval needed: fs.write");
    pty.wait_for("? y yes, n no");
    let second = of(pty.shown());
    assert_ne!(first, second);
    pty.answer("y\r");
    pty.wait_for("the end");
    assert!(!has(&daemon, &first) && has(&daemon, &second));
}

#[test]
fn a_call_that_another_terminal_answers_takes_no_answer_here() {
    let daemon = daemon();
    let mut pty =
        send(&daemon, json!([{ "tool": write("a") }, { "tool": write("b") }, { "text": "the end" }]));
    pty.wait_for("approval needed: fs.write /work/a?");
    daemon.ctx(&["approve", "coder/default"]).ok();
    pty.wait_for("approval needed: fs.write /work/b?");
    pty.type_keys("y\r");
    pty.wait_for("the end");
    assert_eq!(pty.wait(), 0);
    assert!(has(&daemon, "a") && has(&daemon, "b"));
}

#[test]
fn half_a_line_that_was_typed_under_one_question_is_no_answer_to_the_next() {
    let daemon = daemon();
    let steps = json!([{ "tool": write("a") }, { "tool": write("b") }, { "text": "the end" }]);
    let mut pty = send(&daemon, steps);
    pty.wait_for("approval needed: fs.write /work/a?");
    pty.wait_for("always in this session");
    pty.type_keys("y");
    pty.wait_for("y");
    daemon.ctx(&["approve", "coder/default"]).ok();
    pty.wait_for("approval needed: fs.write /work/b?");
    pty.type_keys("\rn\r");
    pty.wait_for("the end");
    assert_eq!(pty.wait(), 0);
    assert!(has(&daemon, "a") && !has(&daemon, "b"));
}

#[test]
fn a_line_of_the_chat_answers_only_the_question_under_which_it_was_begun() {
    let daemon = daemon();
    let mut pty = Pty::ctx(&daemon, &["chat"]);
    let asked = |pty: &mut Pty, file: &str| {
        pty.wait_for(&format!("approval needed: fs.write /work/{file}?"));
        pty.wait_for("always in this session]");
    };
    // Before any question.
    pty.wait_for("coder/default> ");
    pty.type_keys("y");
    pty.wait_for("y");
    let steps = json!([{ "tool": write("a") }, { "tool": write("b") }, { "text": "the end" }]);
    let steps = json!({ "script": steps }).to_string();
    daemon.ctx(&["send", "--detach", "--model", "debug:script", &steps]).ok();
    asked(&mut pty, "a");
    pty.type_keys("\r");
    pty.wait_for("[not sent: it was begun before this was asked");
    assert!(!has(&daemon, "a"));
    // Under another one.
    pty.wait_for("coder/default> ");
    pty.type_keys("y");
    pty.wait_for("y");
    daemon.ctx(&["approve", "coder/default"]).ok();
    asked(&mut pty, "b");
    pty.type_keys("\r");
    pty.wait_for("[not sent: the call was answered already");
    assert!(!has(&daemon, "b"));
    pty.answer("y\r");
    wait_state(&daemon, "default", "idle");
    assert!(has(&daemon, "a") && has(&daemon, "b"));
}

#[test]
fn keys_that_wait_when_a_question_comes_are_no_answer_to_it() {
    let daemon = daemon();
    let send = |session: &str, steps: Value| {
        let steps = json!({ "script": steps }).to_string();
        daemon.ctx(&["send", "--detach", "--session", session, "--model", "debug:script", &steps]).ok();
    };
    send("q", json!([{ "tool": write("a") }, { "text": "the end" }]));
    let pause = json!({ "name": "checkpoint", "input": { "reason": "which database?" } });
    send("p", json!([{ "tool": pause }, { "text": "the end" }]));
    daemon.ctx(&["wait", "coder/q", "--for", "approval"]).ok();
    daemon.ctx(&["wait", "coder/p", "--for", "paused"]).ok();
    let mut pty = Pty::ctx(&daemon, &["chat", "-s", "other"]);
    pty.wait_for("coder/other> ");
    pty.type_keys("/session q\ry\r");
    pty.wait_for("[not sent: it was begun before this was asked");
    pty.type_keys("/session p\rhello, how are you\r");
    pty.wait_for("[not sent: it was begun before this was asked");
    drop(pty);
    for session in ["q", "p"] {
        let mut pty = Pty::ctx(&daemon, &["chat", "-s", session]);
        pty.type_keys("y\r");
        pty.wait_for("[not sent: it was begun before this was asked");
        assert!(!has(&daemon, "a"));
    }
    let shown = daemon.ctx(&["history", "--session", "p"]).ok();
    assert!(!shown.contains("The operator answers"), "{shown}");
    let mut pty = Pty::ctx(&daemon, &["chat", "-s", "q"]);
    pty.wait_for("always in this session]");
    pty.answer("y\r");
    pty.wait_for("the end");
    assert!(has(&daemon, "a"));
}

#[test]
fn the_answer_to_a_pause_that_finds_no_daemon_is_no_message() {
    let mut daemon = daemon();
    let pause = json!({ "tool": { "name": "checkpoint", "input": { "reason": "which database?" } } });
    let steps = json!({ "script": [pause, { "text": "the end" }] }).to_string();
    let mut pty = Pty::ctx(&daemon, &["chat", "--model", "debug:script"]);
    pty.wait_for("coder/default> ");
    pty.type_keys(&format!("{steps}\r"));
    pty.wait_for("Type your answer");
    daemon.kill();
    pty.wait_for("the daemon does not answer");
    pty.type_keys("SQLite\r");
    pty.wait_for("[the answer was not sent: the daemon is away");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    pty.answer("PostgreSQL\r");
    pty.wait_for("the end");
    wait_state(&daemon, "default", "idle");
    let shown = daemon.ctx(&["history"]).ok();
    assert!(shown.contains("PostgreSQL") && !shown.contains("SQLite"), "{shown}");
}

#[test]
fn a_line_of_the_chat_answers_only_is_no_message() {
    let mut daemon = daemon();
    let mut pty = Pty::ctx(&daemon, &["chat", "--model", "debug:script"]);
    pty.wait_for("coder/default> ");
    pty.type_keys(&format!("{}\r", json!({ "script": [{ "tool": write("a") }, { "text": "the end" }] })));
    pty.wait_for("approval needed: fs.write /work/a?");
    daemon.kill();
    pty.wait_for("the daemon does not answer");
    pty.type_keys("y\r");
    pty.wait_for("[the answer was not sent: the daemon is away");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    pty.wait_for("EINTR");
    pty.type_keys("/model debug:echo\r");
    pty.wait_for("from the next message on");
    pty.type_keys("and on\r");
    pty.wait_for("and on\r\n");
    wait_state(&daemon, "default", "idle");
    let said = daemon.ctx(&["history"]).ok();
    assert!(said.contains("and on") && !said.contains("\ny\n"), "{said}");
    assert!(!has(&daemon, "a"));
}

#[test]
fn a_model_that_pauses_to_ask_gets_what_is_typed() {
    let daemon = daemon();
    let checkpoint = json!({ "tool": { "name": "checkpoint", "input": { "reason": "which database?" } } });
    let mut pty = send(&daemon, json!([checkpoint, { "text": "thanks" }]));
    pty.wait_for("paused: which database? Type your answer");
    pty.type_keys("SQLite\r");
    pty.wait_for("thanks");
    assert_eq!(pty.wait(), 0);
    assert!(daemon.ctx(&["history", "--json"]).ok().contains("SQLite"));
}

#[test]
fn a_change_of_session_takes_neither_messages_nor_consent_along() {
    let daemon = daemon();
    let mut pty = Pty::ctx(&daemon, &["chat", "first", "--yes"]);
    pty.wait_for("coder/first> ");
    pty.type_keys("/model debug:script\r");
    pty.wait_for("from the next message on");
    pty.type_keys(&format!("{SLOW}\r"));
    pty.wait_for("begun");
    pty.type_keys("for the first\r");
    pty.wait_for("[waiting for the end of the run: for the first;");
    pty.type_keys("/session second\r");
    pty.wait_for("[not sent: for the first]");
    pty.wait_for("previous session only]");
    pty.wait_for("coder/second> ");
    pty.type_keys("/model debug:script\r");
    pty.wait_for("from the next message on");
    pty.type_keys(&format!("{}\r", json!({ "script": [{ "tool": write("a") }] })));
    pty.wait_for("approval needed: fs.write /work/a?");
    assert!(!daemon.ctx(&["history", "coder/second"]).ok().contains("for the first"));
    daemon.ctx(&["cancel", "coder/first"]).ok();
    wait_state(&daemon, "first", "idle");
    assert!(!daemon.ctx(&["history", "coder/first"]).ok().contains("for the first"));
}
