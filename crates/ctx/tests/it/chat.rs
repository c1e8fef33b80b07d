//! `ctx chat` on a real terminal, and in a pipe.

use rustix::process::Signal;
use serde_json::json;
use testkit::{Pty, TestDaemon, until};

use crate::support::{SLOW, build, daemon, json_lines, start_slow, wait_state};

const PROMPT: &str = "coder/default> ";

fn chat(daemon: &TestDaemon) -> Pty {
    let mut pty = Pty::ctx(daemon, &["chat"]);
    pty.wait_for(PROMPT);
    pty
}

/// Types a line and waits until the editor has taken it.
fn say(pty: &mut Pty, line: &str) {
    pty.type_keys(&format!("{line}\r"));
    pty.wait_for("\n");
}

/// The same, and waits for this text.
fn ask(pty: &mut Pty, line: &str, answer: &str) {
    say(pty, line);
    pty.wait_for(answer);
}

/// Answers a question that is on the screen.
fn answer(pty: &mut Pty, line: &str, wanted: &str) {
    pty.answer(&format!("{line}\r"));
    pty.wait_for("\n");
    pty.wait_for(wanted);
}

fn script(steps: serde_json::Value) -> String {
    json!({ "script": steps }).to_string()
}

#[test]
fn a_line_is_a_message_and_the_answer_streams_below_it() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "hello", "hello\r\n");
    wait_state(&daemon, "default", "idle");
    ask(&mut pty, "again", "again\r\n");
    wait_state(&daemon, "default", "idle");
    pty.type_keys("\x04");
    assert_eq!(pty.wait(), 0, "Ctrl-D leaves");
    let history = json_lines(&daemon.ctx(&["history", "--json"]).ok());
    assert_eq!(history.len(), 4);
    let kept = std::fs::read_to_string(daemon.home().join(".local/state/ctx/chat_history")).unwrap();
    assert!(kept.contains("hello\nagain"), "{kept}");
}

#[test]
fn what_is_typed_during_a_run_waits_and_is_sent_at_its_end() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "/model debug:script", "from the next message on");
    ask(&mut pty, SLOW, "begun");
    ask(&mut pty, "and then this", "[waiting for the end of the run: and then this; ");
    assert!(!daemon.ctx(&["history"]).ok().contains("and then this"), "it is not sent yet");
    // Escape cancels, and what waited is sent.
    pty.type_keys("\x1b");
    pty.wait_for("[cancelled]");
    pty.wait_for("> and then this");
    until("the message", || daemon.ctx(&["history"]).ok().contains("and then this").then_some(()));
}

#[test]
fn what_waits_is_sent_although_the_terminal_was_closed() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "/model debug:script", "from the next message on");
    ask(&mut pty, SLOW, "begun");
    ask(&mut pty, &script(json!([{ "text": "done as asked" }])), "[waiting for the end of the run: ");
    pty.close();
    daemon.ctx(&["cancel", "coder/default"]).ok();
    assert_eq!(pty.wait(), 0);
    until("the answer", || daemon.ctx(&["history"]).ok().contains("done as asked").then_some(()));
}

#[test]
fn a_terminal_that_can_do_nothing_is_read_line_by_line() {
    let daemon = daemon();
    let mut pty = Pty::ctx_with(&daemon, &["chat"], &[("TERM", "dumb")]);
    pty.type_keys("hello\r");
    pty.wait_for("hello\r\nhello\r\n");
    wait_state(&daemon, "default", "idle");
    pty.type_keys("\x04");
    assert_eq!(pty.wait(), 0, "{}", pty.shown());
}

#[test]
fn the_first_ctrl_c_cancels_the_run_and_the_second_leaves() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    say(&mut pty, "/model debug:script");
    ask(&mut pty, SLOW, "begun");
    wait_state(&daemon, "default", "running");
    pty.type_keys("\x03");
    pty.wait_for("[cancelled]");
    wait_state(&daemon, "default", "idle");
    pty.type_keys("\x03");
    pty.wait_for("[left; the session continues");
    assert_eq!(pty.wait(), 0, "{}", pty.shown());
    assert_eq!(daemon.ctx(&["latest"]).ok(), "begun\n", "what was said is kept");
}

#[test]
fn at_the_prompt_one_ctrl_c_warns_and_two_leave() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    pty.type_keys("half a line\x03");
    pty.wait_for("press Ctrl-C again");
    ask(&mut pty, "hello", "hello\r\n");
    wait_state(&daemon, "default", "idle");
    pty.type_keys("\x03");
    pty.wait_for("press Ctrl-C again");
    pty.type_keys("\x03");
    assert_eq!(pty.wait(), 0, "talking on took the first warning back");
    assert!(!daemon.ctx(&["history"]).ok().contains("half a line"));
}

