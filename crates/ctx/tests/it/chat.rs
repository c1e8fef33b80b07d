//! `ctx chat` on a real terminal.

use testkit::{Pty, TestDaemon, until};

use crate::support::{SLOW, daemon, json_lines, start_slow, wait_state};

const PROMPT: &str = "coder/default> ";

fn chat(daemon: &TestDaemon) -> Pty {
    let mut pty = Pty::ctx(daemon, &["chat"]);
    pty.wait_for(PROMPT);
    pty
}

/// Types a line and waits for the answer and the next prompt; what was shown in between.
fn say(pty: &mut Pty, line: &str) -> String {
    pty.type_keys(&format!("{line}\r"));
    // The editor shows the line while it is typed; what follows its end is the answer.
    pty.wait_for("\n");
    pty.wait_for(PROMPT)
}

#[test]
fn a_line_is_a_message_and_the_answer_streams_below_it() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    assert!(say(&mut pty, "hello").contains("hello\r\n"));
    assert!(say(&mut pty, "again").contains("again\r\n"));
    pty.type_keys("\x04");
    assert_eq!(pty.wait(), 0, "Ctrl-D leaves");
    let history = json_lines(&daemon.ctx(&["history", "--json"]).ok());
    assert_eq!(history.len(), 4);
    let kept = std::fs::read_to_string(daemon.home().join(".local/state/ctx/chat_history")).unwrap();
    assert!(kept.contains("hello\nagain"), "{kept}");
}

#[test]
fn the_first_ctrl_c_cancels_the_run_and_the_second_leaves() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    say(&mut pty, "/model debug:script");
    pty.type_keys(&format!("{SLOW}\r"));
    wait_state(&daemon, "default", "running");
    pty.wait_for("\nbegun");
    pty.type_keys("\x03");
    pty.wait_for("cancelled");
    pty.wait_for(PROMPT);
    wait_state(&daemon, "default", "idle");
    pty.type_keys("\x03");
    assert_eq!(pty.wait(), 0, "{}", pty.shown());
    assert_eq!(daemon.ctx(&["latest"]).ok(), "begun\n", "what was said is kept");
}

#[test]
fn at_the_prompt_one_ctrl_c_warns_and_two_leave() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    pty.type_keys("half a line\x03");
    pty.wait_for("press Ctrl-C again to leave");
    pty.wait_for(PROMPT);
    assert!(say(&mut pty, "hello").contains("hello"), "talking on takes the warning back");
    pty.type_keys("\x03");
    pty.wait_for("press Ctrl-C again to leave");
    pty.wait_for(PROMPT);
    pty.type_keys("\x03");
    assert_eq!(pty.wait(), 0);
}

#[test]
fn pasted_lines_are_one_message() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    pty.type_keys("\x1b[200~one\ntwo\x1b[201~");
    pty.wait_for("two");
    pty.type_keys("\r");
    until("the message", || (daemon.ctx(&["latest"]).stdout == "one\ntwo\n").then_some(()));
    assert_eq!(json_lines(&daemon.ctx(&["history", "--json"]).ok()).len(), 2);
}

#[test]
fn slash_commands_do_what_the_help_says() {
    let daemon = daemon();
    let mut pty = chat(&daemon);
    assert!(say(&mut pty, "/help").contains("/session [NAME]"));
    assert!(say(&mut pty, "/session").contains("does not exist yet"));
    assert!(say(&mut pty, "/nonsense").contains("unknown command /nonsense"));
    assert!(say(&mut pty, "//etc").contains("/etc\r\n"), "two slashes send one");
    say(&mut pty, "/title from the chat");
    assert!(say(&mut pty, "/session").contains("from the chat"));
    assert!(say(&mut pty, "/cancel").contains("nothing is running"));
    pty.type_keys("/session other\r");
    pty.wait_for("coder/other> ");
    pty.type_keys("elsewhere\r");
    pty.wait_for("\nelsewhere");
    pty.wait_for("coder/other> ");
    pty.type_keys("/quit\r");
    assert_eq!(pty.wait(), 0);
    assert_eq!(daemon.ctx(&["latest", "coder/other"]).ok(), "elsewhere\n");
    assert_eq!(daemon.ctx(&["latest", "coder/default"]).ok(), "/etc\n");
}

#[test]
fn the_chat_goes_on_after_the_daemon_was_killed_and_started_again() {
    let mut daemon = daemon();
    let mut pty = chat(&daemon);
    say(&mut pty, "/model debug:script");
    pty.type_keys(&format!("{SLOW}\r"));
    pty.wait_for("\nbegun");
    wait_state(&daemon, "default", "running");
    daemon.kill();
    pty.wait_for("waiting for it");
    daemon.start_again();
    pty.wait_for("the daemon is back");
    pty.wait_for("EINTR");
    pty.wait_for(PROMPT);
    assert!(say(&mut pty, "hello again").contains("hello again\r\n"));
    // And when it goes while nobody speaks.
    daemon.kill();
    daemon.start_again();
    assert!(say(&mut pty, "and again").contains("and again\r\n"));
}

#[test]
fn a_run_that_is_going_on_is_joined() {
    let daemon = daemon();
    start_slow(&daemon, "default");
    let mut pty = Pty::ctx(&daemon, &["chat", "coder/default"]);
    pty.wait_for("A run is in progress");
    pty.wait_for("begun");
    pty.type_keys("\x03");
    pty.wait_for("cancelled");
    pty.wait_for(PROMPT);
}

#[test]
fn without_a_terminal_or_a_daemon_there_is_no_chat() {
    let mut daemon = daemon();
    assert!(daemon.ctx(&["chat"]).fails(2).contains("ctx send"));
    daemon.kill();
    let mut pty = Pty::ctx(&daemon, &["chat"]);
    pty.wait_for("no daemon is running");
    assert_eq!(pty.wait(), 69);
}
