//! Pausing, looking, changing course and going back, from the command line.

use serde_json::Value;
use testkit::{Pty, TestDaemon, until};

use crate::support::{build, daemon, json_lines, start_slow, wait_state, wait_state_of};

const PAUSING: &str = r#"{"script":[{"text":"before"},{"tool":{"name":"checkpoint","input":{"reason":"sign-off"}}},{"text":"after"}]}"#;

fn send(daemon: &TestDaemon, session: &str, text: &str) {
    daemon.ctx(&["send", "--detach", "--model", "debug:script", "--session", session, text]).ok();
}

/// A session that its model has paused.
fn paused(daemon: &TestDaemon, session: &str) {
    send(daemon, session, PAUSING);
    wait_state(daemon, session, "paused");
}

fn listed(daemon: &TestDaemon, session: &str) -> Vec<Value> {
    json_lines(&daemon.ctx(&["checkpoints", session, "--json"]).ok())
}

#[test]
fn a_run_is_paused_looked_at_and_resumed() {
    let daemon = daemon();
    start_slow(&daemon, "work");
    assert!(daemon.ctx(&["resume", "coder/work"]).fails(1).contains("is not paused"));
    let made = daemon.ctx(&["pause", "coder/work", "--reason", "have a look\nand say"]);
    assert!(made.stderr.contains("ctx resume coder/work"), "{}", made.stderr);
    let id = made.ok().trim().to_owned();
    assert!(daemon.ctx(&["pause", "coder/work"]).fails(1).contains("already paused"));
    let table = daemon.ctx(&["checkpoints", "coder/work"]).ok();
    assert!(table.contains(&id) && table.contains("paused here") && table.contains("have a look"), "{table}");
    assert!(!table.contains('\x1b'), "colours are for terminals");
    assert!(table.contains("have a look and say") && table.lines().count() == 2, "a row is a line: {table}");
    let shown = daemon.ctx(&["checkpoints", "coder/work", &id[..20]]).ok();
    assert!(shown.contains("by operator") && shown.contains("prompt     primary"), "{shown}");
    let resumed = json_lines(&daemon.ctx(&["resume", "coder/work", "--checkpoint", &id, "--json"]).ok());
    assert_eq!(resumed[0]["state"], "running");
    let table = daemon.ctx(&["checkpoints", "coder/work"]).ok();
    assert!(table.contains("resumed"), "{table}");
    daemon.ctx(&["cancel", "coder/work"]).ok();
    assert!(daemon.ctx(&["pause", "coder/work"]).fails(1).contains("nothing is running"));
}

#[test]
fn resume_also_starts_a_message_that_waits() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    start_slow(&daemon, "first");
    daemon.ctx(&["send", "--detach", "--session", "second", "patience"]).ok();
    assert!(daemon.ctx(&["resume", "coder/second"]).fails(1).contains("EBUSY"), "no room yet");
    daemon.ctx(&["pause", "coder/first"]).ok();
    assert!(daemon.ctx(&["resume", "coder/second", "--resolve"]).fails(2).contains("queued"));
    daemon.ctx(&["resume", "coder/second"]).ok();
    wait_state(&daemon, "second", "idle");
    assert_eq!(daemon.ctx(&["latest", "coder/second"]).ok(), "patience\n");
    assert!(daemon.ctx(&["resume", "coder/first", "--resolve"]).fails(2).contains("has no issue"));
}