#[test]
fn pasted_lines_are_one_message_and_alt_enter_makes_a_line() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    pty.type_keys("\x1b[200~one\ntwo\x1b[201~");
    pty.wait_for("two");
    pty.type_keys("\r");
    until("the message", || (daemon.ctx(&["latest"]).stdout == "one\ntwo\n").then_some(()));
    wait_state(&daemon, "default", "idle");
    pty.type_keys("three\x1b\rfour\r");
    until("the message", || (daemon.ctx(&["latest"]).stdout == "three\nfour\n").then_some(()));
    assert_eq!(json_lines(&daemon.ctx(&["history", "--json"]).ok()).len(), 4);
}

#[test]
fn slash_commands_do_what_the_help_says_and_unknown_ones_are_not_sent() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "/help", "/rollback [CHECKPOINT]");
    ask(&mut pty, "/rolback", "unknown command /rolback, not sent; did you mean /rollback?");
    ask(&mut pty, "/cancel", "nothing is running");
    ask(&mut pty, "//etc", "/etc\r\n");
    wait_state(&daemon, "default", "idle");
    say(&mut pty, "/title from the chat");
    until("the title", || daemon.ctx(&["ls"]).ok().contains("from the chat").then_some(()));
    pty.wait_for("[the title is now from the chat]");
    assert!(!pty.shown().contains("is now \""), "it is said once: {}", pty.shown());
    ask(&mut pty, "/search etc", "coder/default");
    ask(&mut pty, "/fork try", "coder/try was forked");
    ask(&mut pty, "/session other", "coder/other: ");
    pty.wait_for("coder/other> ");
    ask(&mut pty, "elsewhere", "elsewhere\r\n");
    until("the answer", || (daemon.ctx(&["latest", "coder/other"]).stdout == "elsewhere\n").then_some(()));
    // Tab completes the command.
    pty.type_keys("/qui\t\r");
    assert_eq!(pty.wait(), 0);
    assert_eq!(daemon.ctx(&["latest", "coder/default"]).ok(), "/etc\n");
    assert!(!daemon.ctx(&["history", "coder/default"]).ok().contains("rolback"));
}

#[test]
fn approvals_and_questions_are_answered_where_one_types() {
    let daemon = daemon();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let list =
        |n: usize| json!({ "tool": { "name": "fs.list", "input": { "path": format!("/work/d{n}") } } });
    for n in 1..5 {
        std::fs::create_dir(daemon.workspace().join(format!("d{n}"))).unwrap();
    }
    let mut pty = chat(&daemon);
    say(&mut pty, "/model debug:script");
    let steps = json!([list(1), list(2), list(3), list(4), { "text": "all done" }]);
    ask(&mut pty, &script(steps), "\x07");
    pty.wait_for("[approval needed: fs.list /work/d1? y yes, n no");
    answer(&mut pty, "y", "[answered: allow]");
    pty.wait_for("fs.list /work/d2?");
    answer(&mut pty, "n not that one", "[answered: deny]");
    pty.wait_for("fs.list /work/d3?");
    answer(&mut pty, "a", "[answered: allow");
    pty.wait_for("all done");
    wait_state(&daemon, "default", "idle");
    assert!(daemon.ctx(&["history", "--json"]).ok().contains("not that one"), "the model reads the reason");
    let asks = json!([
        { "tool": { "name": "checkpoint", "input": { "reason": "which database?" } } }, { "text": "thanks" }
    ]);
    ask(&mut pty, &script(asks), "[paused: which database? Type your answer");
    answer(&mut pty, "SQLite", "The operator answers: SQLite");
    pty.wait_for("thanks");
    wait_state(&daemon, "default", "idle");
}

#[test]
fn two_terminals_on_one_session_show_the_same() {
    let daemon = daemon();
    let mut first = chat(&daemon);
    let mut second = chat(&daemon);
    ask(&mut first, "said in the first", "said in the first\r\n");
    second.wait_for("> said in the first");
    second.wait_for("said in the first");
    wait_state(&daemon, "default", "idle");
    ask(&mut second, "said in the second", "said in the second\r\n");
    first.wait_for("> said in the second");
    first.wait_for("said in the second");
    wait_state(&daemon, "default", "idle");
    assert_eq!(json_lines(&daemon.ctx(&["history", "--json"]).ok()).len(), 4);
}

#[test]
fn the_chat_goes_on_after_the_daemon_was_killed_and_started_again() {
    let mut daemon = daemon();
    let mut pty = chat(&daemon);
    say(&mut pty, "/model debug:script");
    ask(&mut pty, SLOW, "begun");
    wait_state(&daemon, "default", "running");
    daemon.kill();
    pty.wait_for("waiting for it");
    ask(&mut pty, "hello again", "sent when the daemon is back");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    pty.wait_for("EINTR");
    until("the message", || daemon.ctx(&["history"]).ok().contains("hello again").then_some(()));
}

#[test]
fn a_run_that_is_going_on_is_joined() {
    let daemon = daemon();
    start_slow(&daemon, "default");
    let mut pty = Pty::ctx(&daemon, &["chat", "coder/default"]);
    pty.wait_for("running; /help");
    pty.wait_for("begun");
    pty.type_keys("\x03");
    pty.wait_for("[cancelled]");
}

