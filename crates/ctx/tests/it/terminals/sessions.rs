//! Terminals that belong to sessions: opened by their operator and by their agents, in their cages.

use ctx_session::Ulid;
use serde_json::{Value, json};
use testkit::until;

use super::{Terms, build};
use crate::agent_shell::ready;
use crate::support::{json_lines, wait_state};

/// A daemon whose coder may use terminals.
fn start() -> Terms {
    let daemon = ready(build());
    std::fs::write(daemon.root().join("agent/coder.d/policy"), "allow terminal.*\n").unwrap();
    Terms { daemon }
}

/// A run that makes these calls, one after the other; what they gave.
fn run(terms: &Terms, session: &str, calls: &[(&str, Value)]) -> Vec<String> {
    let before = records(terms, session, "tool_finished").len();
    terms.ctx(&["send", "--model", "debug:script", "--session", session, &script(calls)]).ok();
    let made = records(terms, session, "tool_finished").split_off(before);
    made.iter().map(|one| one["output"].as_str().unwrap().to_owned()).collect()
}

fn script(calls: &[(&str, Value)]) -> String {
    let step = |(name, input): &(&str, Value)| json!({"tool": {"name": name, "input": input}});
    let steps = calls.iter().map(step).chain([json!({"text": "done"})]);
    json!({"script": steps.collect::<Vec<_>>()}).to_string()
}

fn records(terms: &Terms, session: &str, kind: &str) -> Vec<Value> {
    let by_id = session.parse::<Ulid>().is_ok();
    let word = if by_id { session.to_owned() } else { format!("coder/{session}") };
    let log = terms.ctx(&["log", &word, "--json"]);
    let all = if log.stdout.is_empty() { Vec::new() } else { json_lines(&log.ok()) };
    all.into_iter().filter(|record| record["type"] == kind).collect()
}

/// Waits for the record of a terminal's end.
fn closed(terms: &Terms, session: &str, id: &str) -> Value {
    until(&format!("the end of {id} in the log"), || {
        records(terms, session, "terminal_closed").into_iter().find(|one| one["pty_id"] == id)
    })
}

fn open(terms: &Terms, session: &str, args: &[&str]) -> String {
    let session = format!("coder/{session}");
    let all =
        [&["term", "run", "--session", &session, "--detach", "--cols", "80", "--rows", "24"], args].concat();
    terms.ctx(&all).ok().trim().to_owned()
}

#[test]
fn a_session_has_eight_terminals_in_its_cage_and_they_end_with_it() {
    let terms = start();
    run(&terms, "work", &[]);
    let first =
        open(&terms, "work", &["--name", "first", "--", "sh", "-c", "id -u; pwd; stty size; tty; cat"]);
    let screen = terms.shows(&first, "24 80");
    assert!(terms.ctx(&["term", "ls"]).ok().contains(" coder/work "), "the list names the session");
    assert!(screen.starts_with("1000\n/work\n24 80\n"), "{screen}");
    let listed = terms.listed(&first);
    assert_eq!((&listed["caged"], &listed["state"]), (&json!(true), &json!("detached")));
    let session = listed["session"].as_str().unwrap().to_owned();
    // Its terminal is its own: Ctrl-C reaches the program.
    terms.ctx(&["term", "send", "first", "--key", "C-c"]).ok();
    let end = closed(&terms, "work", &first);
    assert_eq!(
        (&end["reason"], &end["exit_code"], &end["transcript_lines"]),
        (&json!("exited"), &json!(130), &json!(4))
    );
    let own = open(&terms, "work", &["--no-cage", "--", "sh", "-c", "id -u; cat"]);
    terms.shows(&own, "0\n");
    let all: Vec<String> = (0..7).map(|_| open(&terms, "work", &["--", "cat"])).collect();
    let ninth = terms.ctx(&["term", "run", "--session", "coder/work", "--detach", "--", "cat"]);
    assert!(ninth.fails(1).contains("a session has at most 8 terminals"));
    terms.ctx(&["term", "close", &all[0]]).ok();
    assert_eq!(closed(&terms, "work", &all[0])["reason"], "closed");
    terms.ctx(&["end", "coder/work", "--yes"]).ok();
    for id in all.iter().skip(1).chain([&own]) {
        assert_eq!(closed(&terms, &session, id)["reason"], "session_ended");
        assert_eq!(terms.listed(id)["state"], "closed");
    }
    let index = terms.root().join(".state/index.db");
    let rows = || {
        let mut command = std::process::Command::new("sqlite3");
        let sql = "SELECT transcript, line_count, run_id IS NULL FROM run_pty_transcripts ORDER BY id";
        let out = testkit::finish(command.arg("-readonly").arg(&index).arg(sql)).ok();
        (out.lines().count() == 9).then(|| out.lines().next().unwrap().to_owned())
    };
    assert_eq!(until("their rows", rows), format!(".state/hold/0/{first}/transcript|4|1"));
    let events = json_lines(&terms.ctx(&["audit", "--json"]).ok());
    let count = |name: &str| events.iter().filter(|one| one["event"] == name).count();
    assert_eq!((count("pty.allocated"), count("pty.closed")), (9, 9));
    let refused = terms.ctx(&["term", "run", "--session", &session, "--detach", "--", "cat"]);
    assert!(refused.fails(1).contains("has ended"));
}