#[test]
fn going_back_is_confirmed_and_asked_for_on_a_terminal() {
    let daemon = daemon();
    paused(&daemon, "work");
    daemon.ctx(&["resume", "coder/work"]).ok();
    wait_state(&daemon, "work", "idle");
    assert!(daemon.ctx(&["rollback", "coder/work"]).fails(2).contains("--yes"));
    let mut terminal = Pty::ctx(&daemon, &["rollback", "coder/work"]);
    terminal.wait_for("\"sign-off\"? Later messages are removed from context. [y/N]");
    terminal.type_keys("n\r");
    terminal.wait_for("nothing was changed");
    assert_eq!(terminal.wait(), 1);
    assert_eq!(daemon.ctx(&["latest", "coder/work"]).ok(), "after\n");
    let mut terminal = Pty::ctx(&daemon, &["rollback", "coder/work"]);
    terminal.wait_for("[y/N]");
    terminal.type_keys("y\r");
    terminal.wait_for("is rolled back to");
    assert_eq!(terminal.wait(), 0);
    assert!(
        daemon.ctx(&["history", "coder/work", "--all"]).ok().contains("removed from context by a rollback")
    );
    let id = listed(&daemon, "coder/work")[0]["id"].as_str().unwrap().to_owned();
    let again = daemon.ctx(&["rollback", "--yes", "--json", "coder/work", &id]).ok();
    assert_eq!(json_lines(&again)[0]["rolled_back"], true);
    assert!(
        daemon.ctx(&["rollback", "--yes", "coder/work", "01ZZZ"]).fails(1).contains("no checkpoint 01ZZZ")
    );
    let fork = daemon.ctx(&["fork", "coder/work", "--checkpoint", &id, "--name", "other"]).ok();
    assert_eq!(fork.trim().len(), 26);
    until("the fork", || (daemon.ctx(&["latest", "coder/other"]).stdout == "before\n").then_some(()));
}

