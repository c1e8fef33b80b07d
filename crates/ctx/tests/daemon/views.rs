//! Files that a person looks at: right when a client sees `done`, and made again from the log alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Daemon, read_messages, until};

const VIEWS: [&str; 7] =
    ["messages.jsonl", "latest.md", "state", "cwd", "created_at", "updated_at", "meta.json"];

fn views_of(dir: &Path) -> BTreeMap<&'static str, String> {
    VIEWS.iter().map(|name| (*name, std::fs::read_to_string(dir.join(name)).unwrap())).collect()
}

#[test]
fn whoever_sees_done_finds_the_run_in_the_files() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for number in 0..50 {
        let text = format!("message {number}");
        client.say("default", &format!("m{number}"), &text);
        let dir = daemon.session("default");
        let (latest, state) = (daemon.file("default", "latest.md"), daemon.file("default", "state"));
        assert_eq!((latest, state.as_str()), (format!("{text}\n"), "idle\n"));
        assert_eq!(read_messages(&dir).last().unwrap()["content"][0]["text"], text);
    }
}

#[test]
fn index_files_follow_soon() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for name in ["a", "b", "a"] {
        // The clock stamps milliseconds, and the order of the list goes by them.
        std::thread::sleep(Duration::from_millis(3));
        let run = client.say(name, &format!("{:?}", Instant::now()), "x");
        let seen = Instant::now();
        until("the index", || {
            let current = std::fs::read_to_string(daemon.session("index/current")).ok()?;
            let list = std::fs::read_to_string(daemon.session("index/list")).ok()?;
            (current == format!("{name}\n") && list.lines().next() == Some(name)).then_some(())
        });
        // 200 ms by design; the rest is for a machine that is busy with other things.
        assert!(seen.elapsed() < Duration::from_secs(5), "after run {run}");
    }
    let by_cwd: Vec<_> = std::fs::read_dir(daemon.session("index/by-cwd")).unwrap().collect();
    assert_eq!(by_cwd.len(), 1);
    let hash = by_cwd.into_iter().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(hash).unwrap(), "a\n");
}

#[test]
fn deleted_views_come_back_as_they_were() {
    let mut daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "1")]);
    let mut client = daemon.client();
    client.say("default", "m1", "one");
    client.play(
        "default",
        "m2",
        json!([{"text": "a"}, {"tool": {"name": "fs.list", "input": {"path": "/work"}}}, {"text": "b"}]),
    );
    client.until_done();
    client.play("default", "m3", json!([{"text": "broken"}, {"error": "broken_stream"}]));
    client.until_done();
    client.play("busy", "m", json!([{"text": "x"}, {"sleep_ms": 600_000}]));
    client.until("delta");
    client.send("default", "m4", "discarded");
    client.expect("queued");
    let id = daemon.shown("default")["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{id}/queued-message")).status, 204);
    let dir = daemon.session("default");
    let before = views_of(&dir);
    let list = || {
        std::fs::read_to_string(daemon.session("index/list")).ok().filter(|list| list.lines().count() == 2)
    };
    until("the index", list);
    daemon.kill();
    for name in VIEWS {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::remove_dir_all(daemon.session("index")).unwrap();
    daemon.start_again();
    assert_eq!(views_of(&dir), before);
    until("the index", || {
        std::fs::read_to_string(daemon.session("index/list")).ok().filter(|list| list.lines().count() == 2)
    });
}

#[test]
fn any_view_that_is_deleted_comes_back_also_when_the_others_are_there() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    let names: Vec<String> = (0..VIEWS.len()).map(|number| format!("s{number}")).collect();
    for name in &names {
        client.say(name, "m1", "said");
    }
    let before: Vec<_> = names.iter().map(|name| views_of(&daemon.session(name))).collect();
    daemon.kill();
    for (name, view) in names.iter().zip(VIEWS) {
        std::fs::remove_file(daemon.session(name).join(view)).unwrap();
    }
    daemon.start_again();
    let after: Vec<_> = names.iter().map(|name| views_of(&daemon.session(name))).collect();
    assert_eq!(after, before);
}

#[test]
fn views_that_a_crash_left_behind_are_caught_up_by_the_next_start() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.say("default", "m1", "one");
    let dir = daemon.session("default");
    let old: Vec<(&str, Vec<u8>)> =
        VIEWS.iter().map(|name| (*name, std::fs::read(dir.join(name)).unwrap())).collect();
    // The clock stamps milliseconds.
    std::thread::sleep(Duration::from_millis(3));
    client.say("default", "m2", "two");
    let new = views_of(&dir);
    daemon.kill();
    for (name, bytes) in old {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
    daemon.start_again();
    assert_eq!(views_of(&dir), new, "before anyone has asked for the session");
}

#[test]
fn a_directory_is_one_however_it_is_written() {
    let daemon = Daemon::start();
    let sub = daemon.workspace().join("sub");
    std::fs::create_dir(&sub).unwrap();
    std::os::unix::fs::symlink("sub", daemon.workspace().join("link")).unwrap();
    let mut client = daemon.client();
    for (n, cwd) in ["/work/sub", "/work/sub/", "/work/./sub", "//work/sub", "/work/link", "/work/x/../sub"]
        .iter()
        .enumerate()
    {
        let (id, cwd) = (format!("m{n}"), if n == 5 { "/work/link/../sub" } else { cwd });
        client.ask(json!({"op": "send", "session": "default", "id": id, "input": "x", "cwd": cwd}));
        client.until_done();
        assert_eq!(daemon.file("default", "cwd"), "/work/sub\n", "{cwd}");
    }
    let changes = daemon.log("default").of_type("cwd_changed").len();
    assert!(changes <= 1, "{changes} changes of one directory");
    let by_cwd = || std::fs::read_dir(daemon.session("index/by-cwd")).unwrap().count();
    until("one file", || (by_cwd() == 1).then_some(()));
}

#[test]
fn index_files_name_what_can_be_resumed_by_its_name() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for name in ["kept", "away", "over"] {
        client.say(name, &format!("m-{name}"), "x");
    }
    let id = |name: &str| daemon.shown(name)["id"].as_str().unwrap().to_owned();
    let index = |file: &str| std::fs::read_to_string(daemon.session("index").join(file)).unwrap_or_default();
    let (away, over) = (id("away"), id("over"));
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{over}?confirm=true")).status, 204);
    assert_eq!(index("current"), "away\n");
    daemon.api_with("PUT", &format!("/sessions/{away}"), &json!({"archived": true})).ok();
    assert_eq!(index("current"), "kept\n", "at once");
    until("the list", || (index("list") == "kept\n").then_some(()));
    // A new session takes the name of the one that has ended; only it is named.
    client.say("over", "m-again", "x");
    until("the list", || {
        let mut names: Vec<String> = index("list").lines().map(str::to_owned).collect();
        names.sort();
        (names == ["kept", "over"]).then_some(())
    });
    daemon.api_with("PUT", &format!("/sessions/{away}"), &json!({"archived": false})).ok();
    until("the list", || index("list").lines().any(|line| line == "away").then_some(()));
}