#[test]
fn without_a_cage_a_terminal_begins_in_the_project_of_a_session_that_began_elsewhere() {
    let terms = Terms::start();
    let dir = terms.path("music");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    for action in ["init", "add"] {
        terms.ctx(&["project", action, dir]).ok();
    }
    terms.ctx(&["send", "-a", "music", "hello"]).ok();
    let run = ["term", "run", "--session", "music/default", "--no-cage", "--detach", "--name", "there"];
    terms.ctx(&[&run[..], &["--", "sh", "-c", "pwd; cat"]].concat()).ok();
    terms.shows("there", &format!("{dir}\n"));
}

#[test]
fn an_agent_opens_types_reads_and_closes() {
    let terms = start();
    let opened = run(
        &terms,
        "work",
        &[("terminal.open", json!({"command": "stty size; exec cat", "cols": 40, "rows": 5}))],
    );
    let id = opened[0].clone();
    assert!(id.parse::<Ulid>().is_ok(), "{id}");
    terms.shows(&id, "5 40");
    assert_eq!(terms.listed(&id)["caged"], true);
    // It goes on between runs.
    run(&terms, "work", &[("terminal.write", json!({"id": id, "text": "hello", "keys": ["Enter"]}))]);
    terms.shows(&id, "hello\nhello");
    let read = run(&terms, "work", &[("terminal.read", json!({"id": id}))]);
    assert!(
        read[0].starts_with("5 40\nhello\nhello\n[") && read[0].contains("cursor at row 4, column 1"),
        "{}",
        read[0]
    );
    // The operator's are not the agent's: they may be in no cage.
    let own = open(&terms, "work", &["--no-cage", "--", "cat"]);
    let refused = run(&terms, "work", &[("terminal.write", json!({"id": own, "text": "x"}))]);
    assert!(refused[0].contains("you have opened no terminal"), "{}", refused[0]);
    let gone = run(&terms, "work", &[("terminal.close", json!({"id": id}))]);
    assert!(gone[0].contains("exited with code 129"), "{}", gone[0]);
    let end = closed(&terms, "work", &id);
    assert_eq!(end["reason"], "closed");
    assert!(end["turn_id"].is_string());
    std::fs::write(terms.root().join("agent/coder.d/policy"), "deny terminal.open *rm*\nallow terminal.*\n")
        .unwrap();
    let denied = run(&terms, "work", &[("terminal.open", json!({"command": "rm -rf x"}))]);
    assert!(denied[0].contains("the policy denies terminal.open"), "{}", denied[0]);
}

/// The last number on a screen that counts.
fn counted(terms: &Terms, id: &str) -> u64 {
    until("a number", || terms.screen(id).lines().rev().find_map(|line| line.trim().parse().ok()))
}

const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";

#[test]
fn a_pause_freezes_what_is_caged_and_a_cancel_closes_what_its_run_opened() {
    let terms = start();
    let id = run(&terms, "work", &[("terminal.open", json!({"command": COUNT}))]).remove(0);
    counted(&terms, &id);
    let message = json!({"script": [
        {"tool": {"name": "terminal.open", "input": {"command": COUNT}}}, {"tool": {"name": "checkpoint", "input": {}}},
        {"sleep_ms": 600_000}
    ]});
    let args = ["send", "--detach", "--model", "debug:script", "--session", "work", &message.to_string()];
    terms.ctx(&args).ok();
    wait_state(&terms, "work", "paused");
    let second = records(&terms, "work", "terminal_opened")[1]["pty_id"].as_str().unwrap().to_owned();
    let frozen = counted(&terms, &id);
    let asked = std::time::Instant::now();
    until("some time to pass", || (asked.elapsed() > std::time::Duration::from_millis(300)).then_some(()));
    assert_eq!(counted(&terms, &id), frozen);
    terms.ctx(&["resume", "coder/work"]).ok();
    until("it to go on", || (counted(&terms, &id) > frozen).then_some(()));
    terms.ctx(&["cancel", "coder/work"]).ok();
    assert_eq!(closed(&terms, "work", &second)["reason"], "run_ended");
    // What an earlier run has opened goes on.
    let before = counted(&terms, &id);
    until("it to go on", || (counted(&terms, &id) > before).then_some(()));
}

#[test]
fn a_killed_daemon_loses_no_terminal_but_those_of_the_run_that_it_took_with_it() {
    let mut terms = start();
    let steps = json!({"script": [{"tool": {"name": "terminal.open", "input": {"command": COUNT}}}, {"sleep_ms": 600_000}]});
    let args = ["send", "--detach", "--model", "debug:script", "--session", "work", &steps.to_string()];
    terms.ctx(&args).ok();
    let opened = || records(&terms, "work", "tool_finished").pop();
    let agents = until("the agent's terminal", opened)["output"].as_str().unwrap().to_owned();
    let own = open(&terms, "work", &["--", "sh", "-c", COUNT]);
    let before = counted(&terms, &own);
    terms.kill();
    terms.start_again();
    assert_eq!(closed(&terms, "work", &agents)["reason"], "run_ended");
    // The sweep at the start has spared its cage.
    until("it to have gone on", || (counted(&terms, &own) > before).then_some(()));
    terms.ctx(&["term", "send", &own, "--key", "C-c"]).ok();
    let end = closed(&terms, "work", &own);
    assert_eq!(end["reason"], "exited");
}
