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
    for word in [id, &id.to_lowercase(), &id[..25], "coder/old"] {
        assert_eq!(root.ctx(&["latest", word]).ok(), "goodbye\n", "{word}");
        assert_eq!(root.ctx(&["latest", "coder", "--session", word]).ok(), "goodbye\n", "{word}");
    }
    root.ctx(&["latest", &id[..5]]).fails(1);
    let said = root.ctx(&["latest", &id[..6]]).fails(2);
    assert!(said.contains("matches") && said.contains("coder/default"), "{said}");
    let said = root.ctx(&["latest", "coder/nobody"]).fails(1);
    assert!(said.contains("no session \"coder/nobody\""), "{said}");
    root.ctx(&["latest", "coder", "--session", "../../etc"]).fails(2);
    root.ctx(&["history", "stranger"]).fails(1);
}

#[test]
fn a_name_that_nothing_has_gets_the_one_that_was_meant() {
    let root = left_behind();
    for (typed, said) in [
        ("codr", "no agent or session \"codr\"; did you mean coder?"),
        ("defualt", "no agent or session \"defualt\"; did you mean coder/default?"),
        ("coder/defalt", "no session \"coder/defalt\"; did you mean coder/default?"),
        ("cdoer/old", "no session \"cdoer/old\"; did you mean coder/old?"),
    ] {
        let refused = root.ctx(&["history", typed]).fails(1);
        assert!(refused.contains(said), "{typed}: {refused}");
    }
    root.ctx(&["history", "old"]).ok();
    let stranger = root.ctx(&["history", "stranger"]).fails(1);
    assert!(stranger.contains("no agent or session \"stranger\" (ENOENT)"), "{stranger}");
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
            said.contains("no daemon is running") && said.contains("ctx serve --detach --root"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn where_there_is_no_root_there_is_something_to_do_about_it() {
    let place = place();
    for command in [&["latest"][..], &["history"], &["log", "coder"], &["show"], &["search", "x"]] {
        let said = place.ctx(command).fails(1);
        assert!(said.contains("no session yet") && said.contains("ctx chat"), "{command:?}: {said}");
    }
    for command in [&["ls"][..], &["ls", "--needs-me"], &["ls", "-A"]] {
        let empty = place.ctx(command);
        assert!(empty.stderr.contains("`ctx chat` starts the first"), "{}", empty.stderr);
        assert_eq!(empty.ok(), "");
    }
    place.ctx(&["status"]).fails(69);
    place.ctx(&["send", "hello"]).fails(69);
    place.ctx(&["cancel", "coder"]).fails(69);
}

#[test]
fn every_listing_is_called_ls_and_list_and_objects_are_told_as_json() {
    let daemon = daemon();
    for what in ["agent", "project", "tool", "space", "issue", "token", "queue"] {
        assert_eq!(daemon.ctx(&[what, "list"]).ok(), daemon.ctx(&[what, "ls"]).ok(), "{what}");
    }
    let which = &json_lines(&daemon.ctx(&["which", "coder", "--json"]).ok())[0];
    assert_eq!(
        (&which["name"], which["path"].as_str()),
        (&"coder".into(), daemon.root().join("agent/coder").to_str())
    );
    let cat = &json_lines(&daemon.ctx(&["cat", "coder/prompt", "--json"]).ok())[0];
    assert_eq!(cat["text"].as_str(), Some(daemon.ctx(&["cat", "coder/prompt"]).ok().as_str()));
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

/// The log again, with the user's message in the place of each record after the first, and so many of them.
fn long_log(real: &str, records: usize) -> (String, impl Fn(usize) -> String + use<>) {
    let user = real.lines().find(|line| line.contains("\"type\":\"user\"")).unwrap().to_owned();
    let line = move |seq: usize| {
        user.replace("\"seq\":1,", &format!("\"seq\":{seq},")).replace(",\"more\":true", "")
    };
    let mut text = format!("{}\n", real.lines().next().unwrap());
    (1..records).for_each(|seq| text.push_str(&format!("{}\n", line(seq))));
    (text, line)
}

/// Behind the first lines there is a hole of 64 GB: whoever reads on runs out of time.
#[test]
fn the_first_lines_of_a_long_history_cost_no_more_than_those_of_a_short_one() {
    let root = left_behind();
    let dir = format!("home/{}/agent/coder/session/default", rustix::process::getuid().as_raw());
    let dir = root.root().join(dir);
    let (begin, line) = long_log(&std::fs::read_to_string(dir.join("events.jsonl")).unwrap(), 5_000);
    let mut log = std::fs::File::create(dir.join("events.jsonl")).unwrap();
    log.write_all(begin.as_bytes()).unwrap();
    log.set_len(64 << 30).unwrap();
    std::io::Seek::seek(&mut log, std::io::SeekFrom::End(0)).unwrap();
    write!(log, "\n{}\n{}\n{}\n", line(9_998), line(9_999), line(10_000)).unwrap();
    drop(log);
    let messages = std::fs::read_to_string(dir.join("messages.jsonl")).unwrap();
    let first = messages.lines().next().unwrap();
    let last = first.replace("\"seq\":1,", "\"seq\":10000,");
    std::fs::write(dir.join("messages.jsonl"), format!("{first}\n{last}\n")).unwrap();

    for (args, begin) in [(&["history"][..], "user "), (&["history", "--json"], "{\"id\":")] {
        let mut child = root.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with(begin), "{args:?}: {line}");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "a reader that has seen enough is no error");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

/// One thing after the other happens to the file that people read: nothing is missing anywhere, it is told of, and the
/// file is made whole when the session is next used.
#[test]
fn a_damaged_messages_file_hides_nothing_and_is_made_anew() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    daemon.ctx(&["send", "world"]).ok();
    assert_eq!(daemon.stop(), 0);
    let dir = format!("home/{}/agent/coder/session/default", rustix::process::getuid().as_raw());
    let file = daemon.root().join(&dir).join("messages.jsonl");
    let harms: [fn(&str) -> String; 3] = [
        |whole| whole.replacen("\"role\"", "\"rolf\"", 2),
        |whole| whole.lines().skip(1).map(|line| format!("{line}\n")).collect(),
        |whole| whole.replacen("hello", "hallo", 1),
    ];
    for harm in harms {
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, harm(&whole)).unwrap();
        let said = |text: &str, id: &str| -> Vec<(String, String)> {
            let lines = json_lines(text).into_iter();
            lines.map(|line| (line[id].to_string(), line["role"].to_string())).collect()
        };
        let history = daemon.ctx(&["history", "--json"]).ok();
        assert_eq!(said(&history, "id"), said(&whole, "id"));
        assert!(history.contains("\"content\":\"hello\"") && !history.contains("hallo"), "{history}");
        let shown = daemon.ctx(&["show"]).ok();
        assert!(shown.matches("hello").count() == 2 && shown.contains("world"), "{shown}");
        let told = daemon.ctx(&["doctor", "--deep", "--json"]);
        let told = &json_lines(&told.stdout)[0]["problems"];
        assert_eq!(
            (&told[0]["path"], &told[0]["line"]),
            (&format!("{dir}/messages.jsonl").into(), &1.into())
        );
        assert!(told[1].is_null(), "{told}");

        daemon.start_again();
        daemon.ctx(&["send", "world"]).ok();
        assert_eq!(daemon.stop(), 0);
        let mended = std::fs::read_to_string(&file).unwrap();
        assert!(
            mended.starts_with(&whole) && mended.lines().count() == whole.lines().count() + 2,
            "{mended}"
        );
        daemon.ctx(&["doctor", "--deep"]).ok();
    }
}

#[test]
fn a_copy_of_a_session_is_no_second_session() {
    let root = left_behind();
    let dir = root.root().join(format!("home/{}/agent/coder/session", rustix::process::getuid().as_raw()));
    std::fs::create_dir(dir.join("copy")).unwrap();
    let entries = std::fs::read_dir(dir.join("default")).unwrap().flatten();
    for entry in entries.filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), dir.join("copy").join(entry.file_name())).unwrap();
    }
    let listed = json_lines(&root.ctx(&["ls", "--json"]).ok());
    assert_eq!((listed.len(), &listed[0]["session"]), (1, &"coder/default".into()));
}
