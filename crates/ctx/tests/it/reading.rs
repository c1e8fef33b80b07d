//! Reading while no daemon is up: what the last one left, and what to say when there is nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use testkit::TestDaemon;

use crate::support::{daemon, json_lines, place};

/// A root that a daemon has left, with one session of two messages and one that has ended.
fn left_behind() -> TestDaemon {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "old", "goodbye"]).ok();
    daemon.ctx(&["end", "--yes", "coder/old"]).ok();
    daemon.ctx(&["send", "--session", "default", "hello\nworld"]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon
}

#[test]
fn the_conversation_is_readable_while_the_daemon_is_down() {
    let root = left_behind();
    assert_eq!(root.ctx(&["latest"]).ok(), "hello\nworld\n");
    assert_eq!(root.ctx(&["latest", "coder/old"]).ok(), "goodbye\n");
    let history = root.ctx(&["history"]).ok();
    let texts: Vec<&str> = history.lines().filter(|line| *line == "hello" || *line == "world").collect();
    assert_eq!(texts, ["hello", "world", "hello", "world"], "{history}");
    let last = json_lines(&root.ctx(&["history", "-n", "1", "--json"]).ok());
    assert_eq!((last.len(), &last[0]["role"]), (1, &"assistant".into()));
    let log = root.ctx(&["log", "coder"]).ok();
    assert!(log.contains("user \"hello world\"") && log.contains("running → idle (run_completed)"), "{log}");
    let raw = json_lines(&root.ctx(&["log", "coder", "--json"]).ok());
    assert_eq!(raw[0]["type"], "session_meta");
    assert!(raw.iter().zip(0..).all(|(line, seq)| line["seq"] == seq), "no gap");
}

#[test]
fn a_session_is_found_by_name_by_id_and_by_the_beginning_of_its_id() {
    let root = left_behind();
    let listed = json_lines(&root.ctx(&["ls", "--all", "--json"]).ok());
    let old = listed.iter().find(|session| session["name"] == "old").unwrap();
    let id = old["id"].as_str().unwrap();
    for word in [id, &id.to_lowercase(), &id[..25], "coder/old", &format!("coder/old+{id}")] {
        assert_eq!(root.ctx(&["latest", word]).ok(), "goodbye\n", "{word}");
        assert_eq!(root.ctx(&["latest", "coder", "--session", word]).ok(), "goodbye\n", "{word}");
    }
    let said = root.ctx(&["latest", "0"]).fails(2);
    assert!(said.contains("could be") && said.contains("coder/default"), "{said}");
    let said = root.ctx(&["latest", "coder/nobody"]).fails(1);
    assert!(said.contains("no session `coder/nobody`"), "{said}");
    root.ctx(&["latest", "coder", "--session", "../../etc"]).fails(2);
    root.ctx(&["history", "stranger"]).fails(1);
}

#[test]
fn ls_shows_what_can_be_gone_on_with_and_all_shows_the_rest() {
    let root = left_behind();
    let names = |args: &[&str]| -> Vec<String> {
        let listed = json_lines(&root.ctx(args).ok());
        listed.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["ls", "--json"]), ["default"]);
    assert_eq!(names(&["ls", "--json", "--all"]), ["default", "old"], "newest first");
    assert_eq!(names(&["ls", "--json", "--all", "-n", "1"]), ["default"]);
    assert_eq!(names(&["ls", "--json", "stranger"]), [""; 0]);
    let table = root.ctx(&["ls"]).ok();
    assert!(table.starts_with("SESSION") && table.contains("coder/default  idle"), "{table}");
    assert!(!table.contains('\x1b'), "no colours into a pipe");
}

#[test]
fn what_needs_the_daemon_says_that_it_is_down_and_how_to_start_it() {
    let root = left_behind();
    let commands: [&[&str]; 7] = [
        &["status"],
        &["send", "hello"],
        &["queue"],
        &["cancel", "coder"],
        &["rename", "coder", "title"],
        &["end", "--yes", "coder"],
        &["status", "--json"],
    ];
    for command in commands {
        let said = root.ctx(command).fails(69);
        assert!(
            said.contains("no daemon answers") && said.contains("ctx serve --root"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn where_there_is_no_root_there_is_something_to_do_about_it() {
    let place = place();
    for command in [&["ls"][..], &["latest"], &["history"], &["log", "coder"]] {
        let said = place.ctx(command).fails(1);
        assert!(said.contains("no ctx root here") && said.contains("ctx serve"), "{command:?}: {said}");
    }
    place.ctx(&["status"]).fails(69);
    place.ctx(&["send", "hello"]).fails(69);
    place.ctx(&["cancel", "coder"]).fails(69);
}

#[test]
fn the_views_may_be_deleted_and_the_log_still_answers() {
    let root = left_behind();
    let dir = format!("home/{}/agent/coder/session", rustix::process::getuid().as_raw());
    let session = root.root().join(&dir).join("default");
    for entry in std::fs::read_dir(&session).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.file_name().unwrap() != "events.jsonl" {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::remove_dir_all(root.root().join(&dir).join("index")).unwrap();
    assert_eq!(root.ctx(&["latest"]).ok(), "hello\nworld\n");
    assert_eq!(json_lines(&root.ctx(&["history", "--json"]).ok()).len(), 2);
    assert_eq!(json_lines(&root.ctx(&["ls", "--json"]).ok()).len(), 1);
}

/// Behind the first lines there is a hole of 64 GB: whoever reads on runs out of memory or time.
#[test]
fn the_first_lines_of_a_long_history_cost_no_more_than_those_of_a_short_one() {
    let root = left_behind();
    let dir = format!("home/{}/agent/coder/session/default", rustix::process::getuid().as_raw());
    let path = root.root().join(dir).join("messages.jsonl");
    let real = std::fs::read_to_string(&path).unwrap();
    let (first, last) = (real.lines().next().unwrap(), real.lines().last().unwrap());
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..5_000 {
        writeln!(file, "{first}").unwrap();
    }
    file.set_len(64 << 30).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    write!(file, "\n{last}\n").unwrap();
    drop(file);

    for (args, begin) in [(&["history"][..], "user "), (&["history", "--json"], first)] {
        let mut child = root.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with(begin), "{args:?}: {line}");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "a reader that has seen enough is no error");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}