#[test]
fn a_prompt_is_shown_and_edited_by_file_stdin_and_editor() {
    let daemon = daemon();
    assert!(daemon.ctx(&["send", "--session", "work", "hello"]).ok().contains("hello"));
    assert!(daemon.ctx(&["prompt", "show", "coder/work"]).fails(1).contains("is not paused"));
    paused(&daemon, "work");
    let original = daemon.ctx(&["prompt", "show", "coder/work"]).ok();
    let file = daemon.path("prompt.md");
    std::fs::write(&file, "from a file\n").unwrap();
    daemon.ctx(&["prompt", "edit", "coder/work", "--file", file.to_str().unwrap()]).ok();
    assert_eq!(daemon.ctx(&["prompt", "show", "coder/work"]).ok(), "from a file\n");
    daemon.ctx_with(&["prompt", "edit", "coder/work"], "from stdin\n").ok();
    assert_eq!(daemon.ctx(&["prompt", "show", "coder/work"]).ok(), "from stdin\n");
    let same = daemon.ctx_with(&["prompt", "edit", "coder/work", "--file", "-"], "from stdin\n");
    assert!(same.stderr.contains("nothing was changed"));
    assert!(daemon.ctx(&["prompt", "show", "coder/work", "--target", "nobody"]).fails(1).contains("primary"));
    assert!(daemon.ctx_with(&["prompt", "edit", "coder/work"], "").fails(2).contains("empty"));

    // The editor is what the environment says; here one that replaces a word.
    let mut terminal =
        Pty::ctx_with(&daemon, &["prompt", "edit", "coder/work"], &[("EDITOR", "sed -i s/stdin/vi/")]);
    terminal.wait_for("edited; it applies when");
    assert_eq!(terminal.wait(), 0);
    assert_eq!(daemon.ctx(&["prompt", "show", "coder/work"]).ok(), "from vi\n");
    let mut terminal = Pty::ctx_with(&daemon, &["prompt", "edit", "coder/work"], &[("EDITOR", "false")]);
    terminal.wait_for("nothing was changed");
    assert_eq!(terminal.wait(), 2);

    daemon.ctx(&["resume", "coder/work"]).ok();
    wait_state(&daemon, "work", "idle");
    assert_ne!(original, "from vi\n");
    let dump = daemon.ctx(&["send", "--session", "work", r#"{"script":[{"dump":true}]}"#]).ok();
    assert!(dump.contains("from vi"), "{dump}");
}

#[test]
fn who_waits_for_an_answer_is_told_what_it_waits_for() {
    let daemon = daemon();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let text = PAUSING.replace(
        r#"{"text":"after"}"#,
        r#"{"tool":{"name":"fs.list","input":{"path":"/work"}}},{"text":"after"}"#,
    );
    let mut terminal = Pty::ctx(&daemon, &["send", "--model", "debug:script", "--session", "work", &text]);
    terminal.wait_for("paused: sign-off. Type your answer; `ctx resume coder/work` continues without one");
    daemon.ctx(&["resume", "coder/work"]).ok();
    terminal.wait_for("approval needed: fs.list /work? y yes, n no");
    daemon.ctx(&["approve", "coder/work"]).ok();
    terminal.wait_for("after");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_conversation_is_made_shorter_by_hand() {
    let daemon = daemon();
    for text in ["one", "two", "three"] {
        daemon.ctx(&["send", "--session", "work", text]).ok();
    }
    assert!(daemon.ctx(&["compact", "show", "coder/work"]).fails(1).contains("has no compaction"));
    for answer in ["approve", "reject"] {
        let refused = daemon.ctx(&["compact", answer, "coder/work"]).fails(1);
        assert!(refused.contains("no compaction waits for review in coder/work"), "{refused}");
    }
    assert!(daemon.ctx(&["compact", "coder/work", "--strategy", "forget"]).fails(2).contains("summarize"));
    daemon.ctx(&["compact", "coder/work", "--strategy", "checkpoint"]).ok();
    wait_state(&daemon, "work", "paused");
    let table = daemon.ctx(&["compact", "list", "coder/work"]).ok();
    assert!(table.contains("proposed") && table.contains("4 messages"), "{table}");
    // Who is to decide sees what would go.
    let shown = daemon.ctx(&["compact", "show", "coder/work"]).ok();
    let said: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("message ")).map(|line| &line[39..]).collect();
    assert_eq!(said, ["user: one", "assistant: one", "user: two", "assistant: two"], "{shown}");
    let made = json_lines(&daemon.ctx(&["compact", "show", "coder/work", "--json"]).ok());
    let id = made[0]["id"].as_str().unwrap().to_owned();
    daemon.ctx(&["compact", "approve", "coder/work", "--summary", "numbers were said"]).ok();
    wait_state(&daemon, "work", "idle");
    let shown = daemon.ctx(&["compact", "show", "coder/work", &id]).ok();
    assert!(shown.contains("applied") && shown.contains("numbers were said"), "{shown}");
    daemon.ctx(&["compact", "flag", "coder/work", &id, "good", "--notes", "short"]).ok();
    let shown = daemon.ctx(&["compact", "show", "coder/work"]).ok();
    assert!(shown.contains("flag       good") && shown.contains("notes      short"), "{shown}");
    daemon.ctx(&["send", "--session", "work", "four"]).ok();
    daemon.ctx(&["compact", "coder/work", "--strategy", "checkpoint"]).ok();
    wait_state(&daemon, "work", "paused");
    daemon.ctx(&["compact", "reject", "coder/work"]).ok();
    let rows = json_lines(&daemon.ctx(&["compact", "list", "coder/work", "--json"]).ok());
    let states: Vec<&str> = rows.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["applied", "rejected"]);
}

#[test]
fn calls_that_wait_are_listed_and_answered() {
    let daemon = daemon();
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let list = r#"{"name":"fs.list","input":{"path":"/work"}}"#;
    send(&daemon, "one", &format!(r#"{{"script":[{{"tool":{list}}},{{"text":"done"}}]}}"#));
    let waits = |session: &str, count: usize| {
        until("approvals", || {
            let listed = json_lines(&daemon.ctx(&["approve", session, "--list", "--json"]).stdout);
            (listed.len() == count).then_some(listed)
        })
    };
    waits("coder/one", 1);
    let table = daemon.ctx(&["approve", "coder/one", "--list"]).ok();
    assert!(table.contains("fs.list /work"), "{table}");
    let said = daemon.ctx(&["approve", "coder/one"]);
    assert!(said.stderr.contains("allowed: fs.list"), "{}", said.stderr);
    wait_state(&daemon, "one", "idle");
    assert_eq!(daemon.ctx(&["latest", "coder/one"]).ok(), "done\n");
    assert!(daemon.ctx(&["approve", "coder/one"]).fails(1).contains("no tool call waits for an approval"));
    let all = daemon.ctx(&["approve", "coder/one", "01ZZ"]);
    assert!(all.fails(1).contains("no approval 01ZZ"));
    send(&daemon, "two", &format!(r#"{{"script":[{{"tool":{list}}},{{"dump":true}}]}}"#));
    let id = waits("coder/two", 1)[0]["id"].as_str().unwrap().to_owned();
    daemon.ctx(&["approve", "coder/two", &id, "--deny", "--note", "not now"]).ok();
    wait_state(&daemon, "two", "idle");
    assert!(daemon.ctx(&["latest", "coder/two"]).ok().contains("not now"));
    assert!(daemon.ctx(&["approve", "coder/two", &id]).fails(1).contains("already answered: deny"));
}

/// A project whose model's window is full: the next message makes it propose a compaction.
fn with_a_full_window(daemon: &TestDaemon) {
    let dir = daemon.path("project");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    let file = "version: 1\nproject: music\nprimary:\n  model: debug:script\n  compaction: {strategy: checkpoint}\n  \
         tools: [fs.read]\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    daemon.ctx(&["project", "add", dir.to_str().unwrap()]).ok();
    for round in 0..3 {
        let filler = "x".repeat(8_192);
        let text = format!(r#"{{"script":[{{"text":"answer {round}"}}],"filler":"{filler}"}}"#);
        assert_eq!(daemon.ctx(&["send", "-a", "music", &text]).ok(), format!("answer {round}\n"));
    }
}

#[test]
fn a_run_that_stops_for_a_compaction_says_so_wherever_it_is_shown() {
    let daemon = daemon();
    with_a_full_window(&daemon);
    // Each way to see it in a session of its own: what was rejected is not proposed again.
    for name in ["attached", "chat", "frames"] {
        daemon.ctx(&["fork", "music/default", "--name", name]).ok();
    }
    let long = format!(r#"{{"script":[{{"text":"never"}}],"filler":"{}"}}"#, "x".repeat(8_192));
    let said = "a compaction waits for your review";
    let stopped = daemon.ctx(&["send", "-a", "music", &long]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (1, ""), "{}", stopped.stderr);
    assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    for command in ["show", "approve", "reject"] {
        let command = format!("`ctx compact {command} music/default`");
        assert!(stopped.stderr.contains(&command), "{}", stopped.stderr);
    }
    assert!(!stopped.stderr.contains("ctx resume"), "one thing to do: {}", stopped.stderr);
    let mut attached = Pty::ctx(&daemon, &["attach", "music"]);
    attached.wait_for("music/default: debug:script, paused");
    attached.wait_for(said);
    daemon.ctx(&["compact", "reject", "music/default"]).ok();
    attached.wait_for("[the compaction was rejected]");
    let mut attached = Pty::ctx(&daemon, &["attach", "music/attached"]);
    attached.wait_for("Ctrl-D leaves");
    // As much as a terminal takes in one line.
    let line = "y".repeat(3_900);
    attached.type_keys(&format!("{line}\r"));
    attached.wait_for(said);
    let mut chat = Pty::ctx(&daemon, &["chat", "music/chat"]);
    chat.wait_for("music/chat> ");
    chat.type_keys(&format!("{line}\r"));
    chat.wait_for(said);
    chat.wait_for("music/chat> ");
    let frames = ["send", "-a", "music", "--session", "frames", "--json", &line];
    let frames = json_lines(&daemon.ctx(&frames).stdout);
    let done = frames.last().unwrap();
    assert_eq!((&done["status"], &done["finish_reason"]), (&"ok".into(), &"awaiting_compaction".into()));
    daemon.ctx(&["compact", "approve", "music/frames"]).ok();
    wait_state_of(&daemon, "music/frames", "idle");
}