#[test]
fn in_a_pipe_every_line_is_a_message_and_the_answers_are_plain_text() {
    let daemon = daemon();
    let out = daemon.ctx_with(&["chat", "coder/piped"], "one\n\ntwo 日本\n");
    assert_eq!(out.stderr, "");
    assert_eq!(out.clone().ok(), "> one\none\n> two 日本\ntwo 日本\n");
    assert_eq!(json_lines(&daemon.ctx(&["history", "coder/piped", "--json"]).ok()).len(), 4);
}

#[test]
fn in_a_pipe_a_command_that_there_is_not_is_an_error() {
    let daemon = daemon();
    let out = daemon.ctx_with(&["chat", "coder/piped"], "/nosuch\nhello\n");
    assert_eq!(out.stdout, "> hello\nhello\n");
    assert!(out.fails(1).contains("unknown command /nosuch"));
}

#[test]
fn in_a_pipe_the_lines_behind_an_answer_wait_for_the_end_of_the_run() {
    let daemon = daemon();
    let asks =
        json!([{ "tool": { "name": "checkpoint", "input": { "reason": "q?" } } }, { "text": "thanks" }]);
    for session in ["a", "b", "c", "d"] {
        let name = format!("coder/{session}");
        let lines =
            format!("{}\nmy answer\n{}\n", script(asks.clone()), script(json!([{ "text": "behind it" }])));
        let out = daemon.ctx_with(&["chat", &name, "--model", "debug:script"], lines).ok();
        assert!(out.contains("thanks") && out.contains("behind it"), "{out}");
    }
}

#[test]
fn in_a_pipe_a_line_that_is_no_text_is_an_error() {
    let daemon = daemon();
    let out = daemon.ctx_with(&["chat", "coder/piped"], b"good\nx\xffy\nalso good\n");
    assert!(out.stdout.contains("also good"), "{out:?}");
    out.fails(1);
}

#[test]
fn without_a_daemon_there_is_no_chat() {
    let mut daemon = daemon();
    daemon.kill();
    let mut pty = Pty::ctx(&daemon, &["chat"]);
    pty.wait_for("no daemon is running");
    assert_eq!(pty.wait(), 69);
}

#[test]
fn no_color_leaves_colours_out() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    let mut pty = Pty::ctx_with(&daemon, &["chat"], &[("NO_COLOR", "1")]);
    pty.wait_for("> hello");
    pty.wait_for(PROMPT);
    assert!(!pty.shown().contains("\x1b[3"), "{:?}", pty.shown());
}

#[test]
fn what_was_rolled_back_is_not_shown_to_who_comes_later() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "kept words", "kept words\r\n");
    wait_state(&daemon, "default", "idle");
    ask(&mut pty, "/model debug:script", "from the next message on");
    // Its text is not that of the message.
    let steps =
        r#"{"script":[{"tool":{"name":"checkpoint","input":{"reason":"which?"}}},{"text":"spo\u0069led"}]}"#;
    ask(&mut pty, steps, "[paused: which? Type");
    ask(&mut pty, "/resume", "spoiled");
    wait_state(&daemon, "default", "idle");
    ask(&mut pty, "/rollback", "rolled back");
    drop(pty);
    wait_state(&daemon, "default", "idle");
    let mut later = Pty::ctx(&daemon, &["chat"]);
    later.wait_for("kept words");
    later.wait_for(PROMPT);
    ask(&mut later, "go on", "go on\r\n");
    assert!(!later.shown().contains("spoiled"), "{}", later.shown());
}

#[test]
fn a_client_of_an_idle_session_leaves_no_storm_in_its_log_while_the_daemon_stops() {
    let mut daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "hello", "hello\r\n");
    wait_state(&daemon, "default", "idle");
    // Another session's run keeps the daemon for as long as it may.
    start_slow(&daemon, "other");
    daemon.signal(Signal::TERM);
    pty.wait_for("waiting for it");
    assert!(daemon.wait().success());
    let log = std::fs::read_to_string(daemon.session_dir("default").join("events.jsonl")).unwrap();
    let attached = log.lines().filter(|line| line.contains(r#""type":"attached""#)).count();
    assert!(attached <= 2, "{attached} times attached");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    ask(&mut pty, "and on", "and on\r\n");
}

#[test]
fn what_the_model_thinks_is_shown_before_what_it_says() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    ask(&mut pty, "/model debug:script", "from the next message on");
    say(
        &mut pty,
        &script(json!([{ "reasoning": "th\u{69}s needs th\u{6f}ught" }, { "text": "the answer" }])),
    );
    wait_state(&daemon, "default", "idle");
    pty.wait_for("\x1b[2mthis needs");
    pty.wait_for("\x1b[Kthe answer");
    let in_pipe = daemon.ctx_with(
        &["chat", "coder/default"],
        &(script(json!([{ "reasoning": "hidden" }, { "text": "said" }])) + "\n"),
    );
    assert!(in_pipe.stdout.contains("said\n") && !in_pipe.stdout.contains("hidden\n"), "{}", in_pipe.stdout);
}
