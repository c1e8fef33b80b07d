//! `ctx attach` at a real terminal, and `ctx open`.

use std::os::unix::fs::PermissionsExt;

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
    terminal.wait_for("Ctrl-D detaches");
    terminal.type_keys("typed here\r");
    terminal.wait_for("typed here");
    terminal.wait_for("typed here");
    until("the run's end", || (state(&daemon, "default") == "idle").then_some(()));
    daemon.ctx(&["send", "from elsewhere"]).ok();
    terminal.wait_for("> from elsewhere");
    terminal.wait_for("from elsewhere");
    terminal.type_keys("\x04");
    terminal.wait_for("detached");
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
        terminal.wait_for("running; Ctrl-C cancels the run");
        terminal.type_keys(keys);
        terminal.wait_for("detached; the session goes on");
        assert_eq!(terminal.wait(), 0);
        assert_eq!(state(&daemon, "default"), "running");
    }
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("running;");
    terminal.type_keys("too early\r");
    terminal.wait_for("not sent: ");
    terminal.type_keys("\x03");
    terminal.wait_for("cancelling");
    terminal.wait_for("[cancelled]");
    assert_eq!(state(&daemon, "default"), "idle");
    terminal.type_keys("\x03");
    terminal.wait_for("nothing runs");
    terminal.type_keys("\x03");
    terminal.wait_for("detached");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn one_is_attached_others_observe_and_one_can_take_over() {
    let daemon = build().start();
    daemon.ctx(&["send", "hello"]).ok();
    let mut first = Pty::ctx(&daemon, &["attach"]);
    first.wait_for("Ctrl-D detaches");
    let mut refused = Pty::ctx(&daemon, &["attach"]);
    refused.wait_for("someone else is attached");
    refused.wait_for("--takeover");
    assert_eq!(refused.wait(), 1);
    // Without a terminal it would hold the one place and hear nothing.
    assert!(daemon.ctx(&["attach"]).fails(2).contains("--observe"));
    let mut watcher = Pty::ctx(&daemon, &["attach", "--observe"]);
    watcher.wait_for("leaves");
    let mut second = Pty::ctx(&daemon, &["attach", "--takeover"]);
    second.wait_for("Ctrl-D detaches");
    first.wait_for("taken over");
    assert_eq!(first.wait(), 1);
    second.type_keys("seen by both\r");
    watcher.wait_for("> seen by both");
    daemon.ctx(&["end", "coder/default", "--yes"]).ok();
    second.wait_for("the session has ended");
    assert_eq!(second.wait(), 0);
    watcher.wait_for("the session has ended");
    assert_eq!(watcher.wait(), 0);
}

#[test]
fn a_restart_of_the_daemon_is_waited_for_and_nothing_is_missed() {
    let mut daemon = build().start();
    daemon.ctx(&["send", "one"]).ok();
    let mut terminal = Pty::ctx(&daemon, &["attach"]);
    terminal.wait_for("Ctrl-D detaches");
    for round in 0..3 {
        daemon.kill();
        terminal.wait_for("the daemon is away");
        daemon.start_again();
        let text = format!("while away {round}");
        daemon.ctx(&["send", &text]).ok();
        terminal.wait_for(&format!("> {text}"));
        terminal.wait_for(&text);
        terminal.wait_for("[back]");
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

#[test]
fn open_gives_the_browser_a_private_file_and_prints_the_address_without_one() {
    let daemon = build().arg("--listen").arg("127.0.0.1:0").start();
    let printed = daemon.ctx(&["open"]).ok();
    let again = daemon.ctx(&["open", "--print"]).ok();
    for url in [&printed, &again] {
        assert!(url.starts_with("http://127.0.0.1:") && url.contains("/api/v1/docs#code="), "{url}");
        assert_eq!(url.lines().count(), 1);
    }
    assert_ne!(printed, again);
    // A browser that notes down what it was given, as `ps` would show it.
    let browser = daemon.path("browser");
    let noted = daemon.path("noted");
    let script = format!("#!/bin/sh\necho \"$*\" >{0}\ncat \"$1\" >>{0}\n", noted.display());
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = daemon.command(&["open"]);
    command.env("BROWSER", &browser);
    testkit::finish(&mut command).ok();
    let seen = std::fs::read_to_string(&noted).unwrap();
    let (argument, page) = seen.split_once('\n').unwrap();
    assert!(!argument.contains("code"), "{argument}");
    assert_eq!(std::fs::metadata(argument).unwrap().permissions().mode() & 0o777, 0o600);
    let url = page.split('"').find(|part| part.starts_with("http://")).unwrap();
    let code = url.split("code=").nth(1).unwrap();
    let login = url.split("docs").next().unwrap().to_owned() + "login";
    let body = format!("{{\"code\":\"{code}\"}}");
    let trade = || {
        let mut curl = std::process::Command::new("curl");
        testkit::finish(curl.args(["-sS", "--data-binary", &body, &login])).ok()
    };
    assert!(trade().contains("\"token\":\"ctx_"), "traded for a token");
    assert!(trade().contains("EKEYREJECTED"), "once");
    assert!(!daemon.log().contains(code), "and in no log");
}
