//! Sessions of other agents: brought in once, kept up with, taken back, and continued here.

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{TestDaemon, until};

use crate::support::{daemon, json_lines};

fn fixture(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctx-interop/tests/fixtures").join(case).join("files")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::write(&target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// The files below a directory with their contents.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    all
}

/// A daemon, and a home in which six agents have worked.
fn with_home(cases: &[&str]) -> (TestDaemon, PathBuf) {
    let daemon = daemon();
    let home = daemon.path("others");
    for case in cases {
        copy(&fixture(case), &home);
    }
    (daemon, home)
}

const ALL: [&str; 6] =
    ["codex/tools", "claude/interactive", "opencode/tools", "goose/tools", "gemini/tools", "aider/edits"];

fn import(daemon: &TestDaemon, home: &Path, more: &[&str]) -> Vec<Value> {
    let args = [&["import", "--json", "--path", home.to_str().unwrap()], more].concat();
    json_lines(&daemon.ctx(&args).ok())
}

fn added(lines: &[Value]) -> u64 {
    lines.iter().map(|line| line["added"].as_u64().unwrap()).sum()
}

#[test]
fn six_agents_histories_come_in_once_and_no_source_changes() {
    let (daemon, home) = with_home(&ALL);
    let before = contents(&home);
    let plan = import(&daemon, &home, &["--dry-run"]);
    assert_eq!(
        (plan.len(), daemon.ctx(&["ls", "--json"]).ok().as_str()),
        (6, ""),
        "a dry run changes nothing"
    );
    let lines = import(&daemon, &home, &[]);
    let agents: Vec<&str> = lines.iter().map(|line| line["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["codex", "claude", "opencode", "goose", "gemini", "aider"]);
    assert_eq!(added(&lines), added(&plan));
    let codex = &lines[0];
    assert_eq!((codex["messages"].as_u64(), codex["tool_calls"].as_u64()), (Some(4), Some(7)));
    assert_eq!(codex["damaged"], serde_json::json!([]));
    // What is asked of the index next has it all.
    let stats: Value = serde_json::from_str(&daemon.ctx(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(stats["sessions"], 6, "{stats}");
    let aider = stats["by_agent"].as_array().unwrap().iter().find(|row| row["key"] == "aider").unwrap();
    assert_eq!(aider["cost_usd"].as_f64(), Some(0.0145), "{aider}");
    assert_eq!(added(&import(&daemon, &home, &["--dry-run"])), 0, "nothing would come in");
    assert_eq!(added(&import(&daemon, &home, &[])), 0, "twice is once");
    assert!(contents(&home) == before, "no byte of a source changes");
    // Without what the client remembers, the daemon knows by itself what it has.
    let state = daemon.home().join(".local/state/ctx/imports.json");
    std::fs::remove_file(&state).unwrap();
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
    let history = daemon.ctx(&["history", codex["session"].as_str().unwrap(), "--json"]).ok();
    assert!(history.contains("fix `heaviest` so that an empty list gives None"), "{history}");
    let list = json_lines(&daemon.ctx(&["ls", "--json", "--all"]).ok());
    let times: Vec<&str> = list.iter().filter_map(|session| session["updated_at"].as_str()).collect();
    assert!(times.iter().all(|time| time.starts_with("2026-11-15")), "the times are the source's: {times:?}");
}

#[test]
fn what_was_said_elsewhere_is_found_and_survives_a_restart() {
    let (mut daemon, home) = with_home(&ALL);
    import(&daemon, &home, &[]);
    assert_eq!(daemon.stop(), 0);
    let hits = json_lines(&daemon.ctx(&["search", "--json", "heaviest", "--role", "user", "-n", "0"]).ok());
    let mut agents: Vec<&str> = hits.iter().map(|hit| hit["agent"].as_str().unwrap()).collect();
    agents.sort_unstable();
    assert_eq!(agents, ["aider", "codex", "gemini", "goose", "opencode"]);
    daemon.start_again();
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
}

#[test]
fn of_a_grown_source_exactly_the_new_records_come() {
    let (daemon, home) = with_home(&["codex/tools"]);
    let file =
        contents(&home).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let lines: Vec<&[u8]> = file.1.split_inclusive(|byte| *byte == b'\n').collect();
    std::fs::write(&file.0, lines[..30].concat()).unwrap();
    let first = import(&daemon, &home, &[]);
    std::fs::write(&file.0, &file.1).unwrap();
    let second = import(&daemon, &home, &[]);
    assert!(added(&first) > 0 && added(&second) > 0);
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
    let session = second[0]["session"].as_str().unwrap();
    let log = daemon.ctx(&["log", session, "--json"]).ok();
    let ids: Vec<String> = json_lines(&log)
        .iter()
        .filter(|record| record["type"] == "tool_finished" || record["type"] == "assistant_finished")
        .map(|record| format!("{} {} {}", record["type"], record["message_id"], record["call_id"]))
        .collect();
    let distinct: std::collections::HashSet<&String> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "nothing is there twice");
    assert_eq!(ids.iter().filter(|id| id.contains("tool_finished")).count(), 7);
}

#[test]
fn a_run_that_was_imported_while_it_went_on_ends_as_it_did() {
    let (daemon, home) = with_home(&["codex/interrupted-sigint"]);
    let (path, bytes) =
        contents(&home).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    // Before its tokens were counted, then before it was stopped.
    for end in [12, 16, lines.len()] {
        std::fs::write(&path, lines[..end].concat()).unwrap();
        let plan = added(&import(&daemon, &home, &["--dry-run"]));
        assert!(plan > 0);
        assert_eq!(added(&import(&daemon, &home, &[])), plan);
    }
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
    let stats: Value = serde_json::from_str(&daemon.ctx(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(stats["runs_by_state"]["cancelled"], 1, "{stats}");
    let tokens = |usage: &Value| ["input", "output", "cached"].map(|name| usage[name].as_u64().unwrap());
    assert_eq!(tokens(&stats["usage"]), [937, 26, 128], "{stats}");
    assert_eq!(tokens(&stats["by_agent"][0]), [937, 26, 128], "{stats}");
}

#[test]
fn a_kill_in_the_middle_loses_and_doubles_nothing() {
    let (mut daemon, home) = with_home(&["codex/large", "claude/large"]);
    let count = |daemon: &TestDaemon, lines: &[Value]| {
        let of = |line: &Value| {
            let log = daemon.ctx(&["log", line["session"].as_str().unwrap(), "--json"]).ok();
            json_lines(&log).iter().filter(|record| record["type"] == "tool_finished").count()
        };
        lines.iter().map(of).collect::<Vec<_>>()
    };
    for round in 0..3u64 {
        let mut child = daemon.command(&["import", "--path", home.to_str().unwrap()]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(40 + 70 * round));
        daemon.kill();
        let _ = child.wait().unwrap();
        daemon.start_again();
    }
    let lines = import(&daemon, &home, &[]);
    assert_eq!(count(&daemon, &lines), [150, 150]);
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
}

#[test]
fn an_import_is_taken_back_but_for_what_was_continued() {
    let (daemon, home) = with_home(&["codex/chat-short", "claude/chat-short"]);
    let lines = import(&daemon, &home, &[]);
    let codex = lines[0]["session"].as_str().unwrap();
    let answer = daemon.ctx(&["send", "-s", codex, "and now?"]).ok();
    assert!(answer.contains("and now?"), "the project's agent goes on with it: {answer}");
    let undone = daemon.ctx(&["import", "undo"]).ok();
    assert!(undone.contains("continued") && undone.contains(codex), "{undone}");
    assert!(undone.contains("1 sessions were removed, 1 were kept"), "{undone}");
    let again = import(&daemon, &home, &[]);
    assert_eq!((again[0]["added"].as_u64(), again[1]["created"].as_bool()), (Some(0), Some(true)));
}

#[test]
fn damage_is_reported_by_file_and_line_and_the_rest_comes_in() {
    let daemon = daemon();
    let damaged = fixture("damaged/codex-interleaved-line");
    let damaged = damaged.parent().unwrap();
    let outcome = daemon.ctx(&["import", "--json", "--path", damaged.to_str().unwrap()]);
    assert_eq!(outcome.code, 1, "something was left out");
    let line = &json_lines(&outcome.stdout)[0];
    assert_eq!(line["damaged"][0]["line"], 21);
    assert!(line["damaged"][0]["file"].as_str().unwrap().ends_with(".jsonl"));
    assert!(line["added"].as_u64().unwrap() > 10);
    assert!(outcome.stderr.contains(".jsonl:21:"), "{}", outcome.stderr);
    daemon.ctx(&["import", "--from", "nobody"]).fails(2);
    daemon.ctx(&["import", "--path", "/nowhere"]).fails(2);
}

#[test]
fn what_tools_printed_is_redacted_and_what_nobody_typed_is_marked() {
    let (daemon, home) = with_home(&["codex/tools"]);
    let (path, bytes) =
        contents(&home).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let secret = format!("ghp_{}", "0123456789abcdefghijABCDEFGHIJ012345");
    let text = String::from_utf8(bytes).unwrap();
    let text =
        text.replacen("Original token count: 85\\nOutput:\\n", &format!("Output:\\ntoken {secret}\\n"), 1);
    let text = if text.contains(&secret) {
        text
    } else {
        text.replacen("Output:\\n", &format!("Output:\\ntoken {secret}\\n"), 1)
    };
    assert!(text.contains(&secret));
    std::fs::write(&path, text).unwrap();
    let lines = import(&daemon, &home, &[]);
    let log = daemon.ctx(&["log", lines[0]["session"].as_str().unwrap(), "--json"]).ok();
    assert!(!log.contains(&secret), "secrets are not stored");
    let records = json_lines(&log);
    let injected = records.iter().filter(|record| record["type"] == "system" && record["injected"] == true);
    assert!(injected.count() >= 2);
    assert_eq!(records[0]["origin"]["agent"], "codex");
    assert_eq!(records[0]["origin"]["native_id"], lines[0]["native_id"]);
    assert_eq!(records[0]["project"], "default");
}

fn sessions_found(daemon: &TestDaemon, args: &[&str]) -> Vec<String> {
    let outcome = daemon.ctx(&[&["search", "--json", "--by-session"], args].concat());
    let mut agents: Vec<String> = json_lines(&outcome.stdout)
        .iter()
        .map(|session| session["agent"].as_str().unwrap().to_owned())
        .collect();
    agents.sort();
    agents
}

#[test]
fn every_filter_of_a_search_holds_before_anything_is_cut_off() {
    let (daemon, home) =
        with_home(&["codex/tools", "claude/interactive", "opencode/tools", "gemini/unicode"]);
    import(&daemon, &home, &[]);
    daemon.ctx(&["send", "--session", "own", "the inventory is here"]).ok();
    until("all of it to be searchable", || {
        (sessions_found(&daemon, &["inventory"]) == ["claude", "coder", "codex", "gemini", "opencode"])
            .then_some(())
    });
    let found = |args: &[&str]| sessions_found(&daemon, &[&["inventory"], args].concat());
    assert_eq!(found(&["--from", "codex"]), ["codex"]);
    assert_eq!(found(&["--dir", "/home/dev/inventory"]), ["claude", "codex", "opencode"]);
    assert_eq!(found(&["--dir", "/home/dev"]), ["claude", "codex", "gemini", "opencode"], "and below it");
    assert_eq!(found(&["--dir", "/home/dev/inv"]), [""; 0], "a directory is no beginning of a name");
    assert_eq!(found(&["--branch", "main"]), ["claude", "codex"]);
    assert_eq!(found(&["--branch", "other"]), [""; 0]);
    assert_eq!(found(&["--tool", "exec_command"]), ["codex"]);
    assert_eq!(found(&["--tool", "bash", "--role", "tool"]), ["opencode"]);
    assert_eq!(
        found(&["--since", "2026-11-15", "--until", "2026-11-16"]),
        ["claude", "codex", "gemini", "opencode"]
    );
    assert_eq!(found(&["--since", "2026-11-16"]), ["coder"]);
    assert_eq!(found(&["--from", "codex", "-n", "1"]), ["codex"], "the filter comes before the limit");
    assert_eq!(found(&["--newest", "-n", "1"]), ["coder"]);
    daemon.ctx(&["search", "inventory", "--from", "nobody"]).fails(2);
    daemon.ctx(&["search", "inventory", "--from", "codex", "--agent", "codex"]).fails(2);
    daemon.ctx(&["search", "inventory", "--by-session"]).fails(2);

    let codex =
        &json_lines(&daemon.ctx(&["search", "--json", "--by-session", "inventory", "--from", "codex"]).ok())
            [0];
    let hits = codex["hits"].as_array().unwrap();
    assert!(hits.len() == 3 && codex["matches"].as_u64().unwrap() > 3, "the three best of several: {codex}");
    let scores: Vec<f64> = hits.iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    assert_eq!((&codex["cwd"], hits[0].get("cwd")), (&Value::from("/home/dev/inventory"), None));
    let text = daemon.ctx(&["search", "inventory", "--from", "codex"]).ok();
    assert_eq!(text.matches("codex/").count(), 1, "a session is named once: {text}");
    assert!(text.contains(" more\n") && text.contains("tool exec_command"), "{text}");
}

/// What is shown of a session's conversation.
fn history(daemon: &TestDaemon, session: &str) -> String {
    daemon.ctx(&["history", session]).ok()
}

#[test]
fn what_an_import_added_to_an_older_session_is_taken_back_and_brought_again() {
    let (daemon, home) = with_home(&["codex/compacted", "claude/chat-short"]);
    let (path, bytes) = contents(&home.join(".codex"))
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl"))
        .unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    // A part that ends before the compaction.
    let compacted =
        lines.iter().position(|line| line.windows(18).any(|part| part == b"\"type\":\"compacted\"")).unwrap();
    std::fs::write(&path, lines[..compacted - 2].concat()).unwrap();
    let first = import(&daemon, &home, &[]);
    let session = first[0]["session"].as_str().unwrap().to_owned();
    let before = history(&daemon, &session);
    std::fs::write(&path, &bytes).unwrap();
    assert!(added(&import(&daemon, &home, &["--from", "codex"])) > 0);
    let after = history(&daemon, &session);
    assert!(after != before);

    let undone = daemon.ctx(&["import", "undo"]).ok();
    assert!(undone.contains("1 sessions of earlier imports are as they were before"), "{undone}");
    assert!(undone.contains("0 sessions were removed, 0 were kept"), "{undone}");
    assert_eq!(history(&daemon, &session), before);
    // Every line of the log is where it was: what is taken back is marked.
    let log = json_lines(&daemon.ctx(&["log", &session, "--json"]).ok());
    assert_eq!(log.last().unwrap()["type"], "import_undone");
    assert!(!log.last().unwrap()["superseded"].as_array().unwrap().is_empty());
    let times: Vec<&str> = log.iter().map(|record| record["time"].as_str().unwrap()).collect();
    assert!(
        times.iter().all(|time| time.starts_with("2026-11-15")),
        "taking back is nothing new in the session"
    );

    assert!(added(&import(&daemon, &home, &[])) > 0, "what was taken back comes again");
    assert_eq!(history(&daemon, &session), after);
    assert_eq!(added(&import(&daemon, &home, &[])), 0);
    let ids = |records: &[Value]| {
        let said = records.iter().filter(|record| record["type"] == "user");
        said.map(|record| record["message_id"].to_string()).collect::<Vec<_>>()
    };
    let log = json_lines(&daemon.ctx(&["log", &session, "--json"]).ok());
    let distinct: std::collections::BTreeSet<String> = ids(&log).into_iter().collect();
    assert_eq!(distinct.len(), ids(&log).len(), "nothing is there twice");

    // One after the other, until nothing is left.
    assert!(daemon.ctx(&["import", "undo"]).ok().contains("1 sessions of earlier imports"));
    assert_eq!(history(&daemon, &session), before);
    assert!(daemon.ctx(&["import", "undo"]).ok().contains("2 sessions were removed, 0 were kept"));
    assert!(daemon.ctx(&["import", "undo"]).stderr.contains("nothing was imported"));
    assert_eq!(daemon.ctx(&["ls", "--all", "--json"]).ok(), "");
}

#[test]
fn one_session_that_takes_nothing_more_keeps_no_other_from_coming_in() {
    let (daemon, home) = with_home(&["claude/chat-short", "codex/tools"]);
    let (path, bytes) = contents(&home.join(".codex"))
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl"))
        .unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    std::fs::write(&path, lines[..30].concat()).unwrap();
    let session = import(&daemon, &home, &["--from", "codex"])[0]["session"].as_str().unwrap().to_owned();
    daemon.ctx(&["end", "--yes", &session]).ok();
    std::fs::write(&path, &bytes).unwrap();
    let outcome = daemon.ctx(&["import", "--json", "--path", home.to_str().unwrap()]);
    assert!(outcome.code == 1 && outcome.stderr.contains("the session has ended"), "{outcome:?}");
    let lines = json_lines(&outcome.stdout);
    assert_eq!((lines.len(), &lines[0]["agent"]), (1, &Value::from("claude")));
    // A record of many megabytes is cut, and says so.
    let text = String::from_utf8(bytes).unwrap().replacen("Chunk ID: ", &"y".repeat(40 << 20), 1);
    let other = path.to_str().unwrap().replace("01a1ddd7-6d81", "01a1ddd7-6d82");
    std::fs::write(&other, text.replace("01a1ddd7-6d81", "01a1ddd7-6d82")).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines = import(&daemon, &home, &["--from", "codex"]);
    assert_eq!(lines[0]["tool_calls"], 7);
    let log = daemon.ctx(&["log", lines[0]["session"].as_str().unwrap(), "--json"]).ok();
    assert_eq!(json_lines(&log).iter().filter(|record| record["type"] == "tool_finished").count(), 7);
}

#[test]
fn an_addition_to_a_session_that_was_continued_stays() {
    let (mut daemon, home) = with_home(&["codex/tools"]);
    let (path, bytes) =
        contents(&home).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    std::fs::write(&path, lines[..30].concat()).unwrap();
    let session = import(&daemon, &home, &[])[0]["session"].as_str().unwrap().to_owned();
    std::fs::write(&path, &bytes).unwrap();
    assert!(added(&import(&daemon, &home, &[])) > 0);
    daemon.ctx(&["send", "-s", &session, "and now?"]).ok();
    let before = history(&daemon, &session);
    // Also after a restart, without an index.
    assert_eq!(daemon.stop(), 0);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(daemon.root().join(format!(".state/index.db{suffix}")));
    }
    daemon.start_again();
    let undone = daemon.ctx(&["import", "undo"]).ok();
    assert!(undone.contains(&format!("kept {session}: it was continued here")), "{undone}");
    assert_eq!(history(&daemon, &session), before);
}

#[test]
fn the_daemon_keeps_up_with_the_stores_that_it_is_told_of() {
    let builder = crate::support::build().env("CTX_IMPORT_FOLLOW", "codex");
    let home = builder.place().home();
    copy(&fixture("codex/tools"), &home);
    copy(&fixture("claude/chat-short"), &home);
    let (path, bytes) = contents(&home.join(".codex"))
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "jsonl"))
        .unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    std::fs::write(&path, lines[..30].concat()).unwrap();
    let daemon = builder.start();
    let agents = || {
        let sessions = json_lines(&daemon.ctx(&["ls", "--json", "--all", "-A"]).ok());
        sessions.iter().map(|session| session["agent"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("the session of codex", || (agents() == ["codex"]).then_some(()));
    let history = || daemon.ctx(&["history", "codex/01a1ddd7-6d81-7641-8ef6-f0383a499768"]).stdout;
    assert!(!history().contains("now gives `None`"));
    std::fs::write(&path, &bytes).unwrap();
    until("what was added", || history().contains("now gives `None`").then_some(()));
    assert_eq!(agents(), ["codex"], "claude was not named");
}
