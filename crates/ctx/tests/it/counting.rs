//! What no longer counts after a rollback: left out of what a person reads, and there for whoever asks for it.

use testkit::{TestDaemon, until};

use crate::support::{daemon, json_lines, start_slow, wait_state};

/// A daemon that was stopped after session `one` went back to before its last exchange.
fn went_back() -> TestDaemon {
    let mut daemon = daemon();
    start_slow(&daemon, "one");
    daemon.ctx(&["pause", "coder/one"]).ok();
    daemon.ctx(&["cancel", "coder/one"]).ok();
    wait_state(&daemon, "one", "idle");
    daemon.ctx(&["send", "--model", "debug:echo", "--session", "one", "a later thought"]).ok();
    assert_eq!(daemon.ctx(&["latest", "coder/one"]).ok(), "a later thought\n");
    daemon.ctx(&["rollback", "--yes", "coder/one"]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon
}

#[test]
fn a_person_reads_what_counts_and_asks_for_the_rest() {
    let root = went_back();
    for command in [&["history"][..], &["show"], &["export", "--to", "markdown"]] {
        let read = |more: &[&str]| root.ctx(&[command, &["coder/one"], more].concat()).ok();
        let all = if command == ["show"] { "--full" } else { "--all" };
        assert!(!read(&[]).contains("a later thought"), "{command:?}");
        let all = read(&[all]);
        assert!(
            all.contains("a later thought") && all.contains("removed from context by a rollback"),
            "{all}"
        );
    }
    assert!(!root.ctx(&["latest", "coder/one"]).stdout.contains("a later thought"));
    let last = root.ctx(&["history", "coder/one", "-n", "1"]).ok();
    assert!(!last.contains("a later thought"), "the last of those that count: {last}");
}

#[test]
fn a_program_is_told_which_messages_count() {
    let root = went_back();
    let lines = json_lines(&root.ctx(&["export", "coder/one", "--to", "jsonl"]).ok());
    let later: Vec<_> = lines.iter().filter(|line| line["content"][0]["text"] == "a later thought").collect();
    let told: Vec<_> = later.iter().map(|line| (&line["role"], &line["superseded"])).collect();
    assert_eq!(told, [(&"user".into(), &true.into()), (&"assistant".into(), &true.into())]);
    assert_eq!((&lines[1]["role"], &lines[1]["superseded"]), (&"user".into(), &false.into()));
    let all = json_lines(&root.ctx(&["history", "coder/one", "--json", "--all"]).ok());
    let told: Vec<_> = all.iter().filter(|line| line["superseded"] == true).collect();
    assert_eq!(told.iter().filter(|line| line["content"] == "a later thought").count(), 2, "{all:?}");
    let counting = json_lines(&root.ctx(&["history", "coder/one", "--json"]).ok());
    assert_eq!(counting.len() + told.len(), all.len());
}

#[test]
fn paused_sessions_are_found_by_their_state() {
    let mut daemon = daemon();
    start_slow(&daemon, "one");
    daemon.ctx(&["send", "--session", "two", "hello"]).ok();
    daemon.ctx(&["pause", "coder/one", "--reason", "lunch"]).ok();
    // The index follows the files within 200 ms.
    let listed = until("the index to list what is paused", || {
        let listed = json_lines(&daemon.ctx(&["ls", "--state", "paused", "--json"]).ok());
        (!listed.is_empty()).then_some(listed)
    });
    let names: Vec<_> = listed.iter().map(|line| line["session"].clone()).collect();
    assert_eq!(names, ["coder/one"]);
    let log = daemon.ctx(&["log", "coder/one"]).ok();
    assert!(log.contains("checkpoint") && log.contains("running → paused"), "{log}");
    assert!(daemon.ctx(&["ls"]).ok().contains("paused: lunch"));
    assert_eq!(daemon.stop(), 0);
    assert!(daemon.ctx(&["ls"]).ok().contains("paused: lunch"), "also without a daemon");
}
